#include "paceline/gnn/cluster.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <numeric>

#include "paceline/base/error.h"
#include "paceline/base/rng.h"
#include "paceline/gnn/order.h"

namespace paceline::gnn {

std::uint64_t WeightedGraph::total_weight() const {
  return std::accumulate(node_weights.begin(), node_weights.end(), std::uint64_t{0});
}
std::uint64_t WeightedGraph::total_train() const {
  return std::accumulate(train_weights.begin(), train_weights.end(), std::uint64_t{0});
}

WeightedGraph weighted_graph(const Graph& graph, std::span<const std::uint8_t> is_train) {
  if (std::max(graph.rows(), graph.columns()) >= std::numeric_limits<std::uint32_t>::max())
    throw Error(ErrorKind::kInfeasible, "graph",
                "has too many nodes to be coarsened in memory; use the streaming partitioner");
  const Graph simple = symmetrise(graph);
  WeightedGraph made;
  simple.visit([&](const auto& rows) {
    made.offsets.assign(rows.offsets.begin(), rows.offsets.end());
    made.neighbours.assign(rows.neighbours.begin(), rows.neighbours.end());
  });
  made.edge_weights.assign(made.neighbours.size(), 1);
  made.node_weights.assign(made.nodes(), 1);
  made.train_weights.assign(made.nodes(), 0);
  for (std::size_t v = 0; v < is_train.size(); ++v) made.train_weights[v] = is_train[v] != 0;
  return made;
}

std::vector<std::uint32_t> find_clusters(const WeightedGraph& graph, std::uint64_t most_weight,
                                         std::uint64_t most_train, int rounds, std::uint64_t seed,
                                         std::span<const std::uint32_t> within) {
  const std::uint32_t n = graph.nodes();
  std::vector<std::uint32_t> cluster(n);
  std::iota(cluster.begin(), cluster.end(), 0);
  std::vector<std::uint64_t> weight(graph.node_weights.begin(), graph.node_weights.end());
  std::vector<std::uint64_t> train(graph.train_weights.begin(), graph.train_weights.end());
  std::vector<std::uint32_t> visit(n);
  std::iota(visit.begin(), visit.end(), 0);
  base::Rng rng(seed);
  rng.shuffle(std::span(visit));
  // Low degrees first: hubs choose last, when there are clusters to choose from.
  const auto degree_class = [&](std::uint32_t v) { return std::bit_width(graph.offsets[v + 1] - graph.offsets[v]); };
  std::stable_sort(visit.begin(), visit.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return degree_class(a) < degree_class(b); });

  std::vector<std::uint64_t> ties(n, 0);
  std::vector<std::uint32_t> touched;
  for (int round = 0; round < rounds; ++round) {
    std::uint64_t moved = 0;
    for (const std::uint32_t v : visit) {
      touched.clear();
      for (std::uint64_t i = graph.offsets[v]; i < graph.offsets[v + 1]; ++i) {
        if (!within.empty() && within[graph.neighbours[i]] != within[v]) continue;
        const std::uint32_t c = cluster[graph.neighbours[i]];
        if (ties[c] == 0) touched.push_back(c);
        ties[c] += graph.edge_weights[i];
      }
      const std::uint32_t own = cluster[v];
      std::uint32_t best = own;
      std::uint64_t most = ties[own];
      std::uint64_t same = 1;
      for (const std::uint32_t c : touched) {
        if (c == own || ties[c] < most || ties[c] == 0) continue;
        if (weight[c] + graph.node_weights[v] > most_weight || train[c] + graph.train_weights[v] > most_train) continue;
        if (ties[c] > most)
          most = ties[c], best = c, same = 1;
        else if (rng.below(++same) == 0)
          best = c;
      }
      for (const std::uint32_t c : touched) ties[c] = 0;
      if (best == own) continue;
      weight[own] -= graph.node_weights[v], weight[best] += graph.node_weights[v];
      train[own] -= graph.train_weights[v], train[best] += graph.train_weights[v];
      cluster[v] = best;
      ++moved;
    }
    if (moved < n / 100) break;
  }
  std::vector<std::uint32_t> number(n, std::numeric_limits<std::uint32_t>::max());
  std::uint32_t count = 0;
  for (std::uint32_t& c : cluster) {
    if (number[c] == std::numeric_limits<std::uint32_t>::max()) number[c] = count++;
    c = number[c];
  }
  return cluster;
}

