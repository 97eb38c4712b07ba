#include "paceline/diagnose/own_time.h"

#include <gtest/gtest.h>

namespace paceline::diagnose {
namespace {

constexpr std::int64_t kStep = 1'000'000;

/// Ranks of which each takes part in all-reduces of `elements[r]`, computes for `own[r]` of every step and waits for
/// the rest.
trace::Trace job(const std::vector<std::int64_t>& elements, const std::vector<std::int64_t>& own,
                 const std::vector<std::int64_t>& first_step = {}) {
  std::vector<trace::RankSummary> ranks(own.size());
  for (std::uint32_t r = 0; r < own.size(); ++r) {
    ranks[r].rank = r;
    const auto group = ranks[r].names.intern("of " + std::to_string(elements[r]));
    for (std::int64_t s = 0; s < 6; ++s) {
      trace::StepSummary step;
      step.number = s + (first_step.empty() ? 0 : first_step[r]);
      step.begin = step.number * kStep;
      step.end = step.begin + kStep;
      step.compute = own[r];
      step.communication = kStep - own[r];
      ranks[r].steps.push_back(step);
      trace::CommEvent event;
      event.kind = trace::CollectiveKind::kAllReduce;
      event.elements = elements[r];
      event.group = event.name = group;
      event.begin = event.issued = step.begin + own[r];
      event.end = step.end;
      ranks[r].collectives.push_back(event);
    }
  }
  return trace::assemble(std::move(ranks));
}

TEST(OwnTime, IsHeldAgainstTheMedianOfRanksOfTheSameRole) {
  // Two stages of three ranks; the second has more to do by design, rank 4 more than its peers.
  const trace::Trace trace = job({8, 8, 8, 9, 9, 9}, {200'000, 200'000, 210'000, 600'000, 650'000, 600'000});
  const Diagnosis diagnosis = diagnose(trace);
  const OwnTime own(trace, diagnosis);
  EXPECT_TRUE(own.has_roles());
  EXPECT_EQ(own.peers(4), (std::vector<std::uint32_t>{3, 5}));
  EXPECT_DOUBLE_EQ(own.excess(4), 50'000);
  EXPECT_DOUBLE_EQ(own.excess(3), -25'000);
  EXPECT_DOUBLE_EQ(own.excess(0), -5'000);
  EXPECT_EQ(own.by_step(4), std::vector<double>(6, 50'000.0));
}

TEST(OwnTime, OfARankThatIsAloneInItsRoleIsHeldAgainstAll) {
  const trace::Trace trace = job({8, 8, 8, 9}, {200'000, 210'000, 220'000, 300'000});
  const Diagnosis diagnosis = diagnose(trace);
  const OwnTime own(trace, diagnosis);
  EXPECT_FALSE(own.has_peers(3));
  EXPECT_EQ(own.peers(3), (std::vector<std::uint32_t>{0, 1, 2}));
  EXPECT_DOUBLE_EQ(own.excess(3), 90'000);
}

TEST(OwnTime, ComparesStepsOfOneNumberWhereRanksRecordedDifferentOnes) {
  const trace::Trace trace = job({8, 8, 8}, {200'000, 200'000, 260'000}, {0, 2, 1});
  const Diagnosis diagnosis = diagnose(trace);
  EXPECT_EQ(diagnosis.step_count, 4u);  // 2 to 5
  const OwnTime own(trace, diagnosis);
  EXPECT_FALSE(own.has_roles());
  EXPECT_EQ(own.by_step(2), std::vector<double>(4, 60'000.0));
  EXPECT_EQ(diagnosis.late_rank(), 2);
}

TEST(OwnTime, PaceIsThatOfTheSameKernelsOnOtherRoles) {
  trace::Trace trace = job({8, 8, 9, 9}, {200'000, 200'000, 200'000, 200'000});
  for (std::uint32_t r = 0; r < 4; ++r) {
    trace::RankSummary& rank = trace.ranks[r];
    const auto kernel = [&](const char* name, std::uint32_t count, std::int64_t time) {
      rank.slot_items.push_back({trace::Activity::kCompute, rank.names.intern(name), base::kNone<base::NameId>,
                                 base::kNone<base::NameId>, base::kNone<base::NameId>, count, time});
    };
    // The second stage has twice the layers, each a quarter slower, and a kernel of its own.
    const bool second = r >= 2;
    kernel("gemm", second ? 20 : 10, second ? 20 * 12'500 : 10 * 10'000);
    kernel("norm", second ? 20 : 10, second ? 20 * 1'250 : 10 * 1'000);
    if (second) kernel("loss", 1, 50'000);
  }
  const Diagnosis diagnosis = diagnose(trace);
  const OwnTime own(trace, diagnosis);
  const std::vector<double> slower = own.slower_than_other_roles();
  EXPECT_DOUBLE_EQ(slower[0], -0.25 * 110'000 / 6.0);
  EXPECT_DOUBLE_EQ(slower[2], 0.2 * 325'000 / 6.0);
}

}  // namespace
}  // namespace paceline::diagnose
