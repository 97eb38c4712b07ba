#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "paceline/gnn/defects.h"
#include "paceline/gnn/graph.h"
#include "paceline/gnn/read_edges.h"

namespace paceline::gnn {

struct NodeType {
  std::string name;
  std::uint64_t count = 0;
};

/// Edges of one type. Rows of `graph` are nodes of `target`, its columns nodes of `source`: a node samples the sources
/// of its incoming edges.
struct Relation {
  std::string source;
  std::string name;
  std::string target;
  Graph graph;
};

/// A graph with its node types, labels and splits. A graph without types has one node type "node" and one relation.
struct Dataset {
  std::string name;
  std::vector<NodeType> node_types;
  std::vector<Relation> relations;
  std::vector<std::int64_t> labels;  // of the first node type that has any; -1 = none
  std::vector<std::uint64_t> train, validation, test;
  std::filesystem::path features;  // of the same node type, when the dataset names them

  const Graph& graph() const { return relations.at(0).graph; }
};

struct ImportOptions {
  BuildOptions build;
  TextOptions text;
};

/// Reads what `path` is: an edge list (plain, .gz, .zst), .npy (2 x M or M x 2), .npz (scipy CSR: adj_indptr,
/// adj_indices or indptr, indices), METIS .graph, GAP .el .wel .sg .wsg, Matrix Market .mtx, our graph file, or a
/// folder with GraphBolt's metadata.yaml, OGB's raw/edge.csv.gz, or edges.csv[.gz] with labels.csv[.gz] and
/// split*.csv[.gz]. Throws Error(kBadInput) that says what is wrong when it cannot be used; smaller faults are counted.
Dataset import_dataset(const std::filesystem::path& path, const ImportOptions& options, Defects& defects);

/// The single readers, for callers that know what they have.
EdgeList read_npy_edges(const std::filesystem::path& path);
Dataset read_npz(const std::filesystem::path& path, Defects& defects);
/// METIS manual 5.1, section 4.1.1: header `n m [fmt [ncon]]`, 1-based neighbours. Checks that every edge is listed
/// from both ends and that m is right.
Graph read_metis(const std::filesystem::path& path, Defects& defects);
/// GAP benchmark suite's serialized graph: directed flag (1 byte), edges, nodes (int64), offsets, int32 neighbours,
/// and the reverse direction when directed. `weighted`: (neighbour, int32 weight) pairs.
Graph read_gap(const std::filesystem::path& path, bool weighted);
Graph read_matrix_market(const std::filesystem::path& path, const BuildOptions& options, Defects& defects);
Dataset read_ogb(const std::filesystem::path& folder, const ImportOptions& options, Defects& defects);
Dataset read_graphbolt(const std::filesystem::path& folder, const ImportOptions& options, Defects& defects);

}  // namespace paceline::gnn
