#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "paceline/base/file.h"
#include "paceline/gnn/defects.h"

namespace paceline::gnn {

/// One adjacency in compressed rows: row v lists the nodes that v samples from. Edge positions are 64 bits wide
/// everywhere; node ids are 32 bits wide unless the graph has 2^32 - 1 nodes or more.
template <class Node>
struct Rows {
  std::span<const std::uint64_t> offsets;   // rows + 1, ascending, first 0
  std::span<const Node> neighbours;         // edges
  std::span<const float> weights;           // edges, or empty
  std::span<const std::int64_t> times;      // edges, or empty; ascending within each row
  std::span<const std::uint64_t> edge_ids;  // edges, or empty when an edge's id is its position

  std::uint64_t rows() const { return offsets.empty() ? 0 : offsets.size() - 1; }
  std::uint64_t edges() const { return neighbours.size(); }
  std::uint64_t degree(std::uint64_t row) const { return offsets[row + 1] - offsets[row]; }
  std::span<const Node> row(std::uint64_t v) const { return neighbours.subspan(offsets[v], degree(v)); }
  std::uint64_t edge_id(std::uint64_t position) const { return edge_ids.empty() ? position : edge_ids[position]; }
};

/// The columns of a graph held in memory.
template <class Node>
struct RowStore {
  std::vector<std::uint64_t> offsets{0};
  std::vector<Node> neighbours;
  std::vector<float> weights;
  std::vector<std::int64_t> times;
  std::vector<std::uint64_t> edge_ids;

  Rows<Node> view() const { return {offsets, neighbours, weights, times, edge_ids}; }
};

/// A graph (or one relation between two node types: rows are targets, columns sources), in memory or mapped from a
/// file. Movable; views stay valid for its life. One of the two widths is in use.
class Graph {
 public:
  Graph() : Graph(RowStore<std::uint32_t>{}, 0) {}
  Graph(RowStore<std::uint32_t> store, std::uint64_t columns);
  Graph(RowStore<std::uint64_t> store, std::uint64_t columns);
  Graph(std::unique_ptr<base::MappedFile> file, Rows<std::uint32_t> rows, std::uint64_t columns);
  Graph(std::unique_ptr<base::MappedFile> file, Rows<std::uint64_t> rows, std::uint64_t columns);
  Graph(Graph&&) = default;
  Graph& operator=(Graph&&) = default;

  std::uint64_t rows() const { return wide_ ? rows64_.rows() : rows32_.rows(); }
  std::uint64_t columns() const { return columns_; }
  std::uint64_t edges() const { return wide_ ? rows64_.edges() : rows32_.edges(); }
  bool wide() const { return wide_; }
  /// Bytes of all columns.
  std::uint64_t bytes() const;

  const Rows<std::uint32_t>& narrow_rows() const { return rows32_; }
  const Rows<std::uint64_t>& wide_rows() const { return rows64_; }
  /// Calls visit(Rows<uint32_t>) or visit(Rows<uint64_t>).
  template <class Visit>
  decltype(auto) visit(Visit&& visitor) const {
    return wide_ ? visitor(rows64_) : visitor(rows32_);
  }

 private:
  bool wide_ = false;
  std::uint64_t columns_ = 0;
  RowStore<std::uint32_t> store32_;
  RowStore<std::uint64_t> store64_;
  std::unique_ptr<base::MappedFile> file_;
  Rows<std::uint32_t> rows32_;
  Rows<std::uint64_t> rows64_;
};

/// Edges as they come from a file, in its order.
struct EdgeList {
  std::vector<std::uint64_t> source;
  std::vector<std::uint64_t> target;
  std::vector<float> weight;             // empty or one per edge
  std::vector<std::int64_t> time;        // empty or one per edge, nanoseconds
  std::optional<std::uint64_t> sources;  // as declared by the input
  std::optional<std::uint64_t> targets;
  std::string where;  // the input, for messages

  std::size_t size() const { return source.size(); }
  void add(std::uint64_t from, std::uint64_t to) {
    source.push_back(from);
    target.push_back(to);
  }
};

struct BuildOptions {
  bool bipartite = false;  // sources and targets are different kinds of node
  bool symmetric = false;  // add every edge's reverse; implies one node count
  bool drop_self_loops = false;
  bool merge_duplicates = false;  // keeps the first of equal (source, target); never with times
  bool keep_edge_ids = true;      // edge ids are rows of the input (the reverse of edge e has e's id)
  bool rows_by_source = false;    // row v lists where v's edges go, instead of where they come from
  bool force_wide = false;
};

/// Sorts edges into rows by counting, then each row by (time, neighbour): O(edges + sum of row sorts).
/// Throws Error(kBadInput) when an id is not below the declared count, naming the edge. Counts self loops, duplicates
/// and missing reverse edges (of symmetric inputs) as notes.
Graph build_graph(const EdgeList& edges, const BuildOptions& options, Defects& defects);

/// Whether every edge has its reverse; the first that has none otherwise. O(edges log degree).
struct Asymmetry {
  std::uint64_t missing = 0;
  std::uint64_t row = 0;
  std::uint64_t neighbour = 0;
};
Asymmetry find_asymmetry(const Graph& graph);

/// The undirected simple graph below `graph`: reverse edges added, loops and duplicates removed, no edge columns.
Graph symmetrise(const Graph& graph);

/// Checks ascending offsets, ids in range, ascending times; throws Error(kBadInput) naming the first bad row.
void validate(const Graph& graph, const std::string& where);

}  // namespace paceline::gnn
