#include "paceline/gnn/resource_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "paceline/base/error.h"
#include "paceline/base/rng.h"

namespace paceline::gnn {
namespace {

/// All splits of whole cores, by recursion.
double brute_force(const ResourceRequest& request) {
  double least = 1e300;
  std::vector<int> cores(request.stages.size(), 1);
  const std::function<void(std::size_t)> next = [&](std::size_t stage) {
    if (stage == cores.size()) {
      std::vector<int> used(request.cores.size(), 0);
      double slowest = 0;
      for (std::size_t i = 0; i < cores.size(); ++i) {
        used[static_cast<std::size_t>(request.stages[i].group)] += cores[i];
        slowest = std::max(slowest, request.stages[i].on(cores[i]));
      }
      for (std::size_t g = 0; g < used.size(); ++g)
        if (used[g] > request.cores[g]) return;
      // Bandwidth in steps of a hundredth.
      double transfers = 1e300;
      for (int share = 1; share < 100; ++share)
        transfers =
            std::min(transfers, std::max(request.transfers[0].bytes / (request.bandwidth[0] * share / 100),
                                         request.transfers[1].bytes / (request.bandwidth[0] * (100 - share) / 100)));
      least = std::min(least, std::max(slowest, transfers));
      return;
    }
    for (cores[stage] = 1; cores[stage] <= 8; ++cores[stage]) next(stage + 1);
    cores[stage] = 1;
  };
  next(0);
  return least;
}

TEST(ResourcePlan, IsAsGoodAsTryingEverySplit) {
  base::Rng rng(1);
  for (int i = 0; i < 100; ++i) {
    ResourceRequest request;
    for (int s = 0; s < 4; ++s)
      request.stages.push_back(
          {"s" + std::to_string(s), rng.uniform(), rng.chance(0.5) ? 0 : 0.2 * rng.uniform(), s / 2});
    request.transfers = {{"subgraph", 1 + rng.uniform(), 0}, {"features", 1 + rng.uniform(), 0}};
    request.cores = {2 + static_cast<int>(rng.below(6)), 2 + static_cast<int>(rng.below(6))};
    request.bandwidth = {5 + 20 * rng.uniform()};
    const ResourcePlan plan = plan_resources(request);
    const double least = brute_force(request);
    EXPECT_LE(plan.seconds_per_batch, least + 1e-12);
    EXPECT_GE(plan.seconds_per_batch, least * 0.97);  // the brute force moves bandwidth in steps
  }
}

TEST(ResourcePlan, NamesWhatBinds) {
  const ResourcePlan plan = plan_resources({{{"sample", 1.0, 0, 0}, {"gather", 0.1, 0.05, 0}}, {}, {8}, {}});
  EXPECT_EQ(plan.cores, (std::vector<int>{7, 1}));
  EXPECT_EQ(plan.bound, "gather");
  EXPECT_THROW(plan_resources({{{"a", 1, 0, 0}, {"b", 1, 0, 0}}, {}, {1}, {}}), Error);
}

TEST(ResourcePlan, FitFindsTheLineItWasMadeFrom) {
  const std::vector<int> cores{1, 2, 4, 8};
  std::vector<double> seconds;
  for (const int c : cores) seconds.push_back(3.0 / c + 0.25);
  const StageCost cost = fit_stage("s", cores, seconds);
  EXPECT_NEAR(cost.work, 3.0, 1e-9);
  EXPECT_NEAR(cost.fixed, 0.25, 1e-9);
  EXPECT_NEAR(fit_stage("s", std::vector<int>{2}, std::vector<double>{0.5}).work, 1.0, 1e-9);
}

TEST(ResourcePlan, MemoryGoesWhereItSavesMost) {
  const std::vector<std::uint64_t> degrees(10, 100);  // 408 bytes a row
  const std::vector<float> hot(10, 10);
  const std::vector<float> cold(10, 0.1f);
  EXPECT_EQ(split_memory(hot, degrees, cold, 400, 4080).topology_bytes, 4080u);
  EXPECT_EQ(split_memory(cold, degrees, hot, 400, 4080).topology_bytes, 0u);
  // Against every number of topology rows, hottest first, with the features that still fit.
  base::Rng rng(4);
  for (int i = 0; i < 50; ++i) {
    std::vector<float> topology(12);
    std::vector<float> features(12);
    std::vector<std::uint64_t> random_degrees(12);
    for (std::size_t v = 0; v < 12; ++v)
      topology[v] = static_cast<float>(rng.uniform()), features[v] = static_cast<float>(rng.uniform()),
      random_degrees[v] = rng.below(50);
    const std::uint64_t budget = rng.below(2000);
    const MemorySplit split = split_memory(topology, random_degrees, features, 100, budget);
    EXPECT_LE(split.topology_bytes + split.feature_bytes, budget);
    std::vector<std::size_t> by_topology(12);
    std::iota(by_topology.begin(), by_topology.end(), 0);
    std::vector<std::size_t> by_features = by_topology;
    std::sort(by_topology.begin(), by_topology.end(), [&](auto a, auto b) { return topology[a] > topology[b]; });
    std::sort(by_features.begin(), by_features.end(), [&](auto a, auto b) { return features[a] > features[b]; });
    double least = 1e300;
    std::uint64_t spent = 0;
    for (std::size_t held = 0; held <= 12; ++held) {
      if (held > 0) spent += random_degrees[by_topology[held - 1]] * 4 + 8;
      if (spent > budget) break;
      double fetched = 0;
      for (std::size_t v = held; v < 12; ++v)
        fetched +=
            static_cast<double>(topology[by_topology[v]]) * static_cast<double>(random_degrees[by_topology[v]] * 4 + 8);
      for (std::size_t v = (budget - spent) / 100; v < 12; ++v)
        fetched += static_cast<double>(features[by_features[v]]) * 100;
      least = std::min(least, fetched);
    }
    EXPECT_NEAR(split.fetched_bytes, least, 1e-6 * least + 1e-6);
  }
}

TEST(ResourcePlan, OneSlowBatchIsNoDrift) {
  DriftWatch watch(1.0);
  bool alarm = false;
  for (int i = 0; i < 100; ++i) alarm |= watch.add(i == 50 ? 3.0 : 1.0);
  EXPECT_FALSE(alarm);
  for (int i = 0; i < 16; ++i) alarm |= watch.add(1.3);
  EXPECT_TRUE(alarm);
}

}  // namespace
}  // namespace paceline::gnn
