#include "paceline/replay/replay.h"

#include <benchmark/benchmark.h>

#include "paceline/base/rng.h"
#include "paceline/replay/evaluator.h"
#include "paceline/replay/random_graph.h"

namespace paceline::replay {
namespace {

using taskgraph::TaskGraph;

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
