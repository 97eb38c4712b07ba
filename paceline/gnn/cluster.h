#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "paceline/gnn/graph.h"

namespace paceline::gnn {

/// An undirected graph with weights, as coarsening makes them: every edge is listed from both ends, no loops. Nodes
/// weigh what they stand for: nodes and training nodes of the original graph.
struct WeightedGraph {
  std::vector<std::uint64_t> offsets{0};
  std::vector<std::uint32_t> neighbours;
  std::vector<std::uint32_t> edge_weights;
  std::vector<std::uint32_t> node_weights;
  std::vector<std::uint32_t> train_weights;

  std::uint32_t nodes() const { return static_cast<std::uint32_t>(offsets.size() - 1); }
  std::uint64_t total_weight() const;
  std::uint64_t total_train() const;
};

/// The undirected simple graph of `graph` with unit weights; `is_train` may be empty.
WeightedGraph weighted_graph(const Graph& graph, std::span<const std::uint8_t> is_train);

/// Size-constrained label propagation (Meyerhenke, Sanders and Schulz 2014): every node in turn joins the cluster it
/// is tied to most, as long as that stays within `most_weight` (and `most_train`). Clusters are numbered from 0 by
/// first node. Nodes of different parts of `within` (may be empty) never share a cluster. O(rounds * edges),
/// deterministic by seed.
std::vector<std::uint32_t> find_clusters(const WeightedGraph& graph, std::uint64_t most_weight,
                                         std::uint64_t most_train, int rounds, std::uint64_t seed,
                                         std::span<const std::uint32_t> within = {});

/// One node per cluster, weights summed.
WeightedGraph contract(const WeightedGraph& graph, std::span<const std::uint32_t> cluster_of);

}  // namespace paceline::gnn
