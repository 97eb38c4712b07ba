// A full slot of the learned policy with 180 jobs on 500 nodes (bound: 50 ms p99), and one inference (bound: 50 us).
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>

#include "paceline/base/rng.h"
#include "paceline/base/statistics.h"
#include "paceline/schedule/learned.h"

namespace paceline::schedule {
namespace {

PsSpeedTable speeds() {
  std::vector<PsSpeed::Sample> samples;
  for (int servers = 1; servers <= 16; servers += 3)
    for (int workers = 1; workers <= 16; workers += 3)
      samples.push_back({servers * 1.0, workers * 1.0, 10.0 * std::min(servers, workers) / (1 + 0.05 * workers)});
  std::map<std::string, PsSpeed> models;
  models.emplace("model", PsSpeed(samples));
  return PsSpeedTable(models, 16);
}

void full_slot(benchmark::State& state) {
  const PsSpeedTable table = speeds();
  PsTrace trace{"bench", {}, {}};
  base::Rng rng(1);
  for (int i = 0; i < 180; ++i)
    trace.jobs.push_back({i + 1, 0, 1, "model", 1e6 * (1 + rng.uniform()), 100, {2, 4}, {2, 0}, 0});
  SlottedOptions options;
  options.nodes = 500;
  SlottedCluster cluster(trace, table, options);
  const auto policy = make_ps_learned(initial_step_network(0.25, 16, 1));
  std::vector<double> times;
  for ([[maybe_unused]] auto _ : state) {
    if (!cluster.begin_slot()) cluster = SlottedCluster(trace, table, options), cluster.begin_slot();
    const auto begin = std::chrono::steady_clock::now();
    policy->allocate(cluster);
    times.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    state.PauseTiming();
    cluster.finish_slot();
    state.ResumeTiming();
  }
  state.counters["p99_ms"] = 1e3 * base::quantile(times, 0.99);
  state.counters["of_bound"] = base::quantile(times, 0.99) / 0.050;
}
BENCHMARK(full_slot)->Iterations(300)->Unit(benchmark::kMillisecond);

void one_inference(benchmark::State& state) {
  const Network network = initial_step_network(0.25, 16, 1);
  const StepFeatures features{};
  std::vector<float> scratch;
  float output = 0;
  for ([[maybe_unused]] auto _ : state) {
    network.run(features, {&output, 1}, scratch);
    benchmark::DoNotOptimize(output);
  }
}
BENCHMARK(one_inference);

}  // namespace
}  // namespace paceline::schedule
