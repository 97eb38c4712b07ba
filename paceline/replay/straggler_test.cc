#include "paceline/replay/straggler.h"

#include <gtest/gtest.h>

#include "paceline/base/error.h"
#include "paceline/base/rng.h"
#include "paceline/base/test_files.h"
#include "paceline/replay/replay.h"
#include "paceline/replay/roles.h"
#include "tests/support/pipeline_job.h"
#include "tests/support/synthetic_job.h"

namespace paceline::replay {
namespace {

using test_support::PipelineJob;
using test_support::PipelineOperation;

/// Workers of one task each that meet at the end of every step.
struct Race {
  taskgraph::Builder builder;
  Roles roles;
  TaskId barrier = base::kNone<TaskId>;

  explicit Race(std::size_t workers) {
    Dimension one{.name = "rank", .places = {}, .place_of = {}};
    for (std::uint32_t worker = 0; worker < workers; ++worker) {
      roles.workers.push_back("rank " + std::to_string(worker));
      one.places.push_back(std::to_string(worker));
      one.place_of.push_back(worker);
    }
    roles.dimensions.push_back(one);
    roles.groups = {"work"};
  }
  TaskId add(std::int64_t duration, std::uint32_t worker, std::uint32_t task_class) {
    const TaskId task = builder.add_task({.duration = duration});
    roles.worker_of.push_back(worker);
    roles.class_of.push_back(task_class);
    if (barrier != base::kNone<TaskId>) builder.add_edge(barrier, task);
    return task;
  }
  void step(const std::vector<std::int64_t>& durations) {
    std::vector<TaskId> tasks;
    for (std::uint32_t worker = 0; worker < durations.size(); ++worker)
      tasks.push_back(add(durations[worker], worker, 0));
    const Span span{barrier, builder.add_task({})};
    roles.worker_of.push_back(kNobody);
    roles.class_of.push_back(kNobody);
    for (const TaskId task : tasks) builder.add_edge(task, span.end);
    barrier = span.end;
    roles.steps.push_back({static_cast<std::int64_t>(roles.steps.size()), {span}});
  }
  Stragglers find() { return find_stragglers(std::move(builder).build(), roles); }
};

TEST(Stragglers, ComputationIsComparedWithItsMean) {
  Race race(4);
  race.roles.classes = {{.ideal = Ideal::kMean}};
  race.step({100, 100, 100, 180});
  const Stragglers found = race.find();
  EXPECT_EQ(found.without_delays, 180);
  EXPECT_EQ(found.ideal, 120);  // (3 * 100 + 180) / 4
  EXPECT_DOUBLE_EQ(found.slowdown, 1.5);
  EXPECT_DOUBLE_EQ(found.groups[0].factor, 1.5);
  const auto& ranks = found.dimensions[0].second;
  EXPECT_DOUBLE_EQ(ranks[0].factor, 1.0);  // the others still need the ideal 120
  EXPECT_DOUBLE_EQ(ranks[3].factor, 1.5);
  EXPECT_EQ(found.workers[3].repair, 60);
  EXPECT_EQ(found.workers[0].repair, 0);
  EXPECT_EQ(found.worst, std::vector<std::uint32_t>{3});
  EXPECT_DOUBLE_EQ(*found.worst_share, 1.0);
  EXPECT_FALSE(found.last_share);
}

TEST(Stragglers, CommunicationIsComparedWithItsMedian) {
  Race race(4);
  race.roles.classes = {{.ideal = Ideal::kMedian}};
  race.step({100, 100, 110, 1000});
  EXPECT_EQ(race.find().ideal, 105);
}

TEST(Stragglers, WhatAWorkerDoesNotDoCountsAsNoTime) {
  Race race(3);
  race.roles.classes = {{.ideal = Ideal::kMedian, .absent = 2}, {.ideal = Ideal::kMean}};
  race.step({50, 50, 50});
  race.roles.class_of[0] = race.roles.class_of[1] = race.roles.class_of[2] = 1;
  race.roles.class_of[2] = 0;
  EXPECT_EQ(race.find().ideal, 50);
}

TEST(Stragglers, DelaysThatAreLeftOutStandInNeitherTime) {
  Race race(2);
  race.roles.classes = {{.ideal = Ideal::kMean}, {.ideal = Ideal::kNothing}};
  race.step({100, 100});
  race.barrier = base::kNone<TaskId>;
  race.builder.add_edge(race.add(30, 1, 1), TaskId{1});
  const Stragglers found = race.find();
  EXPECT_EQ(found.replayed, 130);
  EXPECT_EQ(found.without_delays, 100);
  EXPECT_EQ(found.ideal, 100);
  EXPECT_DOUBLE_EQ(found.slowdown, 1.0);
  EXPECT_FALSE(found.worst_share);
}

TEST(Stragglers, TheMeanStepCounts) {
  Race race(2);
  race.roles.classes = {{.ideal = Ideal::kMean}};
  race.step({100, 100});
  race.step({100, 300});
  const Stragglers found = race.find();
  EXPECT_EQ(found.ideal, 150);
  EXPECT_EQ(found.without_delays, 200);
  ASSERT_EQ(found.steps.size(), 2u);
  EXPECT_EQ(found.steps[0].without_delays, 100);
  EXPECT_EQ(found.steps[1].without_delays, 300);
}

TEST(Stragglers, WithoutAStepThereIsNothingToCompare) {
  Race race(2);
  race.roles.classes = {{.ideal = Ideal::kMean}};
  race.add(1, 0, 0);
  EXPECT_THROW(race.find(), Error);
}

TEST(Stragglers, MembersOfARendezvousKeepTheirOwnEnds) {
  // Two members need 200 and 300 behind the last begin; as ideals of two classes they still do.
  taskgraph::Builder builder;
  const auto meeting = builder.add_collective({.transfer = 200});
  builder.add_member(meeting, builder.add_task({.duration = 0, .kind = taskgraph::TaskKind::kCollective}));
  builder.add_member(meeting, builder.add_task({.duration = 100, .kind = taskgraph::TaskKind::kCollective}));
  Roles roles{.groups = {"send", "recv"},
              .classes = {{.ideal = Ideal::kMedian, .group = 0}, {.ideal = Ideal::kMedian, .group = 1}},
              .workers = {"a", "b"},
              .dimensions = {},
              .pipeline = {},
              .steps = {{0, {{base::kNone<TaskId>, TaskId{0}}, {base::kNone<TaskId>, TaskId{1}}}}},
              .worker_of = {0, 1},
              .class_of = {0, 1}};
  const Stragglers found = find_stragglers(std::move(builder).build(), roles);
  EXPECT_EQ(found.ideal, 250);  // mean of 200 and 300
  EXPECT_EQ(found.replayed, 250);
}

// ---------------------------------------------------------------- pipelined jobs

struct Loaded {
  trace::ndtimeline::Recording recording;
  trace::ndtimeline::PipelineGraph job;
};
Loaded load(const PipelineJob& job) {
  const std::string text = to_ndtimeline(job.operations());
  const auto source = base::memory_source(text);
  const std::string head = trace::read_head(*source);
  trace::Document document{"job.json", head, *source};
  Loaded loaded{trace::ndtimeline::read(document), {}};
  loaded.job = trace::ndtimeline::build_graph(loaded.recording);
  return loaded;
}
Stragglers stragglers_of(const PipelineJob& job) {
  const Loaded loaded = load(job);
  return find_stragglers(loaded.job.graph, roles_of(loaded.recording, loaded.job));
}

TEST(PipelineStragglers, TheGraphReplaysToTheRecordedStep) {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    base::Rng rng(seed);
    PipelineJob job;
    job.stages = static_cast<std::uint32_t>(rng.between(1, 4));
    job.dp_ranks = static_cast<std::uint32_t>(rng.between(1, 3));
    job.chunks = job.stages > 1 ? static_cast<std::uint32_t>(rng.between(1, 3)) : 1;
    job.micro_batches = job.stages * static_cast<std::uint32_t>(rng.between(1, 3));
    job.overlapped_reduction = rng.chance(0.5);
    job.idle_transfers = rng.chance(0.5);
    job.duration = [&](const PipelineOperation&) { return rng.between(0, 5000); };
    const Loaded loaded = load(job);
    const Timeline timeline = replay(loaded.job.graph);
    ASSERT_EQ(loaded.job.steps.size(), 2u);
    for (const auto& step : loaded.job.steps) {
      EXPECT_EQ(timeline.end[base::index(step.end)] - timeline.end[base::index(step.begin)], step.recorded);
    }
    EXPECT_EQ(loaded.job.unpaired, 0u);
  }
}

TEST(PipelineStragglers, AJobWhoseWorkersAreAlikeHasNone) {
  for (const std::uint32_t chunks : {1u, 2u}) {
    const Stragglers found = stragglers_of(PipelineJob{.chunks = chunks});
    EXPECT_DOUBLE_EQ(found.slowdown, 1.0);
    for (const WorkerEffect& worker : found.workers) {
      EXPECT_DOUBLE_EQ(worker.score, 1.0);
      EXPECT_EQ(worker.repair, 0);
    }
  }
}

TEST(PipelineStragglers, NamesTheSlowWorker) {
  PipelineJob job{.stages = 4, .dp_ranks = 3, .micro_batches = 8};
  job.duration = [](const PipelineOperation& operation) {
    const bool compute = operation.name.ends_with("-compute");
    const bool slow = operation.stage == 2 && operation.dp_rank == 1;
    return compute ? (slow ? 3000 : 1000) : 10;
  };
  const Stragglers found = stragglers_of(job);
  ASSERT_EQ(found.worst.size(), 1u);
  EXPECT_EQ(found.workers[found.worst[0]].name, "stage 2, dp rank 1");
  EXPECT_EQ(blame(found), Blame::kWorkers);
  EXPECT_GT(found.slowdown, 1.5);
  EXPECT_GT(*found.worst_share, 0.95);
  EXPECT_LT(*found.last_share, 0.1);
  for (const WorkerEffect& worker : found.workers) {
    EXPECT_LE(worker.repair, found.workers[found.worst[0]].repair) << worker.name;
    EXPECT_LE(worker.score, found.workers[found.worst[0]].score) << worker.name;
  }
}

TEST(PipelineStragglers, ASlowLastStageIsTheLastStagesShare) {
  PipelineJob job{.stages = 4, .dp_ranks = 2, .micro_batches = 8};
  job.duration = [](const PipelineOperation& operation) {
    return operation.name.ends_with("-compute") ? (operation.stage == 3 ? 2000 : 1000) : 10;
  };
  const Stragglers found = stragglers_of(job);
  EXPECT_EQ(blame(found), Blame::kLastStage);
  EXPECT_GT(*found.last_share, 0.9);
  EXPECT_LT(*found.worst_share, 0.5);  // one worker of the stage alone does not help
}

TEST(PipelineStragglers, TheSlowOperationHasTheSlowdown) {
  PipelineJob job{.stages = 2, .dp_ranks = 4, .micro_batches = 4};
  job.duration = [](const PipelineOperation& operation) {
    return operation.name == "grads-reduce-scatter" && operation.step == 1 ? 50000 : 1000;
  };
  job.steps = 5;
  for (const Slowdown& group : stragglers_of(job).groups) {
    if (group.name == "grads-reduce-scatter") {
      EXPECT_GT(group.factor, 1.1);
    } else {
      EXPECT_DOUBLE_EQ(group.factor, 1.0) << group.name;
    }
  }
}

// ---------------------------------------------------------------- profiler traces

Stragglers stragglers_of(const test_support::JobPlan& plan) {
  const base::test::TempFolder folder;
  const test_support::SyntheticJob made = make_job(plan);
  for (std::size_t rank = 0; rank < made.texts.size(); ++rank) {
    folder.write("rank" + std::to_string(rank) + ".json", made.texts[rank]);
  }
  const trace::LoadedGraph loaded = trace::load_graph({folder.path().string()});
  return find_stragglers(loaded.job.graph, roles_of(loaded.trace, loaded.job));
}

test_support::JobPlan quiet_job(std::uint32_t ranks) {
  test_support::JobPlan plan;
  plan.ranks = ranks;
  plan.jitter = plan.end_noise = 0;
  return plan;
}

TEST(RankStragglers, TheRepairOfTheLateRankWinsItsLateness) {
  for (const bool device : {true, false}) {
    for (const auto lateness : {test_support::Lateness::kHostOperator, test_support::Lateness::kHostGap}) {
      constexpr std::int64_t kLate = 5'000'000;
      test_support::JobPlan plan = quiet_job(4);
      plan.device = device;
      plan.late_rank = 2;
      plan.late_by = kLate;
      plan.lateness = lateness;
      const Stragglers found = stragglers_of(plan);
      const std::string what =
          "device " + std::to_string(device) + ", lateness " + std::to_string(static_cast<int>(lateness));
      EXPECT_NEAR(static_cast<double>(found.workers[2].repair), kLate, 0.02 * kLate) << what;
      EXPECT_EQ(blame(found), Blame::kWorkers) << what;
      EXPECT_EQ(found.worst, std::vector<std::uint32_t>{2}) << what;
      for (const std::size_t rank : {0u, 1u, 3u}) {
        EXPECT_NEAR(static_cast<double>(found.workers[rank].repair), 0, 0.02 * kLate) << what << ", rank " << rank;
      }
    }
  }
}

TEST(RankStragglers, RanksThatAreAlikeHaveNone) {
  const Stragglers found = stragglers_of(quiet_job(4));
  EXPECT_NEAR(found.slowdown, 1.0, 0.002);
  EXPECT_EQ(blame(found), Blame::kNoOne);
}

TEST(RankStragglers, OneRankHasNothingToBeComparedWith) {
  EXPECT_THROW(stragglers_of(quiet_job(1)), Error);
}

}  // namespace
}  // namespace paceline::replay
