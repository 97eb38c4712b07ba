#include "paceline/tune/fusion.h"

#include <gtest/gtest.h>

#include <numeric>

#include "paceline/base/rng.h"
#include "paceline/tune/reference.h"

namespace paceline::tune {
namespace {

using base::Rng;

Backward random_backward(Rng& rng, std::size_t n) {
  Backward backward;
  for (std::size_t i = 0; i < n; ++i) {
    backward.compute.push_back(rng.between(1, 50));
    backward.bytes.push_back(rng.chance(0.2) ? 0 : rng.between(1, 400));
    if (i + 1 < n) backward.saving.push_back(rng.chance(0.2) ? Backward::kNever : rng.between(0, 8));
  }
  return backward;
}

SyncCost random_cost(Rng& rng) {
  SyncCost cost;
  cost.stages.clear();
  for (std::uint64_t s = 1 + rng.below(3); s-- > 0;) {
    cost.stages.push_back({static_cast<double>(rng.between(1, 60)), static_cast<double>(rng.between(1, 20)) / 20});
  }
  return cost;
}

TEST(Fusion, IsTheBestOfAllGroupings) {
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    Rng rng(seed);
    const Backward backward = random_backward(rng, 1 + rng.below(8));
    const SyncCost cost = random_cost(rng);
    ASSERT_EQ(best_fusion(backward, cost).makespan, brute_force(backward, cost).makespan) << "seed " << seed;
  }
}

TEST(Fusion, PruningLosesNothing) {
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    Rng rng(seed);
    const Backward backward = random_backward(rng, 7);
    const SyncCost cost = random_cost(rng);
    std::size_t few = 0, many = 0;
    const FusionPlan pruned = best_fusion(backward, cost, {}, &few);
    const FusionPlan all = best_fusion(backward, cost, {.prune = false}, &many);
    ASSERT_EQ(pruned.makespan, all.makespan) << "seed " << seed;
    ASSERT_LT(few, many) << "seed " << seed;
  }
}

TEST(Fusion, TheTheoremsNeverMakeItWorse) {
  for (std::uint64_t seed = 1; seed <= 1000; ++seed) {
    Rng rng(seed);
    const Backward backward = random_backward(rng, 30);
    const SyncCost cost = random_cost(rng);
    const std::int64_t plain = no_fusion(backward, cost).makespan, greedy = greedy_fusion(backward, cost).makespan;
    ASSERT_LE(greedy, plain) << "seed " << seed;
    ASSERT_LE(best_fusion(backward, cost).makespan, greedy) << "seed " << seed;
  }
}

TEST(SyncCost, PartsFollowEachOtherAtThePaceOfTheSlowestStage) {
  const SyncCost cost{{{10, 1}, {20, 2}}};
  EXPECT_EQ(cost.time(100), 10 + 100 + 20 + 200);
  EXPECT_EQ(cost.time(100, 2), (10 + 50 + 20 + 100) + (20 + 100));
  EXPECT_EQ(cost.time(0, 4), 0);
  for (std::int64_t bytes = 1; bytes < 2'000; bytes += 37) {
    std::int64_t least = cost.time(bytes, 1);
    for (std::uint32_t parts = 2; parts <= 64; ++parts) least = std::min(least, cost.time(bytes, parts));
    EXPECT_LE(cost.time(bytes, cost.best_parts(bytes)), least) << bytes;
  }
}

}  // namespace
}  // namespace paceline::tune
