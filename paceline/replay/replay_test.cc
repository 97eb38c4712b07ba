#include "paceline/replay/replay.h"

#include <gtest/gtest.h>

#include <numeric>

#include "paceline/base/error.h"
#include "paceline/base/rng.h"
#include "paceline/replay/critical_path.h"
#include "paceline/replay/evaluator.h"
#include "paceline/replay/random_graph.h"
#include "paceline/replay/reference.h"

namespace paceline::replay {
namespace {

using namespace taskgraph;
using base::kNone;
using base::Rng;

void expect_same(const Timeline& a, const Timeline& b, std::uint64_t seed) {
  ASSERT_EQ(a.start, b.start) << "seed " << seed;
  ASSERT_EQ(a.end, b.end) << "seed " << seed;
  ASSERT_EQ(a.transfer_start, b.transfer_start) << "seed " << seed;
  ASSERT_EQ(a.makespan, b.makespan) << "seed " << seed;
}

TEST(Replay, StartsATransferWhenTheLastMemberIsReady) {
  Builder builder;
  const LaneId a = builder.add_lane({.rank = 0}), b = builder.add_lane({.rank = 1});
  builder.add_task({.duration = 30, .lane = a});
  builder.add_task({.duration = 100, .lane = b});
  const CollectiveId collective = builder.add_collective({.transfer = 7});
  const TaskId first = builder.add_task({.lane = a}), late = builder.add_task({.lane = b});
  builder.add_member(collective, first), builder.add_member(collective, late);
  const TaskId next = builder.add_task({.duration = 5, .lane = a});
  const TaskGraph graph = std::move(builder).build();
  const Timeline timeline = replay(graph);
  EXPECT_EQ(timeline.start[index(first)], 30);  // holds its lane and waits
  EXPECT_EQ(timeline.transfer_start[0], 100);
  EXPECT_EQ(timeline.end[index(first)], 107);
  EXPECT_EQ(timeline.end[index(next)], 112);
  EXPECT_EQ(timeline.makespan, 112);
}

TEST(Replay, EnginesAgreeWithTheNaiveOneOnRandomGraphs) {
  int stuck = 0;
  for (std::uint64_t seed = 1; seed <= 20'000; ++seed) {
    Rng rng(seed);
    const TaskGraph graph = random_graph(rng, {.only_static = seed % 2 == 0});
    Timeline naive;
    try {
      naive = naive_replay(graph);
    } catch (const Error&) {  // lanes in order of readiness can let collectives wait for each other
      EXPECT_FALSE(graph.is_static());
      EXPECT_THROW(replay_by_events(graph), Error) << "seed " << seed;
      ++stuck;
      continue;
    }
    expect_same(replay_by_events(graph), naive, seed);
    if (graph.is_static()) expect_same(replay(graph), naive, seed);
  }
  EXPECT_LT(stuck, 5'000);
}

TEST(Replay, OfAnEditIsReplayOfTheEditedGraph) {
  int circles = 0;
  for (std::uint64_t seed = 1; seed <= 20'000; ++seed) {
    Rng rng(seed);
    const RandomGraphOptions options{.only_static = true, .shortest = static_cast<std::int64_t>(seed % 2)};
    const TaskGraph graph = random_graph(rng, options);
    const Delta delta = random_edit(rng, graph, options);
    Evaluator evaluator(graph);
    Timeline whole;
    try {
      whole = replay(apply(graph, delta));
    } catch (const Error&) {
      ++circles;
      if (options.shortest > 0) {
        EXPECT_THROW(evaluator.makespan(delta), Error) << "seed " << seed;
      }
      continue;
    }
    ASSERT_EQ(evaluator.makespan(delta), whole.makespan) << "seed " << seed;
    for (std::uint32_t t = 0; t < whole.end.size(); ++t) {
      ASSERT_EQ(evaluator.end(static_cast<TaskId>(t)), whole.end[t]) << "task " << t << " seed " << seed;
    }
    ASSERT_EQ(evaluator.makespan({}), evaluator.base().makespan) << "seed " << seed;
  }
  EXPECT_LT(circles, 10'000);
}

TEST(Replay, VariantsAreReplaysOfTheirOwn) {
  for (std::uint64_t seed = 1; seed <= 500; ++seed) {
    Rng rng(seed);
    const TaskGraph graph = random_graph(rng, {.only_static = true});
    VariantEnds ends;
    for (const std::size_t count : {1u, 2u, 4u, 8u}) {
      Variants variants = Variants::of(graph, count);
      for (auto& value : variants.durations) value = rng.between(0, 20);
      for (auto& value : variants.transfers) value = rng.between(0, 20);
      replay_variants(graph, variants, ends);
      for (std::size_t k = 0; k < count; ++k) {
        Delta delta;
        for (std::uint32_t t = 0; t < graph.size(); ++t) {
          delta.durations.emplace_back(static_cast<TaskId>(t), variants.durations[t * count + k]);
        }
        for (std::uint32_t c = 0; c < graph.collectives().size(); ++c) {
          delta.transfers.emplace_back(static_cast<CollectiveId>(c), variants.transfers[c * count + k]);
        }
        const Timeline alone = replay(graph, delta);
        ASSERT_EQ(ends.makespan[k], alone.makespan) << "seed " << seed;
        for (std::uint32_t t = 0; t < graph.size(); ++t)
          ASSERT_EQ(ends.end[t * count + k], alone.end[t]) << "seed " << seed;
      }
    }
  }
}

TEST(CriticalPath, StepsMeetAndAddUpToTheMakespan) {
  for (std::uint64_t seed = 1; seed <= 20'000; ++seed) {
    Rng rng(seed);
    const TaskGraph graph = random_graph(rng);
    Timeline timeline;
    try {
      timeline = replay(graph);
    } catch (const Error&) {
      continue;  // stuck
    }
    std::int64_t now = 0;
    for (const PathStep& step : critical_path(graph, timeline)) {
      ASSERT_EQ(step.begin, now) << "seed " << seed;
      now = step.end;
    }
    ASSERT_EQ(now, timeline.makespan) << "seed " << seed;
  }
}

TEST(Slack, IsHowMuchLongerATaskMayTake) {
  for (std::uint64_t seed = 1; seed <= 2'000; ++seed) {
    Rng rng(seed);
    const TaskGraph graph = random_graph(rng, {.only_static = true});
    const Timeline timeline = replay(graph);
    const std::vector<std::int64_t> spare = slack(graph, timeline);
    for (std::uint32_t t = 0; t < graph.size(); ++t) {
      const auto task = static_cast<TaskId>(t);
      const auto makespan_with = [&](std::int64_t more) {
        Delta delta;
        delta.durations.emplace_back(task, graph.duration(task) + more);
        return replay(graph, delta).makespan;
      };
      ASSERT_GE(spare[t], 0) << "seed " << seed;
      ASSERT_EQ(makespan_with(spare[t]), timeline.makespan) << "seed " << seed << " task " << t;
      ASSERT_EQ(makespan_with(spare[t] + 1), timeline.makespan + 1) << "seed " << seed << " task " << t;
    }
  }
}

TEST(Replay, AFairLinkIsSharedEqually) {
  Builder builder;
  const ResourceId link = builder.add_resource({"nic", Service::kFair});
  const TaskId alone = builder.add_task({.duration = 100, .resource = link});
  const TaskId start = builder.add_task({.duration = 40});
  const TaskId second = builder.add_task({.duration = 10, .resource = link});
  builder.add_edge(start, second);
  const TaskGraph graph = std::move(builder).build();
  const Timeline timeline = replay(graph);
  EXPECT_EQ(timeline.end[index(second)], 60);  // 10 ns of work at half speed from 40 on
  EXPECT_EQ(timeline.end[index(alone)], 110);
}

}  // namespace
}  // namespace paceline::replay
