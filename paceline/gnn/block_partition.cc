#include "paceline/gnn/block_partition.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "paceline/base/rng.h"

namespace paceline::gnn {
namespace {

constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();

/// Breadth-first blocks of at most `most` nodes from random sources; what is left is cut into blocks the same way.
std::vector<std::uint32_t> grow_blocks(const WeightedGraph& graph, std::uint64_t most, base::Rng& rng,
                                       std::uint32_t& count) {
  const std::uint32_t n = graph.nodes();
  std::vector<std::uint32_t> order(n);
  std::iota(order.begin(), order.end(), 0);
  rng.shuffle(std::span(order));
  std::vector<std::uint32_t> block(n, kNone);
  std::vector<std::uint32_t> queue;
  count = 0;
  for (const std::uint32_t source : order) {
    if (block[source] != kNone) continue;
    queue.assign(1, source);
    block[source] = count;
    for (std::size_t head = 0; head < queue.size() && queue.size() < most; ++head) {
      for (std::uint64_t i = graph.offsets[queue[head]]; i < graph.offsets[queue[head] + 1] && queue.size() < most;
           ++i) {
        const std::uint32_t u = graph.neighbours[i];
        if (block[u] != kNone) continue;
        block[u] = count;
        queue.push_back(u);
      }
    }
    ++count;
  }
  return block;
}

/// Blocks below a tenth of the limit join the neighbouring block with room that they are tied to most.
void merge_small(const WeightedGraph& graph, std::vector<std::uint32_t>& block, std::uint32_t count,
                 std::uint64_t most) {
  const WeightedGraph blocks = contract(graph, block);
  std::vector<std::uint32_t> join(count);
  std::iota(join.begin(), join.end(), 0);
  std::vector<std::uint64_t> weight(blocks.node_weights.begin(), blocks.node_weights.end());
  for (std::uint32_t b = 0; b < count; ++b) {
    if (10 * std::uint64_t{blocks.node_weights[b]} >= most) continue;
    std::uint32_t best = kNone;
    std::uint32_t tie = 0;
    for (std::uint64_t i = blocks.offsets[b]; i < blocks.offsets[b + 1]; ++i) {
      const std::uint32_t other = blocks.neighbours[i];
      const bool large = 10 * std::uint64_t{blocks.node_weights[other]} >= most;
      if (large && blocks.edge_weights[i] > tie && weight[other] + blocks.node_weights[b] <= 2 * most)
        best = other, tie = blocks.edge_weights[i];
    }
    if (best == kNone) continue;
    join[b] = best;
    weight[best] += blocks.node_weights[b];
  }
  std::vector<std::uint32_t> number(count, kNone);
  std::uint32_t next = 0;
  for (std::uint32_t& b : block) {
    b = join[b];
    if (number[b] == kNone) number[b] = next++;
    b = number[b];
  }
}

}  // namespace

std::vector<std::uint32_t> block_partition(const WeightedGraph& graph, const PartitionOptions& options) {
  const auto parts = static_cast<std::size_t>(options.parts);
  const std::uint64_t most = std::max<std::uint64_t>(2, graph.nodes() / (parts * 50));
  base::Rng rng(options.seed);
  std::uint32_t count = 0;
  std::vector<std::uint32_t> block = grow_blocks(graph, most, rng, count);
  merge_small(graph, block, count, most);
  const WeightedGraph blocks = contract(graph, block);

  std::vector<std::vector<std::uint32_t>> members(blocks.nodes());
  for (std::uint32_t v = 0; v < graph.nodes(); ++v) members[block[v]].push_back(v);
  std::vector<std::uint32_t> order(blocks.nodes());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return blocks.node_weights[a] > blocks.node_weights[b]; });

  const double capacity = static_cast<double>(graph.total_weight()) / options.parts * (1 + options.imbalance);
  const double train_capacity =
      static_cast<double>(graph.total_train()) / options.parts * (1 + options.train_imbalance);
  std::vector<std::uint32_t> part(graph.nodes(), kNone);
  std::vector<double> weight(parts, 0);
  std::vector<double> train(parts, 0);
  std::vector<std::uint32_t> seen(graph.nodes(), kNone);
  std::vector<std::uint32_t> frontier;
  std::vector<double> near(parts);
  for (const std::uint32_t b : order) {
    std::fill(near.begin(), near.end(), 0);
    frontier = members[b];
    for (const std::uint32_t v : frontier) seen[v] = b;
    for (int hop = 0; hop < 2; ++hop) {
      std::vector<std::uint32_t> next;
      for (const std::uint32_t v : frontier) {
        for (std::uint64_t i = graph.offsets[v]; i < graph.offsets[v + 1]; ++i) {
          const std::uint32_t u = graph.neighbours[i];
          if (seen[u] == b) continue;
          seen[u] = b;
          next.push_back(u);
          if (part[u] != kNone) near[part[u]] += 1;
        }
      }
      frontier = std::move(next);
    }
    std::size_t best = parts;
    double most_score = -1;
    for (std::size_t p = 0; p < parts; ++p) {
      if (weight[p] + blocks.node_weights[b] > capacity && weight[p] > 0) continue;
      const double room = 1 - weight[p] / capacity;
      const double train_room = train_capacity > 0 ? std::max(0.0, 1 - train[p] / train_capacity) : 1;
      const double score = near[p] * room * train_room;
      if (score > most_score || (score == most_score && weight[p] < weight[best])) most_score = score, best = p;
    }
    if (best == parts) best = static_cast<std::size_t>(std::min_element(weight.begin(), weight.end()) - weight.begin());
    for (const std::uint32_t v : members[b]) part[v] = static_cast<std::uint32_t>(best);
    weight[best] += blocks.node_weights[b];
    train[best] += blocks.train_weights[b];
  }
  return part;
}

}  // namespace paceline::gnn
