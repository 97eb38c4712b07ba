#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>

#include "paceline/base/rng.h"
#include "paceline/trace/load.h"
#include "paceline/trace/understand/collectives.h"
#include "tests/support/synthetic_job.h"

namespace paceline::trace {
namespace {

using test_support::JobPlan;
using test_support::load_texts;
using test_support::make_job;

TEST(Clocks, ThatAgreeAreLeftAlone) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    JobPlan plan;
    plan.seed = seed;
    plan.end_noise = 7'000;  // what recordings of several processes on one host show
    const Trace trace = load_texts(make_job(plan).texts);
    for (const Clock& clock : trace.clocks) {
      EXPECT_EQ(clock.offset, 0);
      EXPECT_EQ(clock.drift, 0.0);
      EXPECT_FALSE(clock.applied);
      EXPECT_LE(clock.residual, 7'000);
    }
    EXPECT_EQ(trace.causality_violations, 0);
  }
}

TEST(Clocks, OffsetsUpToASecondAreRecoveredWithinTenMicroseconds) {
  base::Rng rng(5);
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    JobPlan plan;
    plan.seed = seed;
    plan.sequence = seed % 2 == 0;
    for (std::uint32_t rank = 0; rank < plan.ranks; ++rank) {
      plan.clock_offset.push_back(rng.between(-1'000'000'000, 1'000'000'000));
    }
    const Trace trace = load_texts(make_job(plan).texts);
    for (std::uint32_t rank = 1; rank < plan.ranks; ++rank) {
      const std::int64_t truth = plan.clock_offset[rank] - plan.clock_offset[0];
      EXPECT_NEAR(static_cast<double>(trace.clocks[rank].offset), static_cast<double>(truth), 10'000.0);
      EXPECT_TRUE(trace.clocks[rank].applied);
    }
    EXPECT_EQ(trace.causality_violations, 0);
    for (const Collective& collective : trace.collectives) {
      const Member& first = trace.members[collective.members_begin];
      for (std::uint32_t m = collective.members_begin; m < collective.members_end; ++m) {
        EXPECT_NEAR(static_cast<double>(trace.members[m].end - first.end), 0.0, 15'000.0);
      }
    }
  }
}

TEST(Clocks, DriftOfFiftyPartsPerMillionIsRecovered) {
  JobPlan plan;
  plan.steps = 200;  // about 2 s
  plan.ranks = 3;
  plan.clock_offset = {0, 20'000'000, -20'000'000};
  plan.clock_drift = {0, 50e-6, -50e-6};
  const Trace trace = load_texts(make_job(plan).texts);
  EXPECT_EQ(trace.clocks[0].drift, 0.0);
  EXPECT_NEAR(trace.clocks[1].drift, 50e-6, 1e-6);
  EXPECT_NEAR(trace.clocks[2].drift, -50e-6, 1e-6);
  for (const Clock& clock : trace.clocks) EXPECT_LE(clock.residual, 5'000);
  for (const Collective& collective : trace.collectives) {
    for (std::uint32_t m = collective.members_begin + 1; m < collective.members_end; ++m) {
      EXPECT_NEAR(static_cast<double>(trace.members[m].end - trace.members[collective.members_begin].end), 0.0,
                  10'000.0);
    }
  }
}

TEST(Clocks, AlignIsMonotoneUnderDrift) {
  Clock clock;
  clock.drift = 120e-6;
  clock.since = 1'000;
  std::int64_t before = clock.align(-5'000'000);
  for (std::int64_t time = -5'000'000; time < 5'000'000; time += 777) {
    EXPECT_GE(clock.align(time), before);
    before = clock.align(time);
  }
}

CommEvent all_reduce(std::int64_t begin, std::int64_t end, NameId group) {
  CommEvent event;
  event.kind = CollectiveKind::kAllReduce;
  event.begin = event.issued = begin;
  event.end = end;
  event.group = group;
  return event;
}

/// Ranks that meet only inside their group; rank r's clock is `offsets[r]` ahead.
Trace in_groups(const std::vector<std::string>& group_of, const std::vector<std::int64_t>& offsets) {
  std::vector<RankSummary> ranks(group_of.size());
  for (std::uint32_t r = 0; r < ranks.size(); ++r) {
    ranks[r].rank = r;
    if (group_of[r].empty()) continue;
    const NameId group = ranks[r].names.intern(group_of[r]);
    for (std::int64_t i = 0; i < 10; ++i) {
      ranks[r].collectives.push_back(
          all_reduce(offsets[r] + i * 1'000'000, offsets[r] + i * 1'000'000 + 90'000, group));
      ranks[r].collectives.back().name = group;
    }
  }
  return assemble(std::move(ranks));
}

TEST(Clocks, OfGroupsThatNeverMeetAreAlignedAmongThemselves) {
  const Trace trace = in_groups({"a", "a", "b", "b"}, {0, 5'000'000, 70'000'000, 71'000'000});
  EXPECT_EQ(trace.clocks[1].offset, 5'000'000);
  EXPECT_EQ(trace.clocks[2].offset, 0);  // nothing ties it to rank 0
  EXPECT_FALSE(trace.clocks[2].known);
  EXPECT_EQ(trace.clocks[3].offset, 1'000'000);
  EXPECT_TRUE(trace.clocks[3].known);
}

TEST(Clocks, AreAlignedEvenWhenTheFirstRankHasNoCollectives) {
  const Trace trace = in_groups({"", "a", "a"}, {0, 0, 3'000'000});
  EXPECT_EQ(trace.clocks[2].offset, 3'000'000);
}

TEST(Clocks, OfStagesThatOnlySendToOneAnotherAreTiedByTheirTransfers) {
  const std::vector<std::int64_t> offsets{0, 4'000'000, -9'000'000};
  std::vector<RankSummary> ranks(3);
  for (std::uint32_t r = 0; r < 3; ++r) {
    ranks[r].rank = r;
    for (std::int64_t i = 0; i < 10; ++i) {
      for (std::uint32_t low = r == 0 ? 0 : r - 1; low <= std::min(r, 1u); ++low) {  // with the neighbours
        const std::int64_t begin = offsets[r] + i * 1'000'000 + low * 300'000;
        CommEvent transfer = all_reduce(begin, begin + 90'000, ranks[r].names.intern("pair " + std::to_string(low)));
        transfer.kind = CollectiveKind::kSendRecv;
        ranks[r].collectives.push_back(transfer);
        ranks[r].collectives.back().name = transfer.group;
      }
    }
  }
  const Trace trace = assemble(std::move(ranks));
  EXPECT_EQ(trace.clocks[1].offset, offsets[1]);
  EXPECT_EQ(trace.clocks[2].offset, offsets[2]);
}

TEST(Clocks, ALeaveBeforeTheLastEntryIsAViolation) {
  std::vector<RankSummary> ranks(2);
  for (std::uint32_t r = 0; r < 2; ++r) {
    ranks[r].rank = r;
    const NameId name = ranks[r].names.intern("all_reduce");
    for (std::int64_t i = 0; i < 10; ++i) {
      // Ends agree but for the last, where rank 1 enters 1 ms after rank 0 left.
      const std::int64_t shift = r == 1 && i == 9 ? 1'090'000 : 0;
      ranks[r].collectives.push_back(
          all_reduce(i * 5'000'000 + shift, i * 5'000'000 + 90'000 + shift, base::kNone<NameId>));
      ranks[r].collectives.back().name = name;
    }
  }
  const Trace trace = assemble(std::move(ranks));
  EXPECT_EQ(trace.causality_violations, 1);
  EXPECT_EQ(trace.worst_violation, 1'000'000);
}

// The 8-rank DLRM recording: 8 V100 on one host, ends of its collectives within 7 us (PARAM's dlrm_kineto.tar.gz).
TEST(Clocks, ShiftsInjectedIntoTheDlrmJobAreRecoveredWithinTenMicroseconds) {
  const char* data = std::getenv("PACELINE_DATA");
  if (data == nullptr) GTEST_SKIP() << "SKIPPED: no data";
  const std::string file = std::string(data) + "/dpro/param/dlrm_kineto.tar.gz";
  Loaded job = load({file}, {false});
  ASSERT_EQ(job.ranks.size(), 8u);
  const std::vector<std::int64_t> shifts{0,      5'000'000, -5'000'000, 1'000'000'000, -1'000'000'000,
                                         40'000, 0,         333'333'333};
  std::vector<RankSummary> ranks;
  for (std::size_t r = 0; r < 8; ++r) {
    for (std::int64_t& start : job.ranks[r].slices.start) start += shifts[r];
    ranks.push_back(reduce(std::move(job.ranks[r])));
  }
  const Trace trace = assemble(std::move(ranks));
  for (std::size_t r = 0; r < 8; ++r) {
    EXPECT_NEAR(static_cast<double>(trace.clocks[r].offset), static_cast<double>(shifts[r]), 10'000.0) << "rank " << r;
  }
  EXPECT_EQ(trace.causality_violations, 0);
  EXPECT_EQ(trace.collectives.size(), 8u);
}

}  // namespace
}  // namespace paceline::trace
