#include "paceline/schedule/rigid.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "paceline/base/rng.h"

namespace paceline::schedule {
namespace {

using base::Nanos;

Nanos seconds(std::int64_t s) {
  return Nanos(s * 1'000'000'000);
}

JobRequest job(std::string name, std::int64_t submit, int gpus, std::int64_t duration, std::int64_t limit = 0) {
  JobRequest request;
  request.name = std::move(name);
  request.submit = seconds(submit);
  request.gpus = gpus;
  request.duration = seconds(duration);
  request.limit = seconds(limit);
  request.line = 1;
  return request;
}

// Users report: "one unschedulable job blocks the following ones" (volcano#1086).
TEST(RigidSimulator, TheHeadBlocksOnlyUnderFifo) {
  const Workload workload{"w", {job("a", 0, 6, 100), job("big", 1, 8, 10), job("small", 2, 2, 50)}, {}};
  const RigidOptions options{{1, 8}};
  EXPECT_EQ(simulate_rigid(workload, QueueRule::kFifo, options).runs[2].start, seconds(110));
  EXPECT_EQ(simulate_rigid(workload, QueueRule::kBackfill, options).runs[2].start, seconds(2));
  EXPECT_EQ(simulate_rigid(workload, QueueRule::kBackfill, options).runs[1].start, seconds(100));
}

// "Gang enqueue ignores fragmentation: the sum fits, no node does" (volcano#665).
TEST(RigidSimulator, AGangWaitsForOneNodeWhenTheSumIsFragmented) {
  const Workload workload{"w", {job("a", 0, 5, 100), job("b", 0, 5, 200), job("c", 1, 6, 10)}, {}};
  const RigidResult result = simulate_rigid(workload, QueueRule::kFirstFit, {{2, 8}});
  EXPECT_EQ(result.runs[2].start, seconds(100));
}

// A backfilled job that ends before the head's reservation may use its GPUs, a longer one may not.
TEST(RigidSimulator, BackfillNeverDelaysTheHead) {
  const Workload workload{
      "w", {job("a", 0, 6, 100), job("head", 1, 8, 10), job("long", 2, 2, 200), job("short", 3, 2, 90)}, {}};
  const RigidResult result = simulate_rigid(workload, QueueRule::kBackfill, {{1, 8}});
  EXPECT_EQ(result.runs[1].start, seconds(100));
  EXPECT_EQ(result.runs[3].start, seconds(3));
  EXPECT_EQ(result.runs[2].start, seconds(110));
  EXPECT_TRUE(result.runs[3].backfilled);
}

TEST(RigidSimulator, NamesTheJobThatIsLargerThanTheClusterAndRunsTheRest) {
  Workload workload{"trace.csv", {job("huge", 0, 17, 10), job("ok", 0, 1, 10)}, {}};
  workload.jobs[0].line = 42;
  const RigidResult result = simulate_rigid(workload, QueueRule::kFifo, {{2, 8}});
  ASSERT_EQ(result.problems.size(), 1u);
  EXPECT_EQ(result.problems[0].where, "trace.csv:42");
  EXPECT_EQ(result.runs[1].end, seconds(10));
}

TEST(RigidSimulator, RandomClustersAreNeverOversubscribedAndLoseNoJob) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    base::Rng rng(seed);
    const RigidOptions options{{static_cast<int>(rng.between(1, 5)), static_cast<int>(rng.between(1, 8))}};
    Workload workload{"random", {}, {}};
    std::int64_t now = 0;
    for (int i = 0; i < 60; ++i) {
      now += rng.between(0, 30);
      const std::int64_t duration = rng.between(0, 300);
      workload.jobs.push_back(job("j", now, static_cast<int>(rng.between(1, options.cluster.gpus())), duration,
                                  duration + rng.between(1, 300)));
    }
    for (const QueueRule rule : {QueueRule::kFifo, QueueRule::kFirstFit, QueueRule::kBackfill,
                                 QueueRule::kShortestFirst, QueueRule::kFairShare}) {
      const RigidResult result = simulate_rigid(workload, rule, options);
      std::map<std::int64_t, int> change;
      for (std::size_t i = 0; i < workload.jobs.size(); ++i) {
        const RigidRun& run = result.runs[i];
        ASSERT_GE(run.start, workload.jobs[i].submit);
        ASSERT_EQ(run.end - run.start, workload.jobs[i].duration);
        if (run.end == run.start) continue;
        change[run.start.count()] += workload.jobs[i].gpus;
        change[run.end.count()] -= workload.jobs[i].gpus;
        // The bound on starvation: what EASY promised the head of the queue is kept.
        if (rule == QueueRule::kBackfill && run.reserved.count() >= 0) {
          ASSERT_LE(run.start, run.reserved) << seed << " job " << i;
        }
      }
      int used = 0;
      for (const auto& [time, delta] : change) ASSERT_LE(used += delta, options.cluster.gpus());
    }
  }
}

}  // namespace
}  // namespace paceline::schedule
