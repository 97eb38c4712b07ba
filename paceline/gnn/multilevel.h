#pragma once
#include <cstdint>
#include <vector>

#include "paceline/gnn/cluster.h"
#include "paceline/gnn/partition.h"

namespace paceline::gnn {

/// Coarsen, bisect recursively, refine upwards, then cycles that coarsen within the parts and refine again; several
/// tries on small graphs, the smallest cut wins.
std::vector<std::uint32_t> multilevel_partition(const WeightedGraph& graph, const PartitionOptions& options);

}  // namespace paceline::gnn
