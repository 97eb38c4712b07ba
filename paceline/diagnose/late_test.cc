#include "paceline/diagnose/late.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/support/synthetic_job.h"

namespace paceline::diagnose {
namespace {

using test_support::JobPlan;
using test_support::Lateness;
using test_support::load_texts;
using test_support::make_job;

Diagnosis diagnosed(const JobPlan& plan) {
  return diagnose(load_texts(make_job(plan).texts));
}

TEST(LateRank, NobodyIsBlamedInCleanRandomJobs) {
  int blamed = 0;
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    JobPlan plan;
    plan.seed = seed;
    plan.ranks = static_cast<std::uint32_t>(2 + seed % 7);
    plan.jitter = 400'000;  // a fifth of the work: waiting that costs, but nobody's fault
    blamed += diagnosed(plan).late_rank() >= 0 ? 1 : 0;
  }
  EXPECT_LE(blamed, 1);
}

TEST(LateRank, IsFoundWithItsCauseInEveryInjectedJob) {
  struct Injected {
    Lateness lateness;
    const char* cause;
    const char* kind;
  };
  for (const Injected& injected : {Injected{Lateness::kHostOperator, "load_batch", "host_op"},
                                   Injected{Lateness::kHostGap, "host in no operator", "host_gap"},
                                   Injected{Lateness::kKernel, "load_batch", "compute"}}) {
    for (std::uint64_t seed = 1; seed <= 40; ++seed) {
      JobPlan plan;
      plan.seed = seed;
      plan.ranks = static_cast<std::uint32_t>(2 + seed % 7);
      plan.late_rank = static_cast<std::int32_t>(seed % plan.ranks);
      plan.late_by = 2'000'000;
      plan.lateness = injected.lateness;
      plan.device = injected.lateness == Lateness::kKernel || seed % 2 == 0;
      if (seed % 3 == 0) plan.clock_offset = {0, 50'000'000, -3'000'000};
      const Diagnosis diagnosis = diagnosed(plan);
      SCOPED_TRACE(testing::Message() << injected.kind << " seed " << seed);
      ASSERT_EQ(diagnosis.late_rank(), plan.late_rank);
      ASSERT_FALSE(diagnosis.causes.empty());
      EXPECT_NE(diagnosis.causes[0].what.find(injected.cause), std::string::npos) << diagnosis.causes[0].what;
      // Without a device the operators are the computation.
      const bool computes = !plan.device && injected.lateness == Lateness::kHostOperator;
      EXPECT_EQ(diagnosis.causes[0].kind, computes ? "compute" : injected.kind);
      EXPECT_NEAR(static_cast<double>(diagnosis.causes[0].per_step), 2e6, 0.3e6);
      // The others waited for it alone about as long as it was late.
      const std::int64_t cost = diagnosis.ranks[static_cast<std::size_t>(plan.late_rank)].blame / plan.steps;
      EXPECT_NEAR(static_cast<double>(cost), 2e6, 0.4e6);
    }
  }
}

TEST(LateRank, IsFoundWhenItIsLateForOneCollectiveOutOfManyInEachStep) {
  JobPlan plan;
  plan.collectives = 25;  // buckets
  plan.late_rank = 3;
  plan.late_by = 5'000'000;
  plan.work = 200'000;
  const Diagnosis diagnosis = diagnosed(plan);
  EXPECT_EQ(diagnosis.late_rank(), 3);
}

TEST(LateRank, WhoseStepBeginsLateIsSaidToStartLate) {
  JobPlan plan;
  plan.steps = 1;
  plan.collectives = 8;
  plan.late_rank = 5;
  plan.lateness = Lateness::kLateStart;
  plan.late_by = 7'000'000;
  plan.late_each = 400'000;
  const Diagnosis diagnosis = diagnosed(plan);
  EXPECT_EQ(diagnosis.late_rank(), 5);
  ASSERT_FALSE(diagnosis.causes.empty());
  EXPECT_EQ(diagnosis.causes[0].kind, "late_start");
  EXPECT_NEAR(static_cast<double>(diagnosis.causes[0].per_step), 7e6, 0.2e6);
}

TEST(LateRank, IsFoundInsideItsOwnGroup) {
  JobPlan plan;
  plan.groups = true;
  plan.late_rank = 6;
  plan.late_by = 4'000'000;
  plan.late_each = 500'000;
  EXPECT_EQ(diagnosed(plan).late_rank(), 6);
}

TEST(LateRank, IsFoundThoughATraceIsMissingAndOneRankSkippedACollective) {
  JobPlan plan;
  plan.late_rank = 2;
  plan.late_by = 4'000'000;
  plan.missing_rank = 0;
  plan.skipped = {4, 7};
  plan.sequence = false;
  const Diagnosis diagnosis = diagnosed(plan);
  EXPECT_EQ(diagnosis.late_rank(), 2);
  EXPECT_EQ(diagnosis.ranks.size(), 7u);
  EXPECT_EQ(diagnosis.world_size, 8u);
}

TEST(LateRank, BelowOnePercentOfAStepIsNotWorthAName) {
  JobPlan plan;
  plan.jitter = 2'000;
  plan.late_rank = 1;
  plan.late_by = 30'000;  // of steps of about 9 ms
  EXPECT_EQ(diagnosed(plan).late_rank(), -1);
}

TEST(LateRank, CostsNoMoreThanTheOthersWait) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    JobPlan plan;
    plan.seed = seed;
    plan.jitter = 500'000;
    plan.late_rank = 1;
    plan.late_by = 3'000'000;
    const Diagnosis diagnosis = diagnosed(plan);
    std::int64_t most = 0;
    for (const RankDiagnosis& rank : diagnosis.ranks) most = std::max(most, rank.mean.exposed_wait);
    for (const RankDiagnosis& rank : diagnosis.ranks) EXPECT_LE(rank.blame / plan.steps, most);
  }
}

