#include "paceline/cost/collective.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "paceline/base/error.h"

namespace paceline::cost {
namespace {

using base::kNone;
using taskgraph::TaskId;
using taskgraph::TaskKind;
using trace::CollectiveKind;

/// One step of a ring through all ranks: as slow as its slowest link.
double ring_step(const Network& network, double bytes) {
  const double inside = network.inside.time(bytes);
  if (network.ranks <= network.ranks_per_node) return inside;
  const double between = network.between.time(bytes);
  return network.ranks_per_node > 1 ? std::max(inside, between) : between;
}

/// (steps - 1 + c) t(S / c) for the best c, or the one given. Convex in c: the best is near sqrt(steps * S b / a).
double pipelined(const Network& network, double steps, double bytes, std::uint32_t chunks) {
  const auto time = [&](double c) { return (steps - 1 + c) * ring_step(network, bytes / c); };
  if (chunks > 0) return time(chunks);
  double best = time(1);
  for (double c = 2; c <= 4096; c *= std::sqrt(2.0)) best = std::min(best, time(std::floor(c)));
  return best;
}

double ring_share(const Network& network, double bytes) {
  const double n = network.ranks;
  return (n - 1) * ring_step(network, bytes / n);
}

Network one_node(const Network& network) {
  return {network.ranks_per_node, network.ranks_per_node, network.inside, network.inside};
}

double all_reduce(Algorithm algorithm, double bytes, const Network& network, std::uint32_t chunks) {
  switch (algorithm) {
    case Algorithm::kTree: {
      const double depth = std::bit_width(network.ranks - 1);
      return pipelined(network, 2 * depth, 2 * bytes, chunks);
    }
    case Algorithm::kHierarchical: {
      if (network.ranks <= network.ranks_per_node || network.ranks_per_node == 1) return 2 * ring_share(network, bytes);
      const double share = bytes / network.ranks_per_node;
      const Network across{network.ranks / network.ranks_per_node, 1, network.between, network.between};
      return 2 * ring_share(one_node(network), bytes) + 2 * ring_share(across, share);
    }
    case Algorithm::kSwitch:
      return 2 * network.inside.latency_ns + network.inside.ns_per_byte * bytes;
    case Algorithm::kDirect:
      return 2 * (network.ranks - 1) * ring_step(network, bytes / network.ranks);
    case Algorithm::kRing:
      break;
  }
  return 2 * ring_share(network, bytes);
}

}  // namespace

std::string_view algorithm_name(Algorithm algorithm) {
  constexpr std::array<std::string_view, 5> kNames = {"ring", "tree", "hierarchical", "switch", "direct"};
  return kNames[static_cast<std::size_t>(algorithm)];
}

std::int64_t collective_time(CollectiveKind kind, Algorithm algorithm, std::int64_t bytes, const Network& network,
                             std::uint32_t chunks) {
  PL_CHECK(network.ranks > 0 && network.ranks_per_node > 0);
  if (network.ranks == 1) return 0;
  const auto size = static_cast<double>(bytes);
  const double n = network.ranks;
  const auto time = [&]() -> double {
    switch (kind) {
      case CollectiveKind::kAllReduce:
        return all_reduce(algorithm, size, network, chunks);
      case CollectiveKind::kAllGather:
      case CollectiveKind::kReduceScatter:
      case CollectiveKind::kAllToAll:
      case CollectiveKind::kGather:
      case CollectiveKind::kScatter:
        return ring_share(network, size);
      case CollectiveKind::kBroadcast:
      case CollectiveKind::kReduce:
        return pipelined(network, n - 1, size, chunks);
      case CollectiveKind::kBarrier:
        return 2 * std::bit_width(network.ranks - 1) * ring_step(network, 0);
      case CollectiveKind::kSendRecv:
      case CollectiveKind::kUnknown:
      case CollectiveKind::kNone:
        return ring_step(network, size);
    }
    return 0;
  };
  return std::llround(time());
}

std::vector<TaskId> add_ring(taskgraph::Builder& builder, CollectiveKind kind, std::int64_t bytes,
                             const Network& network, const std::vector<taskgraph::LaneId>& links,
                             const std::vector<TaskId>& ready) {
  const std::uint32_t n = network.ranks;
  PL_CHECK(links.size() == n && ready.size() == n);
  const std::uint32_t steps = (kind == CollectiveKind::kAllReduce ? 2 : 1) * (n - 1);
  const double part = static_cast<double>(bytes) / n;
  const base::NameId name = builder.intern("send");
  std::vector<TaskId> received = ready;
  for (std::uint32_t step = 0; step < steps; ++step) {
    std::vector<TaskId> sent(n);
    for (std::uint32_t r = 0; r < n; ++r) {
      const bool crosses = n > network.ranks_per_node && (r + 1) % network.ranks_per_node == 0;
      const LinkCost& link = crosses ? network.between : network.inside;
      sent[r] = builder.add_task(
          {.duration = std::llround(link.time(part)), .lane = links[r], .name = name, .kind = TaskKind::kCopy});
      // A rank passes on what it has received; at the first step it sends its own part.
      if (received[r] != kNone<TaskId>) builder.add_edge(received[r], sent[r]);
      // Both sides of a transfer take part in it.
      const TaskId other = step == 0 ? ready[(r + 1) % n] : kNone<TaskId>;
      if (other != kNone<TaskId>) builder.add_edge(other, sent[r]);
    }
    for (std::uint32_t r = 0; r < n; ++r) received[(r + 1) % n] = sent[r];
  }
  return received;
}

std::vector<TaskId> add_push_pull(taskgraph::Builder& builder, const ParameterServer& plan, std::int64_t bytes,
                                  const std::vector<TaskId>& ready) {
  PL_CHECK(plan.uplinks.size() == plan.workers && plan.downlinks.size() == plan.workers &&
           ready.size() == plan.workers);
  PL_CHECK(plan.server_lanes.size() == plan.servers && plan.servers > 0 && plan.parts > 0);
  const double part = static_cast<double>(bytes) / plan.parts;
  const base::NameId push = builder.intern("push"), sum = builder.intern("sum"), pull = builder.intern("pull");
  std::vector<TaskId> pulled;
  std::vector<std::vector<TaskId>> sums(plan.parts);
  for (std::uint32_t p = 0; p < plan.parts; ++p) {
    for (std::uint32_t w = 0; w < plan.workers; ++w) {
      const TaskId sent = builder.add_task({.duration = std::llround(plan.link.time(part)),
                                            .lane = plan.uplinks[w],
                                            .name = push,
                                            .kind = TaskKind::kCopy});
      if (ready[w] != kNone<TaskId>) builder.add_edge(ready[w], sent);
      // The server's lane serves in order of arrival, whoever that is: the first part is copied, the others are added.
      const TaskId added = builder.add_task({.duration = std::llround(plan.sum_ns_per_byte * part),
                                             .lane = plan.server_lanes[p % plan.servers],
                                             .name = sum,
                                             .kind = TaskKind::kCompute});
      builder.add_edge(sent, added);
      sums[p].push_back(added);
    }
  }
  for (std::uint32_t w = 0; w < plan.workers; ++w) {
    for (std::uint32_t p = 0; p < plan.parts; ++p) {
      const TaskId back = builder.add_task({.duration = std::llround(plan.link.time(part)),
                                            .lane = plan.downlinks[w],
                                            .name = pull,
                                            .kind = TaskKind::kCopy});
      for (const TaskId added : sums[p]) builder.add_edge(added, back);
      pulled.push_back(back);
    }
  }
  return pulled;
}

}  // namespace paceline::cost