WeightedGraph contract(const WeightedGraph& graph, std::span<const std::uint32_t> cluster_of) {
  const std::uint32_t count = cluster_of.empty() ? 0 : *std::max_element(cluster_of.begin(), cluster_of.end()) + 1;
  std::vector<std::uint32_t> first(count + 1, 0);
  for (const std::uint32_t c : cluster_of) ++first[c + 1];
  std::partial_sum(first.begin(), first.end(), first.begin());
  std::vector<std::uint32_t> members(cluster_of.size());
  std::vector<std::uint32_t> next(first.begin(), first.end() - 1);
  for (std::uint32_t v = 0; v < cluster_of.size(); ++v) members[next[cluster_of[v]]++] = v;

  WeightedGraph coarse;
  coarse.node_weights.assign(count, 0);
  coarse.train_weights.assign(count, 0);
  coarse.offsets.reserve(count + 1);
  std::vector<std::uint32_t> ties(count, 0);
  std::vector<std::uint32_t> touched;
  for (std::uint32_t c = 0; c < count; ++c) {
    touched.clear();
    for (std::uint32_t m = first[c]; m < first[c + 1]; ++m) {
      const std::uint32_t v = members[m];
      coarse.node_weights[c] += graph.node_weights[v];
      coarse.train_weights[c] += graph.train_weights[v];
      for (std::uint64_t i = graph.offsets[v]; i < graph.offsets[v + 1]; ++i) {
        const std::uint32_t other = cluster_of[graph.neighbours[i]];
        if (other == c) continue;
        if (ties[other] == 0) touched.push_back(other);
        ties[other] += graph.edge_weights[i];
      }
    }
    for (const std::uint32_t other : touched) {
      coarse.neighbours.push_back(other);
      coarse.edge_weights.push_back(ties[other]);
      ties[other] = 0;
    }
    coarse.offsets.push_back(coarse.neighbours.size());
  }
  return coarse;
}

namespace {

/// Nodes of a graph in an order that visits strongly tied ones one after the other: Prim's walk by tie strength.
std::vector<std::uint32_t> walk_by_ties(const WeightedGraph& graph) {
  const std::uint32_t n = graph.nodes();
  std::vector<std::uint32_t> order;
  std::vector<bool> done(n, false);
  std::vector<std::uint64_t> tie(n, 0);
  std::vector<std::pair<std::uint64_t, std::uint32_t>> heap;
  for (std::uint32_t start = 0; start < n; ++start) {
    if (done[start]) continue;
    heap.assign(1, {0, start});
    while (!heap.empty()) {
      std::pop_heap(heap.begin(), heap.end());
      const std::uint32_t v = heap.back().second;
      heap.pop_back();
      if (done[v]) continue;
      done[v] = true;
      order.push_back(v);
      for (std::uint64_t i = graph.offsets[v]; i < graph.offsets[v + 1]; ++i) {
        const std::uint32_t u = graph.neighbours[i];
        if (done[u]) continue;
        tie[u] += graph.edge_weights[i];
        heap.emplace_back(tie[u], u);
        std::push_heap(heap.begin(), heap.end());
      }
    }
  }
  return order;
}

}  // namespace

Order cluster_sequence(const Graph& graph, std::span<const std::uint64_t> train, std::uint64_t seed) {
  std::vector<WeightedGraph> levels;
  std::vector<std::vector<std::uint32_t>> maps;
  levels.push_back(weighted_graph(graph, {}));
  for (std::uint64_t most = 8;; most *= 8) {
    const WeightedGraph& last = levels.back();
    if (last.nodes() < 64 || most > 8 * std::uint64_t{levels[0].nodes()}) break;
    std::vector<std::uint32_t> clusters =
        find_clusters(last, most, std::numeric_limits<std::uint64_t>::max(), 5, seed + levels.size());
    WeightedGraph coarse = contract(last, clusters);
    if (coarse.nodes() == last.nodes()) break;
    maps.push_back(std::move(clusters));
    levels.push_back(std::move(coarse));
  }
  // From the top: clusters in the order of a walk, then each cluster's members in the order of a walk one level down.
  std::vector<std::uint32_t> order = walk_by_ties(levels.back());
  for (std::size_t level = maps.size(); level-- > 0;) {
    std::vector<std::uint32_t> place(order.size());
    for (std::uint32_t i = 0; i < order.size(); ++i) place[order[i]] = i;
    std::vector<std::uint32_t> members = walk_by_ties(levels[level]);
    std::stable_sort(members.begin(), members.end(),
                     [&](std::uint32_t a, std::uint32_t b) { return place[maps[level][a]] < place[maps[level][b]]; });
    order = std::move(members);
  }
  std::vector<bool> is_train(levels[0].nodes(), false);
  for (const std::uint64_t v : train) is_train.at(v) = true;
  Order sequence;
  for (const std::uint32_t v : order)
    if (is_train[v]) sequence.push_back(v);
  return sequence;
}

}  // namespace paceline::gnn
