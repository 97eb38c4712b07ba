#include "paceline/replay/replay.h"

#include <benchmark/benchmark.h>

#include "paceline/base/rng.h"
#include "paceline/replay/evaluator.h"

namespace paceline::replay {
namespace {

using namespace taskgraph;

/// A data-parallel job of 8 ranks, each a host that launches kernels on a compute stream and buckets on a second one:
/// like a trace of df_index_resolver (216,000 events) eight times.
TaskGraph large_graph(std::uint32_t tasks) {
  Builder builder;
  base::Rng rng(1);
  constexpr std::uint32_t kRanks = 8;
  std::vector<LaneId> host, compute, communication;
  for (std::uint32_t r = 0; r < kRanks; ++r) {
    host.push_back(builder.add_lane({.rank = r}));
    compute.push_back(builder.add_lane({.rank = r, .device = true}));
    communication.push_back(builder.add_lane({.rank = r, .device = true}));
  }
  std::vector<TaskId> kernel(kRanks);
  while (builder.size() < tasks) {
    for (int k = 0; k < 40; ++k) {
      for (std::uint32_t r = 0; r < kRanks; ++r) {
        const TaskId launch = builder.add_task({.duration = rng.between(2'000, 9'000), .lane = host[r]});
        const TaskId delay = builder.add_task({.duration = 5'000});
        kernel[r] = builder.add_task({.duration = rng.between(2'000, 20'000), .lane = compute[r]});
        builder.add_edge(launch, delay), builder.add_edge(delay, kernel[r]);
      }
    }
    const CollectiveId collective = builder.add_collective({.transfer = 100'000});
    for (std::uint32_t r = 0; r < kRanks; ++r) {
      const TaskId member = builder.add_task({.lane = communication[r]});
      builder.add_edge(kernel[r], member);
      builder.add_member(collective, member);
    }
  }
  return std::move(builder).build();
}

void whole(benchmark::State& state) {
  const TaskGraph graph = large_graph(1'700'000);
  for (auto _ : state) benchmark::DoNotOptimize(replay(graph).makespan);
  state.counters["tasks/s"] = benchmark::Counter(graph.size(), benchmark::Counter::kIsIterationInvariantRate);
}
BENCHMARK(whole)->Unit(benchmark::kMillisecond);

void eight_variants(benchmark::State& state) {
  const TaskGraph graph = large_graph(1'700'000);
  const Variants variants = Variants::of(graph, 8);
  VariantEnds ends;
  for (auto _ : state) {
    replay_variants(graph, variants, ends);
    benchmark::DoNotOptimize(ends.makespan[0]);
  }
}
BENCHMARK(eight_variants)->Unit(benchmark::kMillisecond);

void by_events(benchmark::State& state) {
  const TaskGraph graph = large_graph(1'700'000);
  for (auto _ : state) benchmark::DoNotOptimize(replay_by_events(graph).makespan);
  state.counters["tasks/s"] = benchmark::Counter(graph.size(), benchmark::Counter::kIsIterationInvariantRate);
}
BENCHMARK(by_events)->Unit(benchmark::kMillisecond);

/// One kernel 10 % shorter.
void edit(benchmark::State& state) {
  const TaskGraph graph = large_graph(static_cast<std::uint32_t>(state.range(0)));
  Evaluator evaluator(graph);
  base::Rng rng(2);
  std::size_t reached = 0;
  for (auto _ : state) {
    const auto task = static_cast<TaskId>(rng.below(graph.size()));
    Delta delta;
    delta.durations.emplace_back(task, graph.duration(task) * 9 / 10);
    benchmark::DoNotOptimize(evaluator.makespan(delta));
    reached += evaluator.reached();
  }
  state.counters["reached"] = benchmark::Counter(static_cast<double>(reached), benchmark::Counter::kAvgIterations);
}
BENCHMARK(edit)->Arg(100'000)->Arg(1'700'000)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace paceline::replay
