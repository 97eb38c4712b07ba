#include "paceline/gnn/sampler.h"

#include <benchmark/benchmark.h>

#include "paceline/base/rng.h"
#include "paceline/gnn/generate.h"
#include "paceline/gnn/reference.h"

namespace paceline::gnn {
namespace {

const Graph& graph() {
  static const Graph made = kronecker(18, 16, 1);
  return made;
}

std::vector<std::uint32_t> some_seeds(std::size_t count) {
  base::Rng rng(7);
  std::vector<std::uint32_t> seeds;
  while (seeds.size() < count) {
    const auto v = static_cast<std::uint32_t>(rng.below(graph().rows()));
    if (graph().narrow_rows().degree(v) > 0) seeds.push_back(v);
  }
  return seeds;
}

template <class Draw>
void run(benchmark::State& state, const Draw& draw) {
  const auto batch = static_cast<std::size_t>(state.range(0));
  const std::vector<std::uint32_t> seeds = some_seeds(32 * batch);
  Sample<std::uint32_t> sample;
  std::size_t i = 0;
  std::int64_t edges = 0;
  for (auto _ : state) {
    draw(std::span(seeds).subspan(i % 32 * batch, batch), i, sample);
    ++i;
    edges += static_cast<std::int64_t>(sample.source.size());
  }
  state.counters["edges/s"] = benchmark::Counter(static_cast<double>(edges), benchmark::Counter::kIsRate);
  state.counters["edges"] = static_cast<double>(edges) / static_cast<double>(i);
}

void BM_FusedLoop(benchmark::State& state) {
  reference::FusedSampler sampler(graph().narrow_rows(), {15, 10, 5}, 1);
  run(state, [&](auto seeds, std::size_t, auto& sample) { sampler.sample(seeds, sample); });
}
void BM_Sampler(benchmark::State& state) {
  Sampler<std::uint32_t> sampler(graph().narrow_rows(), graph().columns(), {.fanout = {15, 10, 5}});
  run(state, [&](auto seeds, std::size_t i, auto& sample) { sampler.sample(seeds, {0, i}, sample); });
}
void BM_Labor(benchmark::State& state) {
  Sampler<std::uint32_t> sampler(graph().narrow_rows(), graph().columns(),
                                 {.fanout = {15, 10, 5}, .method = Method::kLabor});
  run(state, [&](auto seeds, std::size_t i, auto& sample) { sampler.sample(seeds, {0, i}, sample); });
}
BENCHMARK(BM_FusedLoop)->Arg(256)->Arg(1024);
BENCHMARK(BM_Sampler)->Arg(256)->Arg(1024);
BENCHMARK(BM_Labor)->Arg(1024);

}  // namespace
}  // namespace paceline::gnn
