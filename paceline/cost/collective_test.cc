#include "paceline/cost/collective.h"

#include <gtest/gtest.h>

#include "paceline/base/rng.h"
#include "paceline/replay/replay.h"

namespace paceline::cost {
namespace {

using base::kNone;
using taskgraph::Builder;
using taskgraph::LaneId;
using taskgraph::LaneOrder;
using taskgraph::TaskId;
using trace::CollectiveKind;

constexpr LinkCost kNvlink{2'000, 1.0 / 200}, kNic{10'000, 1.0 / 25};  // 200 and 25 GB/s

TEST(Collective, RingOfTasksTakesWhatTheFormulaSays) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    base::Rng rng(seed);
    Network network{
        .ranks = 2 + static_cast<std::uint32_t>(rng.below(7)), .ranks_per_node = 8, .inside = kNvlink, .between = kNic};
    if (rng.chance(0.5)) network.ranks = 8, network.ranks_per_node = 4;
    const auto kind = rng.chance(0.5) ? CollectiveKind::kAllReduce : CollectiveKind::kAllGather;
    const std::int64_t bytes = rng.between(1, 1 << 26);
    Builder builder;
    std::vector<LaneId> links;
    for (std::uint32_t r = 0; r < network.ranks; ++r) links.push_back(builder.add_lane({.rank = r}));
    add_ring(builder, kind, bytes, network, links, std::vector<TaskId>(network.ranks, kNone<TaskId>));
    const auto makespan = static_cast<double>(replay::replay(std::move(builder).build()).makespan);
    const auto formula = static_cast<double>(collective_time(kind, Algorithm::kRing, bytes, network));
    EXPECT_NEAR(makespan, formula, 2.0 * network.ranks) << "seed " << seed;  // each step is rounded to a ns
  }
}

TEST(Collective, KnownTimes) {
  const Network node{.ranks = 8, .ranks_per_node = 8, .inside = {0, 1.0}, .between = {0, 1.0}};
  // Bandwidth optimal: 2 (n - 1) / n of the bytes (Patarasuk and Yuan 2009, theorem 2).
  EXPECT_EQ(collective_time(CollectiveKind::kAllReduce, Algorithm::kRing, 8'000, node), 14'000);
  EXPECT_EQ(collective_time(CollectiveKind::kReduceScatter, Algorithm::kRing, 8'000, node), 7'000);
  EXPECT_EQ(collective_time(CollectiveKind::kAllReduce, Algorithm::kSwitch, 8'000, node), 8'000);
  EXPECT_EQ(collective_time(CollectiveKind::kSendRecv, Algorithm::kRing, 8'000, node), 8'000);
  EXPECT_EQ(collective_time(CollectiveKind::kAllReduce, Algorithm::kRing, 8'000, {.ranks = 1}), 0);
}

TEST(Collective, TreesWinOnLatencyAndRingsOnBandwidth) {
  const Network large{.ranks = 256, .ranks_per_node = 1, .inside = kNic, .between = kNic};
  const auto time = [&](Algorithm algorithm, std::int64_t bytes) {
    return collective_time(CollectiveKind::kAllReduce, algorithm, bytes, large);
  };
  EXPECT_LT(time(Algorithm::kTree, 1'000), time(Algorithm::kRing, 1'000));
  EXPECT_GT(time(Algorithm::kTree, 1LL << 33), time(Algorithm::kRing, 1LL << 33));
}

TEST(Collective, HierarchyUsesTheFastLinksInsideNodes) {
  const Network cluster{.ranks = 64, .ranks_per_node = 8, .inside = kNvlink, .between = kNic};
  const std::int64_t bytes = 1 << 28;
  EXPECT_LT(collective_time(CollectiveKind::kAllReduce, Algorithm::kHierarchical, bytes, cluster),
            collective_time(CollectiveKind::kAllReduce, Algorithm::kRing, bytes, cluster));
}

std::int64_t push_pull_time(std::uint32_t servers, std::uint32_t parts) {
  Builder builder;
  ParameterServer plan{.workers = 2, .servers = servers, .parts = parts, .link = {100, 0.01}, .sum_ns_per_byte = 0.02};
  for (std::uint32_t w = 0; w < plan.workers; ++w) {
    plan.uplinks.push_back(builder.add_lane({.rank = w}));
    plan.downlinks.push_back(builder.add_lane({.rank = w, .order = LaneOrder::kReady}));
  }
  for (std::uint32_t s = 0; s < servers; ++s)
    plan.server_lanes.push_back(builder.add_lane({.order = LaneOrder::kReady}));
  add_push_pull(builder, plan, 1'000'000, std::vector<TaskId>(plan.workers, kNone<TaskId>));
  return replay::replay(std::move(builder).build()).makespan;
}

TEST(ParameterServer, PartsAndServersOverlapWhatOneDoesInTurn) {
  // One part, one server: push 10,100, two sums of 20,000 one behind the other, pull 10,100.
  EXPECT_EQ(push_pull_time(1, 1), 10'100 + 2 * 20'000 + 10'100);
  // Both servers add up at once, the links carry the next part meanwhile.
  EXPECT_LT(push_pull_time(1, 8), push_pull_time(1, 1));
  EXPECT_LT(push_pull_time(2, 8), push_pull_time(1, 8));
}

}  // namespace
}  // namespace paceline::cost
