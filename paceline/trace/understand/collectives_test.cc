#include "paceline/trace/understand/collectives.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "paceline/base/rng.h"
#include "tests/support/synthetic_job.h"

namespace paceline::trace {
namespace {

using test_support::JobPlan;
using test_support::load_texts;
using test_support::make_job;
using test_support::SyntheticJob;

/// Whether every true collective stands in `trace` with all its members (the texts are whole and on one clock).
void expect_all_matched(const Trace& trace, const SyntheticJob& job) {
  EXPECT_TRUE(trace.mismatches.empty());
  ASSERT_EQ(trace.collectives.size(), job.collectives.size());
  for (const auto& truth : job.collectives) {
    const auto found =
        std::find_if(trace.collectives.begin(), trace.collectives.end(), [&](const Collective& candidate) {
          const Member& first = trace.members[candidate.members_begin];
          return *trace.ranks[first.rank].rank == truth.ranks.front() &&
                 trace.event(first).begin == truth.begins.front();
        });
    ASSERT_NE(found, trace.collectives.end());
    ASSERT_EQ(found->size(), truth.ranks.size());
    for (std::uint32_t m = 0; m < found->size(); ++m) {
      const Member& member = trace.members[found->members_begin + m];
      EXPECT_EQ(*trace.ranks[member.rank].rank, truth.ranks[m]);
      EXPECT_EQ(trace.event(member).begin, truth.begins[m]);
    }
    EXPECT_EQ(*trace.ranks[trace.members[found->last].rank].rank, truth.last_rank);
  }
}

TEST(CollectiveMatching, FindsEveryOneWithAndWithoutNumbersOnDeviceAndHostInOneAndSeveralGroups) {
  for (const bool sequence : {true, false}) {
    for (const bool device : {true, false}) {
      for (const bool groups : {true, false}) {
        if (groups && !device) continue;  // gloo traces name no groups
        JobPlan plan;
        plan.sequence = sequence;
        plan.device = device;
        plan.groups = groups;
        SCOPED_TRACE(testing::Message() << "sequence " << sequence << " device " << device << " groups " << groups);
        const SyntheticJob job = make_job(plan);
        expect_all_matched(load_texts(job.texts), job);
      }
    }
  }
}

TEST(CollectiveMatching, IsNotMisledByClocksThatAreSecondsApart) {
  JobPlan plan;
  plan.sequence = false;
  plan.clock_offset = {0, 1'000'000'000, -1'000'000'000, 500'000'000, 3, -7'000'000, 90'000'000, 0};
  const SyntheticJob job = make_job(plan);
  const Trace trace = load_texts(job.texts);
  EXPECT_TRUE(trace.mismatches.empty());
  EXPECT_EQ(trace.collectives.size(), job.collectives.size());
}

TEST(CollectiveMatching, FindsTheRankThatSkippedOne) {
  for (const bool sequence : {true, false}) {
    for (const std::uint32_t skipped : {0u, 11u, 23u}) {
      JobPlan plan;
      plan.sequence = sequence;
      plan.skipped = {5, skipped};
      plan.clock_offset = {0, 40'000'000, 0, 0, 0, -300'000'000, 0, 0};
      const Trace trace = load_texts(make_job(plan).texts);
      SCOPED_TRACE(testing::Message() << "sequence " << sequence << " number " << skipped);
      ASSERT_EQ(trace.mismatches.size(), 1u);
      EXPECT_EQ(*trace.ranks[trace.mismatches[0].rank].rank, 5u);
      EXPECT_EQ(trace.mismatches[0].index, skipped);
      EXPECT_NE(trace.mismatches[0].what.find("missing here"), std::string::npos) << trace.mismatches[0].what;
      const auto incomplete = std::count_if(trace.collectives.begin(), trace.collectives.end(),
                                            [](const Collective& c) { return c.size() == 7; });
      EXPECT_EQ(incomplete, 1);
      EXPECT_EQ(trace.collectives.size(), 24u);
    }
  }
}

TEST(CollectiveMatching, FindsTheRankThatHasOneMore) {
  JobPlan plan;
  plan.sequence = false;
  plan.added = {2, 10};
  const Trace trace = load_texts(make_job(plan).texts);
  ASSERT_EQ(trace.mismatches.size(), 1u);
  EXPECT_EQ(*trace.ranks[trace.mismatches[0].rank].rank, 2u);
  EXPECT_NE(trace.mismatches[0].what.find("no partner"), std::string::npos) << trace.mismatches[0].what;
  EXPECT_EQ(std::count_if(trace.collectives.begin(), trace.collectives.end(),
                          [](const Collective& c) { return c.size() == 8; }),
            24);
}

TEST(CollectiveMatching, GoesOnWithoutARankWhoseTraceIsLost) {
  JobPlan plan;
  plan.missing_rank = 3;
  const Trace trace = load_texts(make_job(plan).texts);
  EXPECT_TRUE(trace.mismatches.empty());
  ASSERT_EQ(trace.collectives.size(), 24u);
  for (const Collective& collective : trace.collectives) EXPECT_EQ(collective.size(), 7u);
}

// --- by hand ------------------------------------------------------------------------------------------------------

CommEvent event(CollectiveKind kind, std::int64_t begin, std::int64_t end, std::int64_t elements = -1,
                std::int64_t sequence = -1) {
  CommEvent made;
  made.kind = kind;
  made.begin = made.issued = begin;
  made.end = end;
  made.elements = elements;
  made.sequence = sequence;
  return made;
}

RankSummary rank(std::uint32_t number, std::vector<CommEvent> events) {
  RankSummary summary;
  summary.rank = number;
  for (CommEvent& made : events) {
    if (made.name == base::kNone<NameId>) made.name = summary.names.intern(collective_name(made.kind));
  }
  summary.collectives = std::move(events);
  return summary;
}

Trace assembled(std::vector<RankSummary>&& ranks) {
  return assemble(std::move(ranks));
}

TEST(CollectiveMatching, TakesAllToAllOfDifferentSizesAsOne) {
  std::vector<RankSummary> ranks;
  ranks.push_back(rank(0, {event(CollectiveKind::kAllToAll, 0, 10, 100), event(CollectiveKind::kAllToAll, 20, 30, 7)}));
  ranks.push_back(rank(1, {event(CollectiveKind::kAllToAll, 5, 10, 3), event(CollectiveKind::kAllToAll, 22, 30, 500)}));
  const Trace trace = assembled(std::move(ranks));
  EXPECT_TRUE(trace.mismatches.empty());
  EXPECT_EQ(trace.collectives.size(), 2u);
}

TEST(CollectiveMatching, DoesNotPairAllReducesOfDifferentSizes) {
  std::vector<RankSummary> ranks;
  ranks.push_back(rank(0, {event(CollectiveKind::kAllReduce, 0, 10, 100)}));
  ranks.push_back(rank(1, {event(CollectiveKind::kAllReduce, 5, 10, 3)}));
  const Trace trace = assembled(std::move(ranks));
  EXPECT_FALSE(trace.mismatches.empty());
}

TEST(CollectiveMatching, NamesARankThatDoesSomethingElseUnderTheSameNumber) {
  std::vector<RankSummary> ranks;
  for (std::uint32_t i = 0; i < 4; ++i) {
    ranks.push_back(rank(i, {event(i == 2 ? CollectiveKind::kAllGather : CollectiveKind::kAllReduce, 0, 10, 8, 1)}));
  }
  const Trace trace = assembled(std::move(ranks));
  ASSERT_EQ(trace.mismatches.size(), 1u);
  EXPECT_EQ(trace.mismatches[0].rank, 2u);
  EXPECT_EQ(trace.mismatches[0].what, "all_gather number 0 where rank 0 has all_reduce number 0");
}

TEST(CollectiveMatching, OfCoalescedKernelsUnderOneNumberTheNthGoesWithTheNth) {
  std::vector<RankSummary> ranks;
  for (std::uint32_t i = 0; i < 2; ++i) {
    ranks.push_back(
        rank(i, {event(CollectiveKind::kAllReduce, 0, 10, 8, 1), event(CollectiveKind::kAllReduce, 11, 20, 8, 1),
                 event(CollectiveKind::kAllReduce, 21, 30, 8, 2)}));
  }
  const Trace trace = assembled(std::move(ranks));
  EXPECT_TRUE(trace.mismatches.empty());
  EXPECT_EQ(trace.collectives.size(), 3u);
}

TEST(CollectiveMatching, OnlyOneOfSeveralRanksHavingANumberIsNoReference) {
  // Rank 0 has the most events but not the one all the others share.
  std::vector<RankSummary> ranks;
  ranks.push_back(
      rank(0, {event(CollectiveKind::kAllReduce, 0, 10, 8, 1), event(CollectiveKind::kAllReduce, 40, 50, 8, 3)}));
  for (std::uint32_t i = 1; i < 4; ++i) {
    ranks.push_back(
        rank(i, {event(CollectiveKind::kAllReduce, 0, 10, 8, 1), event(CollectiveKind::kAllReduce, 20, 30, 8, 2)}));
  }
  const Trace trace = assembled(std::move(ranks));
  ASSERT_EQ(trace.collectives.size(), 3u);
  EXPECT_EQ(trace.collectives[1].size(), 3u);
  ASSERT_EQ(trace.mismatches.size(), 2u);
  for (const Mismatch& mismatch : trace.mismatches) EXPECT_EQ(mismatch.rank, 0u);
}

TEST(CollectiveMatching, PointToPointDiffersBetweenRanksAndIsNoMismatch) {
  std::vector<RankSummary> ranks;
  ranks.push_back(rank(0, {event(CollectiveKind::kSendRecv, 0, 10, 8)}));
  ranks.push_back(rank(1, {event(CollectiveKind::kSendRecv, 0, 10, 8), event(CollectiveKind::kSendRecv, 12, 20, 8)}));
  ranks.push_back(rank(2, {event(CollectiveKind::kSendRecv, 12, 20, 8)}));
  EXPECT_TRUE(assembled(std::move(ranks)).mismatches.empty());
}

TEST(CollectiveMatching, TransfersOfAPairGoByTheirOrderWhateverTheirNumbers) {
  std::vector<RankSummary> ranks;  // rank 1 is in the middle and counts transfers with both neighbours
  ranks.push_back(
      rank(0, {event(CollectiveKind::kSendRecv, 0, 10, 8, 1), event(CollectiveKind::kSendRecv, 20, 30, 8, 2)}));
  ranks.push_back(
      rank(1, {event(CollectiveKind::kSendRecv, 5, 10, 8, 1), event(CollectiveKind::kSendRecv, 25, 30, 8, 3)}));
  const Trace trace = assembled(std::move(ranks));
  ASSERT_EQ(trace.collectives.size(), 2u);
  for (const Collective& collective : trace.collectives) {
    ASSERT_EQ(collective.size(), 2u);
    EXPECT_EQ(collective.transfer, 5);
    EXPECT_EQ(trace.members[collective.last].rank, 1u);
  }
}

TEST(CollectiveMatching, OfRanksThatRecordedDifferentStepsGoesByTheStepsNumbers) {
  constexpr std::int64_t kStep = 1'000'000;
  std::vector<RankSummary> ranks;
  for (std::uint32_t i = 0; i < 3; ++i) {
    std::vector<CommEvent> events;
    std::vector<StepSummary> steps;
    for (std::int64_t number = 10 + i; number < 16 + i; ++number) {
      StepSummary step;
      step.number = number;
      step.begin = number * kStep;
      step.end = step.begin + kStep;
      steps.push_back(step);
      for (const std::int64_t at : {200'000, 600'000}) {
        events.push_back(event(CollectiveKind::kAllReduce, step.begin + at, step.begin + at + 100'000, 8));
        events.back().issued = step.begin + at;
      }
    }
    ranks.push_back(rank(i, std::move(events)));
    ranks.back().steps = std::move(steps);
  }
  const Trace trace = assembled(std::move(ranks));
  for (const Clock& clock : trace.clocks) EXPECT_EQ(clock.offset, 0);
  const auto whole = std::count_if(trace.collectives.begin(), trace.collectives.end(),
                                   [](const Collective& collective) { return collective.size() == 3; });
  EXPECT_EQ(whole, 2 * 4);  // steps 12 to 15
}

TEST(CollectiveMatching, GroupsOfTheSameRanksAreToldApartByName) {
  std::vector<RankSummary> ranks;
  for (std::uint32_t i = 0; i < 2; ++i) {
    // The two groups run at the same time, in another order on each rank.
    std::vector<CommEvent> events{event(CollectiveKind::kAllReduce, 0, 100, 8),
                                  event(CollectiveKind::kAllReduce, 1, 50, 8)};
    RankSummary summary = rank(i, std::move(events));
    summary.collectives[i].group = summary.names.intern("[0, 1] as 0");
    summary.collectives[1 - i].group = summary.names.intern("[0, 1] as 4");
    ranks.push_back(std::move(summary));
  }
  const Trace trace = assembled(std::move(ranks));
  EXPECT_EQ(trace.groups, (std::vector<std::string>{"[0, 1] as 0", "[0, 1] as 4"}));
  EXPECT_EQ(trace.collectives.size(), 2u);
}

TEST(CollectiveMatching, WhereEveryRankNamesTheGroupOtherwiseItsRanksTell) {
  std::vector<RankSummary> ranks;
  for (std::uint32_t i = 0; i < 2; ++i) {
    RankSummary summary = rank(i, {event(CollectiveKind::kAllReduce, 0, 100, 8)});
    summary.collectives[0].group = summary.names.intern("[0, 1] as " + std::to_string(10 + i));
    ranks.push_back(std::move(summary));
  }
  const Trace trace = assembled(std::move(ranks));
  ASSERT_EQ(trace.collectives.size(), 1u);
  EXPECT_EQ(trace.collectives[0].size(), 2u);
  EXPECT_EQ(trace.groups, std::vector<std::string>{"[0, 1]"});
}

TEST(CollectiveMatching, StaysBoundedWhereOneRankRecordedFarLess) {
  // 40,000 against 20,000 events without numbers: a full alignment would take 800 million cells.
  base::Rng rng(1);
  std::vector<CommEvent> all, half;
  for (std::int64_t i = 0; i < 40'000; ++i) {
    const CommEvent made = event(CollectiveKind::kAllReduce, i * 1'000'000 + rng.between(0, 700'000), 0, 8);
    all.push_back(made);
    all.back().end = made.begin + 100'000;
    if (i >= 10'000 && i < 30'000) half.push_back(all.back());
  }
  std::vector<RankSummary> ranks;
  ranks.push_back(rank(0, std::move(all)));
  ranks.push_back(rank(1, std::move(half)));
  const Trace trace = assembled(std::move(ranks));
  const auto both = std::count_if(trace.collectives.begin(), trace.collectives.end(),
                                  [](const Collective& c) { return c.size() == 2; });
  EXPECT_EQ(both, 20'000);
  for (const Collective& collective : trace.collectives) {
    if (collective.size() == 2) {
      ASSERT_EQ(trace.event(trace.members[collective.members_begin]).begin,
                trace.event(trace.members[collective.members_begin + 1]).begin);
    }
  }
}

TEST(CollectiveMatching, OfAnEmptyJobIsEmpty) {
  EXPECT_TRUE(assembled({}).collectives.empty());
  std::vector<RankSummary> ranks;
  ranks.push_back(rank(0, {}));
  EXPECT_TRUE(assembled(std::move(ranks)).collectives.empty());
}

}  // namespace
}  // namespace paceline::trace
