#include "paceline/gnn/multilevel.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <queue>

#include "paceline/base/rng.h"
#include "paceline/gnn/refine.h"

namespace paceline::gnn {
namespace {

std::uint64_t most(std::uint64_t total, double share, double imbalance) {
  const double mean = static_cast<double>(total) * share;
  return std::max(static_cast<std::uint64_t>(std::floor(mean * (1 + imbalance))),
                  static_cast<std::uint64_t>(std::ceil(mean)));
}

/// Limits of equal parts; on coarse levels one node of slack, or nothing could move.
Limits equal_limits(const WeightedGraph& graph, const PartitionOptions& options, bool coarse) {
  const double share = 1.0 / options.parts;
  const std::uint64_t slack = coarse ? *std::max_element(graph.node_weights.begin(), graph.node_weights.end()) : 0;
  const std::uint64_t train_slack =
      coarse ? *std::max_element(graph.train_weights.begin(), graph.train_weights.end()) : 0;
  const std::uint64_t train = graph.total_train();
  Limits limits;
  limits.weight.assign(static_cast<std::size_t>(options.parts),
                       most(graph.total_weight(), share, options.imbalance) + slack / 2);
  limits.train.assign(static_cast<std::size_t>(options.parts),
                      train == 0 ? std::numeric_limits<std::uint64_t>::max() / 2
                                 : most(train, share, options.train_imbalance) + train_slack / 2);
  return limits;
}

/// Part 0 grown from one node by strongest tie until it holds `share` of the weight; the rest is part 1.
std::vector<std::uint32_t> grow(const WeightedGraph& graph, double share, base::Rng& rng) {
  const std::uint32_t n = graph.nodes();
  std::vector<std::uint32_t> part(n, 1);
  std::vector<std::int64_t> gain(n, 0);  // ties to part 0 minus ties to part 1
  for (std::uint32_t v = 0; v < n; ++v)
    for (std::uint64_t i = graph.offsets[v]; i < graph.offsets[v + 1]; ++i) gain[v] -= graph.edge_weights[i];
  std::priority_queue<std::pair<std::int64_t, std::uint32_t>> queue;
  const double target = share * static_cast<double>(graph.total_weight());
  double weight = 0;
  while (weight < target) {
    std::uint32_t v = 0;
    if (queue.empty()) {
      do v = static_cast<std::uint32_t>(rng.below(n));
      while (part[v] == 0);
    } else {
      const auto [queued, top] = queue.top();
      queue.pop();
      if (part[top] == 0 || queued != gain[top]) continue;
      v = top;
    }
    if (weight > 0 && weight + graph.node_weights[v] > target + graph.node_weights[v] / 2.0) break;
    part[v] = 0;
    weight += graph.node_weights[v];
    for (std::uint64_t i = graph.offsets[v]; i < graph.offsets[v + 1]; ++i) {
      const std::uint32_t u = graph.neighbours[i];
      if (part[u] == 0) continue;
      gain[u] += 2 * std::int64_t{graph.edge_weights[i]};
      queue.emplace(gain[u], u);
    }
  }
  return part;
}

WeightedGraph induced(const WeightedGraph& graph, const std::vector<std::uint32_t>& members,
                      std::vector<std::uint32_t>& place) {
  for (std::uint32_t i = 0; i < members.size(); ++i) place[members[i]] = i;
  WeightedGraph sub;
  for (const std::uint32_t v : members) {
    sub.node_weights.push_back(graph.node_weights[v]);
    sub.train_weights.push_back(graph.train_weights[v]);
    for (std::uint64_t i = graph.offsets[v]; i < graph.offsets[v + 1]; ++i) {
      const std::uint32_t u = place[graph.neighbours[i]];
      if (u >= members.size() || members[u] != graph.neighbours[i]) continue;
      sub.neighbours.push_back(u);
      sub.edge_weights.push_back(graph.edge_weights[i]);
    }
    sub.offsets.push_back(sub.neighbours.size());
  }
  return sub;
}

/// Recursive bisection of a small graph into parts first..first + parts - 1.
void bisect(const WeightedGraph& graph, const std::vector<std::uint32_t>& names, int first, int parts,
            const PartitionOptions& options, base::Rng& rng, std::vector<std::uint32_t>& out) {
  if (parts == 1 || graph.nodes() <= 1) {
    for (const std::uint32_t v : names) out[v] = static_cast<std::uint32_t>(first);
    return;
  }
  // Dense coarse graphs (no communities) are slow to refine and all tries end alike.
  const int tries = graph.neighbours.size() < 60'000 ? 12 : 4;
  const int left = parts / 2;
  const double share = static_cast<double>(left) / parts;
  // Imbalance adds up along the recursion.
  const double slack = options.imbalance / std::max(1.0, std::ceil(std::log2(options.parts)));
  const std::uint64_t largest = *std::max_element(graph.node_weights.begin(), graph.node_weights.end());
  const std::uint64_t train = graph.total_train();
  const std::uint64_t largest_train = *std::max_element(graph.train_weights.begin(), graph.train_weights.end());
  Limits limits;
  for (const double each : {share, 1 - share}) {
    limits.weight.push_back(most(graph.total_weight(), each, slack) + largest / 2);
    limits.train.push_back(train == 0 ? std::numeric_limits<std::uint64_t>::max() / 2
                                      : most(train, each, options.train_imbalance) + largest_train / 2);
  }
  std::vector<std::uint32_t> best;
  std::uint64_t least = std::numeric_limits<std::uint64_t>::max();
  for (int attempt = 0; attempt < tries; ++attempt) {
    std::vector<std::uint32_t> part = grow(graph, share, rng);
    const std::uint64_t cut = refine(graph, part, limits, 6, rng.next());
    if (cut < least) least = cut, best = std::move(part);
  }
  std::vector<std::uint32_t> place(graph.nodes(), std::numeric_limits<std::uint32_t>::max());
  for (std::uint32_t side = 0; side < 2; ++side) {
    std::vector<std::uint32_t> members;
    std::vector<std::uint32_t> member_names;
    for (std::uint32_t v = 0; v < graph.nodes(); ++v)
      if (best[v] == side) members.push_back(v), member_names.push_back(names[v]);
    if (members.empty()) continue;
    bisect(induced(graph, members, place), member_names, side == 0 ? first : first + left,
           side == 0 ? left : parts - left, options, rng, out);
  }
}

std::vector<std::uint32_t> project(const std::vector<std::uint32_t>& coarse_part,
                                   const std::vector<std::uint32_t>& map) {
  std::vector<std::uint32_t> part(map.size());
  for (std::size_t v = 0; v < map.size(); ++v) part[v] = coarse_part[map[v]];
  return part;
}

/// One cycle. With `current` parts, coarsening stays within them and they are the start.
std::vector<std::uint32_t> cycle(const WeightedGraph& graph, const PartitionOptions& options, base::Rng& rng,
                                 const std::vector<std::uint32_t>* current) {
  const auto parts = static_cast<std::uint64_t>(options.parts);
  const std::uint64_t total = graph.total_weight();
  const std::uint64_t cap = std::max<std::uint64_t>(1, total / (parts * 16));
  const std::uint64_t train_cap = std::max<std::uint64_t>(1, graph.total_train() / (parts * 12));
  std::vector<WeightedGraph> levels;  // below `graph` itself
  std::vector<std::vector<std::uint32_t>> maps;
  std::vector<std::uint32_t> part;
  if (current != nullptr) part = *current;
  const auto level_graph = [&](std::size_t i) -> const WeightedGraph& { return i == 0 ? graph : levels[i - 1]; };
  for (;;) {
    const WeightedGraph& last = level_graph(levels.size());
    if (last.nodes() <= std::max<std::uint64_t>(60 * parts, 400)) break;
    const std::uint64_t level_cap = std::min<std::uint64_t>(cap, std::max<std::uint64_t>(2, 5 * total / last.nodes()));
    std::vector<std::uint32_t> map = find_clusters(last, level_cap, train_cap, 4, rng.next(), part);
    WeightedGraph coarse = contract(last, map);
    if (coarse.nodes() > 0.95 * last.nodes()) break;
    if (!part.empty()) {
      std::vector<std::uint32_t> coarse_part(coarse.nodes());
      for (std::size_t v = 0; v < map.size(); ++v) coarse_part[map[v]] = part[v];
      part = std::move(coarse_part);
    }
    maps.push_back(std::move(map));
    levels.push_back(std::move(coarse));
  }
  const WeightedGraph& coarsest = level_graph(levels.size());
  if (current == nullptr) {
    part.assign(coarsest.nodes(), 0);
    std::vector<std::uint32_t> names(coarsest.nodes());
    std::iota(names.begin(), names.end(), 0);
    bisect(coarsest, names, 0, options.parts, options, rng, part);
  }
  for (std::size_t level = levels.size() + 1; level-- > 0;) {
    const WeightedGraph& here = level_graph(level);
    if (level < maps.size()) part = project(part, maps[level]);
    refine(here, part, equal_limits(here, options, level > 0), 10, rng.next());
  }
  return part;
}

}  // namespace

std::vector<std::uint32_t> multilevel_partition(const WeightedGraph& graph, const PartitionOptions& options) {
  const bool small = graph.neighbours.size() < 2'000'000;
  const int by_size = graph.neighbours.size() < 200'000 ? 12 : small ? 6 : 1;
  const int tries = options.tries > 0 ? options.tries : by_size;
  const int cycles = small ? 4 : 1;
  std::vector<std::uint32_t> best;
  std::uint64_t least = std::numeric_limits<std::uint64_t>::max();
  for (int attempt = 0; attempt < tries; ++attempt) {
    base::Rng rng(options.seed + static_cast<std::uint64_t>(attempt) * 7919);
    std::vector<std::uint32_t> part = cycle(graph, options, rng, nullptr);
    for (int i = 0; i < cycles; ++i) {
      std::vector<std::uint32_t> next = cycle(graph, options, rng, &part);
      if (cut_of(graph, next) < cut_of(graph, part)) part = std::move(next);
    }
    const std::uint64_t cut = cut_of(graph, part);
    if (cut < least) least = cut, best = std::move(part);
  }
  return best;
}

}  // namespace paceline::gnn
