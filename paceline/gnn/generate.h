#pragma once
#include <cstdint>
#include <vector>

#include "paceline/gnn/graph.h"

namespace paceline::gnn {

/// Graph500 Kronecker (R-MAT) with A, B, C = 0.57, 0.19, 0.19, 2^scale nodes and edge_factor * 2^scale edges before
/// loops and duplicates go; undirected, node ids permuted. Same seed, same graph for any number of threads.
Graph kronecker(int scale, std::uint64_t edge_factor, std::uint64_t seed);

/// Degree-corrected stochastic block model: `blocks` planted communities of equal size, expected degrees from a power
/// law of exponent 2.5 cut at 50x the mean, a share `mixing` of every node's edges leaves its community
/// (Karrer and Newman, Phys. Rev. E 83, 016107). Undirected. `labels` receives the planted community of every node.
struct BlockModel {
  std::uint64_t nodes = 200'000;
  std::uint64_t blocks = 40;
  double mean_degree = 16;
  double mixing = 0.15;
};
Graph block_model(const BlockModel& model, std::uint64_t seed, std::vector<std::int64_t>* labels = nullptr);

/// Users (rows) by items (columns), item popularity by Zipf's law with `exponent`. Duplicates are merged.
Graph bipartite_zipf(std::uint64_t users, std::uint64_t items, std::uint64_t edges, double exponent,
                     std::uint64_t seed);

/// One node arrives per nanosecond and links to `links` earlier nodes by degree; edges carry their time.
EdgeList growing_graph(std::uint64_t nodes, std::uint64_t links, std::uint64_t seed);

}  // namespace paceline::gnn
