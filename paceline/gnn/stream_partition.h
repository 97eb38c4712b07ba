#pragma once
#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "paceline/gnn/graph.h"
#include "paceline/gnn/partition.h"

namespace paceline::gnn {

/// Partitions a graph by streaming its rows: first assignment by ties minus a load penalty (Fennel, Tsourakakis et al.
/// 2014), then passes of balanced label propagation over the rows. Memory beside the graph: 4 bytes per node, a few
/// kilobytes per part and the row buffer. O(passes * edges). Needs a symmetric graph for a good cut; others work.
std::vector<std::uint32_t> stream_partition(const Graph& graph, std::span<const std::uint8_t> is_train,
                                            const PartitionOptions& options);

/// The same for a graph file that does not fit into memory: rows come through pread into a buffer of `buffer_bytes`,
/// nothing is mapped. Resident memory stays below 6 * nodes + 2 * buffer_bytes + 8 MiB beyond the program itself.
std::vector<std::uint32_t> stream_partition_file(const std::filesystem::path& path,
                                                 std::span<const std::uint8_t> is_train,
                                                 const PartitionOptions& options,
                                                 std::size_t buffer_bytes = std::size_t{8} << 20);

}  // namespace paceline::gnn
