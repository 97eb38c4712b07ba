#pragma once
#include <cstdint>
#include <vector>

#include "paceline/gnn/cluster.h"
#include "paceline/gnn/partition.h"

namespace paceline::gnn {

/// BGL's partitioner (NSDI 2023, section 3.3): blocks by breadth-first growth from random sources, small blocks
/// merged, then by falling size to the part
///   argmax_i (sum over j = 1, 2 of |P(i) and Gamma^j(B)|) * (1 - |P(i)| / C) * (1 - |T(i)| / C_T),
/// Gamma^j(B) = j-hop neighbours of block B, C = nodes / parts, C_T = training nodes / parts; in doubles.
std::vector<std::uint32_t> block_partition(const WeightedGraph& graph, const PartitionOptions& options);

}  // namespace paceline::gnn
