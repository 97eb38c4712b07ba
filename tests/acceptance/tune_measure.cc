// tune_measure fusion COUNT | latency | candidates      one JSON object each
#include <fmt/core.h>

#include <cstdlib>
#include <ctime>
#include <nlohmann/json.hpp>

#include "paceline/base/rng.h"
#include "paceline/replay/evaluator.h"
#include "paceline/tune/buckets.h"
#include "paceline/tune/fusion.h"
#include "paceline/tune/reference.h"

namespace {

using namespace paceline;
using namespace paceline::tune;
using Json = nlohmann::ordered_json;

double cpu_seconds() {
  return static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
}

Backward random_backward(base::Rng& rng, std::size_t n) {
  Backward backward;
  for (std::size_t i = 0; i < n; ++i) {
    backward.compute.push_back(rng.between(1'000, 50'000));
    backward.bytes.push_back(rng.chance(0.2) ? 0 : rng.between(1, 400'000));
    if (i + 1 < n) backward.saving.push_back(rng.chance(0.2) ? Backward::kNever : rng.between(0, 8'000));
  }
  return backward;
}

SyncCost random_cost(base::Rng& rng) {
  SyncCost cost;
  cost.stages.clear();
  for (std::uint64_t s = 1 + rng.below(3); s-- > 0;) {
    cost.stages.push_back(
        {static_cast<double>(rng.between(1, 60'000)), static_cast<double>(rng.between(1, 200)) / 1000});
  }
  return cost;
}

Json fusion(std::uint64_t count) {
  std::uint64_t equal = 0, not_worse = 0;
  std::size_t few = 0, many = 0;
  for (std::uint64_t seed = 1; seed <= count; ++seed) {
    base::Rng rng(seed);
    const Backward backward = random_backward(rng, 2 + rng.below(9));
    const SyncCost cost = random_cost(rng);
    std::size_t pruned = 0;
    const FusionPlan plan = best_fusion(backward, cost, {}, &pruned);
    const BruteForce brute = brute_force(backward, cost, true);
    equal += plan.makespan == brute.makespan;
    not_worse += plan.makespan <= brute.makespan;
    few += pruned, many += brute.evaluations;
  }
  return {{"instances", count},
          {"equal", equal},
          {"not_worse", not_worse},
          {"fewer", static_cast<double>(many) / static_cast<double>(few)}};
}

/// Hundreds of small tensors over a link whose latency is most of what one of them takes.
Backward latency_bound(base::Rng& rng, std::size_t tensors) {
  Backward backward;
  for (std::size_t i = 0; i < tensors; ++i) {
    backward.compute.push_back(rng.between(5'000, 40'000));
    backward.bytes.push_back(rng.between(256, 65'536));
    if (i + 1 < tensors) backward.saving.push_back(Backward::kNever);
  }
  return backward;
}

Json latency() {
  const SyncCost slow_link{{{150'000, 0.8}}};  // 150 us and 10 Gbit/s
  double gap = 0;
  constexpr int kSmall = 50;
  for (std::uint64_t seed = 1; seed <= kSmall; ++seed) {
    base::Rng rng(seed);
    const Backward small = latency_bound(rng, 10);
    const double plain = static_cast<double>(no_fusion(small, slow_link).makespan);
    const double found = plain - static_cast<double>(best_fusion(small, slow_link).makespan);
    const double most = plain - static_cast<double>(brute_force(small, slow_link, false).makespan);
    gap = std::max(gap, most > 0 ? 100 * (most - found) / most : 0);
  }
  base::Rng rng(7);
  const Backward large = latency_bound(rng, 400);
  return {{"small", kSmall},
          {"small_gap_percent", gap},
          {"large_tensors", large.size()},
          {"large_speedup", static_cast<double>(no_fusion(large, slow_link).makespan) /
                                static_cast<double>(best_fusion(large, slow_link).makespan)}};
}

/// One step of 8 data-parallel ranks: forward and backward on a stream, 50 buckets on another, an optimizer that waits.
Json candidates() {
  using namespace taskgraph;
  Builder builder;
  base::Rng rng(3);
  constexpr std::uint32_t kRanks = 8, kKernels = 6'000, kBuckets = 50;
  std::vector<CollectiveId> buckets;
  for (std::uint32_t b = 0; b < kBuckets; ++b)
    buckets.push_back(builder.add_collective({.bytes = 1 << 20, .transfer = 400'000}));
  std::vector<TaskId> kernels;
  std::vector<std::vector<TaskId>> members(kBuckets);
  for (std::uint32_t r = 0; r < kRanks; ++r) {
    const LaneId host = builder.add_lane({.rank = r}), stream = builder.add_lane({.rank = r, .device = true}),
                 reduce = builder.add_lane({.rank = r, .device = true});
    std::vector<TaskId> sent;
    for (std::uint32_t k = 0; k < kKernels; ++k) {
      const TaskId launch = builder.add_task({.duration = rng.between(2'000, 6'000), .lane = host});
      const TaskId kernel = builder.add_task({.duration = rng.between(4'000, 20'000), .lane = stream});
      builder.add_edge(launch, kernel);
      kernels.push_back(kernel);
      if ((k + 1) % (kKernels / kBuckets) != 0) continue;
      const std::uint32_t b = k / (kKernels / kBuckets);
      const TaskId member = builder.add_task({.lane = reduce});
      builder.add_edge(kernel, member);
      builder.add_member(buckets[b], member);
      sent.push_back(member);
      members[b].push_back(member);
    }
    const TaskId optimizer = builder.add_task({.duration = 100'000, .lane = stream});
    for (const TaskId member : sent) builder.add_edge(member, optimizer);
  }
  const TaskGraph graph = std::move(builder).build();
  replay::Evaluator evaluator(graph);
  // Tensor fusion of neighbours: the first one's transfer becomes part of the second one's; and fusion of two kernels.
  constexpr int kCandidates = 3'000;
  const double begin = cpu_seconds();
  std::int64_t sum = 0;
  for (int i = 0; i < kCandidates; ++i) {
    Delta delta;
    if (i % 2 == 0) {
      const auto b = static_cast<std::size_t>(rng.below(kBuckets - 1));
      delta.transfers.emplace_back(buckets[b], 0);
      delta.transfers.emplace_back(buckets[b + 1], 750'000);
    } else {
      const auto k = static_cast<std::size_t>(rng.below(kernels.size() - 1));
      delta.durations.emplace_back(kernels[k], graph.duration(kernels[k]) + graph.duration(kernels[k + 1]) - 3'000);
      delta.durations.emplace_back(kernels[k + 1], 0);
    }
    sum += evaluator.makespan(delta);
  }
  return {{"tasks", graph.size()},
          {"candidates", kCandidates},
          {"per_second", kCandidates / (cpu_seconds() - begin)},
          {"sum", sum}};
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  Json json;
  if (arguments.size() == 2 && arguments[0] == "fusion") {
    json = fusion(std::strtoull(arguments[1].c_str(), nullptr, 10));
  } else if (arguments.size() == 1 && arguments[0] == "latency") {
    json = latency();
  } else if (arguments.size() == 1 && arguments[0] == "candidates") {
    json = candidates();
  } else {
    return fmt::print(stderr, "usage: tune_measure fusion COUNT | latency | candidates\n"), 2;
  }
  fmt::print("{}\n", json.dump());
  return 0;
}
