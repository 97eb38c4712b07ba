#pragma once
#include <cstdint>
#include <vector>

#include "paceline/gnn/cluster.h"

namespace paceline::gnn {

/// What each part may hold.
struct Limits {
  std::vector<std::uint64_t> weight;
  std::vector<std::uint64_t> train;
  int parts() const { return static_cast<int>(weight.size()); }
};

/// Sum of edge weights between parts, every edge once.
std::uint64_t cut_of(const WeightedGraph& graph, const std::vector<std::uint32_t>& part_of);

/// Moves nodes out of parts beyond their limits, those that cost least first; as far as there is room elsewhere.
void rebalance(const WeightedGraph& graph, std::vector<std::uint32_t>& part_of, const Limits& limits);

/// Passes of k-way Fiduccia-Mattheyses: the boundary move that gains most first, also losing ones, every node once per
/// pass, then back to the best state seen. Keeps the limits. Holds nodes * parts connection sums (4 bytes each).
/// Returns the cut.
std::uint64_t refine(const WeightedGraph& graph, std::vector<std::uint32_t>& part_of, const Limits& limits, int passes,
                     std::uint64_t seed);

}  // namespace paceline::gnn