/// Two collectives of rank 0 wait for rank 1 at the same time, as gloo's two threads do.
TEST(LateRank, CollectivesItHoldsUpAtTheSameTimeCountOnce) {
  std::vector<trace::RankSummary> ranks(2);
  for (std::uint32_t r = 0; r < 2; ++r) {
    ranks[r].rank = r;
    const auto name = ranks[r].names.intern("gloo:all_reduce");
    for (std::int64_t step = 0; step < 8; ++step) {
      trace::StepSummary part;
      part.begin = step * 10'000'000;
      part.end = part.begin + 10'000'000;
      part.communication = r == 1 ? 300'000 : 5'300'000;  // of both collectives together
      part.compute = 10'000'000 - part.communication;
      ranks[r].steps.push_back(part);
      for (std::int64_t c = 0; c < 2; ++c) {
        trace::CommEvent event;
        event.kind = trace::CollectiveKind::kAllReduce;
        event.name = name;
        event.begin = event.issued = part.begin + 1'000'000 + c * 100'000 + (r == 1 ? 5'000'000 : 0);
        event.end = part.begin + 6'200'000 + c * 100'000;
        ranks[r].collectives.push_back(event);
      }
    }
  }
  const Diagnosis diagnosis = diagnose(trace::assemble(std::move(ranks)));
  EXPECT_EQ(diagnosis.late_rank(), 1);
  EXPECT_EQ(diagnosis.ranks[1].blame / 8, 5'100'000);  // from 1.0 to 6.1 ms of each step, not 5 + 5
}

TEST(LateRank, AloneInTheWorldIsNobodysFault) {
  JobPlan plan;
  plan.ranks = 1;
  const Diagnosis diagnosis = diagnosed(plan);
  EXPECT_EQ(diagnosis.late_rank(), -1);
  EXPECT_EQ(diagnosis.ranks[0].times_last, 0u);
}

// Truth: PARAM's dlrm_kineto.tar.gz; the last arriver is the rank with the largest start, of 8 collectives: rank 7 5,
// rank 5 2, rank 4 1. A rule "longest in communication" would blame rank 1.
TEST(LateRank, OfTheDlrmJobIsRankSeven) {
  const char* data = std::getenv("PACELINE_DATA");
  if (data == nullptr) GTEST_SKIP() << "SKIPPED: no data";
  const trace::Trace job = trace::load_job({std::string(data) + "/dpro/param/dlrm_kineto.tar.gz"}, {{}, false});
  const Diagnosis diagnosis = diagnose(job);
  EXPECT_EQ(diagnosis.late_rank(), 7);
  std::vector<std::uint32_t> last;
  std::vector<std::int64_t> wait;
  for (const RankDiagnosis& rank : diagnosis.ranks) {
    last.push_back(rank.times_last);
    wait.push_back(rank.wait / 1000);
  }
  EXPECT_EQ(last, (std::vector<std::uint32_t>{0, 0, 0, 0, 1, 2, 0, 5}));
  EXPECT_EQ(wait, (std::vector<std::int64_t>{5581, 11119, 3275, 9557, 6370, 6034, 3341, 1529}));
  std::int64_t transfer = 0;
  std::vector<std::int64_t> start_spread, end_spread;
  for (const CollectiveRow& row : diagnosis.collectives) {
    transfer += row.transfer;
    start_spread.push_back(row.start_spread / 1000);
    end_spread.push_back(row.end_spread / 1000);
  }
  EXPECT_EQ(transfer, 217'000);
  EXPECT_EQ(start_spread, (std::vector<std::int64_t>{7624, 1101, 168, 125, 223, 534, 584, 885}));
  EXPECT_EQ(end_spread, (std::vector<std::int64_t>{2, 2, 1, 2, 5, 3, 5, 7}));
}

// Truth: recorded with a sleep of 20 ms on rank 1 in every step; the sleep is in no operator.
TEST(LateRank, OfARecordedStragglerIsFoundWithItsSleep) {
  const char* data = std::getenv("PACELINE_DATA");
  if (data == nullptr) GTEST_SKIP() << "SKIPPED: no data";
  const Diagnosis diagnosis =
      diagnose(trace::load_job({std::string(data) + "/dpro/recorded/mlp_w2_b1_straggler1_20ms"}, {{}, false}));
  EXPECT_EQ(diagnosis.late_rank(), 1);
  ASSERT_FALSE(diagnosis.causes.empty());
  EXPECT_EQ(diagnosis.causes[0].kind, "host_gap");
  EXPECT_NEAR(static_cast<double>(diagnosis.causes[0].per_step), 20e6, 10e6);  // a loaded machine
}

}  // namespace
}  // namespace paceline::diagnose
