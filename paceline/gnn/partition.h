#pragma once
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "paceline/gnn/graph.h"

namespace paceline::gnn {

enum class PartitionMethod {
  kMultilevel,  // ours: label-propagation coarsening, recursive bisection, FM refinement with two balances
  kStreaming,   // ours for graphs that do not fit: O(nodes) memory, rows are streamed several times
  kBlocks,      // BGL's blocks and assignment formula
  kMetis,       // METIS 5.1 k-way, with the training nodes as a second constraint when there are any
  kRandom
};

struct PartitionOptions {
  int parts = 4;
  PartitionMethod method = PartitionMethod::kMultilevel;
  double imbalance = 0.03;        // of nodes: the largest part over the mean part, minus one
  double train_imbalance = 0.04;  // of training nodes
  std::uint64_t seed = 1;
  int tries = 0;  // kMultilevel: independent starts, the best is kept; 0 = by size (12 below 100k edges, 1 above 1M)
};

/// Part of every node. Edges are used in both directions; self loops and duplicates count once. `is_train`: one byte
/// per node or empty. Throws Error(kUsage) for fewer than one part or more parts than nodes, Error(kInfeasible) where
/// a method's limits are exceeded.
/// kMultilevel: O(levels * edges) time, about 3x the CSR in memory. kStreaming: see stream_partition.h.
std::vector<std::uint32_t> partition(const Graph& graph, std::span<const std::uint8_t> is_train,
                                     const PartitionOptions& options);

struct PartitionQuality {
  std::uint64_t cut = 0;      // undirected edges between parts
  std::uint64_t edges = 0;    // all undirected edges
  double cross_requests = 0;  // share of expansions whose node lives in another part than its seed
  double node_imbalance = 0;  // largest part over mean part
  double train_imbalance = 0;
};

/// `fanout`: expansions of sampled neighbourhoods of up to `most_seeds` training nodes (all nodes without any), every
/// seed on its own. O(edges + samples).
PartitionQuality partition_quality(const Graph& graph, std::span<const std::uint32_t> part_of, int parts,
                                   std::span<const std::uint8_t> is_train, const std::vector<int>& fanout,
                                   std::size_t most_seeds = 2000);

/// METIS's output: the part of each node, one per line.
void write_metis_parts(const std::filesystem::path& path, std::span<const std::uint32_t> part_of);
std::vector<std::uint32_t> read_metis_parts(const std::filesystem::path& path, std::uint64_t nodes);
/// The partition configuration that DGL's distributed loader reads: graph_name, num_parts, num_nodes, num_edges,
/// part_method, halo_hops, node_map, edge_map and the files of each part. Node ids are taken to be renumbered so that
/// parts are contiguous; `order` is that numbering, by old id.
void write_dgl_config(const std::filesystem::path& path, const Graph& graph, std::span<const std::uint32_t> part_of,
                      int parts, const std::string& graph_name, const std::string& method);

}  // namespace paceline::gnn
