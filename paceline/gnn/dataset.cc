#include "paceline/gnn/dataset.h"

#include <fmt/core.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>

#include "paceline/base/error.h"
#include "paceline/gnn/graph_file.h"
#include "paceline/gnn/npy.h"

namespace paceline::gnn {
namespace fs = std::filesystem;
namespace {

[[noreturn]] void bad(const std::string& where, const std::string& what) {
  throw Error(ErrorKind::kBadInput, where, what);
}

std::optional<fs::path> first_existing(const fs::path& folder, std::initializer_list<const char*> names) {
  for (const char* name : names)
    if (fs::exists(folder / name)) return folder / name;
  return std::nullopt;
}

Dataset untyped(const fs::path& path, Graph graph) {
  Dataset dataset;
  dataset.name = path.stem().string();
  dataset.node_types.push_back({"node", std::max(graph.rows(), graph.columns())});
  dataset.relations.push_back({"node", "edge", "node", std::move(graph)});
  return dataset;
}

void check_labels(const Dataset& dataset, std::uint64_t nodes, const std::string& where) {
  if (!dataset.labels.empty() && dataset.labels.size() > nodes)
    bad(where, fmt::format("has labels for {} nodes, but the graph has {}", dataset.labels.size(), nodes));
  for (const auto* ids : {&dataset.train, &dataset.validation, &dataset.test})
    for (const std::uint64_t id : *ids)
      if (id >= nodes) bad(where, fmt::format("split names node {}, but the graph has {}", id, nodes));
}

/// edges.csv with labels and a split beside it.
Dataset read_plain_folder(const fs::path& folder, const fs::path& edge_file, const ImportOptions& options,
                          Defects& defects) {
  EdgeList edges = read_edge_text(edge_file, options.text, defects);
  std::vector<std::int64_t> labels;
  if (const auto file = first_existing(folder, {"labels.csv", "labels.csv.gz"}))
    labels = read_node_values(*file, -1, defects);
  // Nodes without edges are known from their labels only.
  BuildOptions build = options.build;
  if (!labels.empty() && !build.bipartite) {
    std::uint64_t nodes = labels.size();
    for (const auto* ids : {&edges.source, &edges.target})
      for (const std::uint64_t id : *ids) nodes = std::max(nodes, id + 1);
    edges.sources = edges.targets = nodes;
  }
  Dataset dataset = untyped(folder, build_graph(edges, build, defects));
  dataset.labels = std::move(labels);
  if (const auto file =
          first_existing(folder, {"split.csv", "split.csv.gz", "split_public.csv", "split_public.csv.gz"})) {
    const std::vector<std::int64_t> split = read_node_values(*file, -1, defects);
    for (std::uint64_t v = 0; v < split.size(); ++v)
      if (split[v] >= 0 && split[v] <= 2)
        (split[v] == 0 ? dataset.train : split[v] == 1 ? dataset.validation : dataset.test).push_back(v);
  }
  check_labels(dataset, dataset.node_types[0].count, folder.string());
  return dataset;
}

std::vector<std::uint64_t> read_ids(const fs::path& path, Defects& defects) {
  std::vector<std::uint64_t> ids;
  if (path.extension() == ".npy") {
    const base::MappedFile file(path);
    return npy_ids(parse_npy(file.text(), path.string()));
  }
  for (const std::int64_t id : read_node_values(path, -1, defects)) {
    if (id < 0)
      defects.lose("negative node id", path.string());
    else
      ids.push_back(static_cast<std::uint64_t>(id));
  }
  return ids;
}

std::string text_of(const YAML::Node& node, const char* key, const std::string& where) {
  if (!node[key]) bad(where, fmt::format("'{}' is missing", key));
  return node[key].as<std::string>();
}

EdgeList read_graphbolt_edges(const YAML::Node& edge, const fs::path& folder, const std::string& where,
                              const ImportOptions& options, Defects& defects) {
  const fs::path path = folder / text_of(edge, "path", where);
  const std::string format = text_of(edge, "format", where);
  if (format == "numpy") return read_npy_edges(path);
  if (format == "csv") return read_edge_text(path, options.text, defects);
  bad(where, fmt::format("edge format '{}', expected csv or numpy", format));
}

}  // namespace

// GraphBolt's on-disk dataset: docs of dgl.graphbolt.OnDiskDataset, "YAML specification".
Dataset read_graphbolt(const fs::path& folder, const ImportOptions& options, Defects& defects) {
  const fs::path file = folder / "metadata.yaml";
  const std::string where = file.string();
  Dataset dataset;
  try {
    const YAML::Node root = YAML::LoadFile(where);
    dataset.name = root["dataset_name"] ? root["dataset_name"].as<std::string>() : folder.filename().string();
    const YAML::Node graph = root["graph"];
    if (!graph || !graph["nodes"] || !graph["edges"]) bad(where, "'graph' with 'nodes' and 'edges' is missing");
    for (const YAML::Node& node : graph["nodes"]) {
      if (!node["num"]) bad(where, "a node type has no 'num'");
      dataset.node_types.push_back(
          {node["type"] ? node["type"].as<std::string>() : "node", node["num"].as<std::uint64_t>()});
    }
    const auto count = [&](const std::string& type) {
      for (const NodeType& each : dataset.node_types)
        if (each.name == type) return each.count;
      bad(where, fmt::format("edge type names node type '{}', which is not declared", type));
    };
    for (const YAML::Node& edge : graph["edges"]) {
      std::string type = edge["type"] ? edge["type"].as<std::string>() : "node:edge:node";
      const std::size_t first = type.find(':');
      const std::size_t second = first == std::string::npos ? first : type.find(':', first + 1);
      if (second == std::string::npos) bad(where, fmt::format("edge type '{}', expected source:relation:target", type));
      EdgeList edges = read_graphbolt_edges(edge, folder, where, options, defects);
      Relation relation{type.substr(0, first), type.substr(first + 1, second - first - 1), type.substr(second + 1), {}};
      edges.sources = count(relation.source);
      edges.targets = count(relation.target);
      BuildOptions build = options.build;
      build.bipartite = relation.source != relation.target;
      build.symmetric = build.symmetric && !build.bipartite;
      relation.graph = build_graph(edges, build, defects);
      dataset.relations.push_back(std::move(relation));
    }
    for (const YAML::Node& feature : root["feature_data"])
      if (dataset.features.empty() && feature["domain"] && feature["domain"].as<std::string>() == "node" &&
          feature["path"])
        dataset.features = folder / feature["path"].as<std::string>();
    const YAML::Node task = root["tasks"] && root["tasks"].size() > 0 ? root["tasks"][0] : YAML::Node();
    const auto read_set = [&](const char* key, std::vector<std::uint64_t>& ids) {
      if (!task || !task[key] || task[key].size() == 0) return;
      for (const YAML::Node& data : task[key][0]["data"]) {
        const std::string name = data["name"] ? data["name"].as<std::string>() : "seeds";
        const fs::path path = folder / text_of(data, "path", where);
        if (name == "seeds" || name == "seed_nodes") {
          ids = read_ids(path, defects);
        } else if (name == "labels") {
          const base::MappedFile bytes(path);
          const std::vector<std::int64_t> labels = npy_integers(parse_npy(bytes.text(), path.string()));
          for (std::size_t i = 0; i < std::min(labels.size(), ids.size()); ++i) {
            if (ids[i] >= dataset.labels.size()) dataset.labels.resize(ids[i] + 1, -1);
            dataset.labels[ids[i]] = labels[i];
          }
        }
      }
    };
    read_set("train_set", dataset.train);
    read_set("validation_set", dataset.validation);
    read_set("test_set", dataset.test);
  } catch (const YAML::Exception& error) {
    bad(where, fmt::format("line {}: {}", error.mark.line + 1, error.msg));
  }
  if (dataset.relations.empty()) bad(where, "declares no edges");
  std::uint64_t most = 0;
  for (const NodeType& type : dataset.node_types) most = std::max(most, type.count);
  check_labels(dataset, most, where);
  return dataset;
}

// OGB's raw node-property folders: raw/edge.csv.gz, raw/num-node-list.csv.gz, raw/node-label.csv.gz,
// split/*/train.csv.gz.
Dataset read_ogb(const fs::path& folder, const ImportOptions& options, Defects& defects) {
  const fs::path raw = folder / "raw";
  EdgeList edges = read_edge_text(raw / "edge.csv.gz", options.text, defects);
  if (fs::exists(raw / "num-node-list.csv.gz")) {
    const std::vector<std::int64_t> counts = read_node_values(raw / "num-node-list.csv.gz", -1, defects);
    if (counts.size() != 1 || counts[0] < 0)
      bad((raw / "num-node-list.csv.gz").string(), fmt::format("has {} graphs, expected one", counts.size()));
    edges.sources = edges.targets = static_cast<std::uint64_t>(counts[0]);
  }
  if (fs::exists(raw / "num-edge-list.csv.gz")) {
    const std::vector<std::int64_t> counts = read_node_values(raw / "num-edge-list.csv.gz", -1, defects);
    if (counts.size() == 1 && counts[0] != static_cast<std::int64_t>(edges.size()))
      bad(raw.string(),
          fmt::format("num-edge-list says {} edges, edge.csv.gz has {}; a file is cut short", counts[0], edges.size()));
  }
  Dataset dataset = untyped(folder, build_graph(edges, options.build, defects));
  if (fs::exists(raw / "node-label.csv.gz")) dataset.labels = read_node_values(raw / "node-label.csv.gz", -1, defects);
  if (fs::exists(raw / "node-feat.csv.gz")) dataset.features = raw / "node-feat.csv.gz";
  if (fs::is_directory(folder / "split")) {
    std::vector<fs::path> splits;
    for (const auto& entry : fs::directory_iterator(folder / "split")) splits.push_back(entry.path());
    std::sort(splits.begin(), splits.end());
    if (splits.size() > 1) defects.note("more than one split, the first by name is used", (folder / "split").string());
    if (!splits.empty()) {
      const auto read = [&](const char* name, std::vector<std::uint64_t>& ids) {
        if (fs::exists(splits[0] / name)) ids = read_ids(splits[0] / name, defects);
      };
      read("train.csv.gz", dataset.train);
      read("valid.csv.gz", dataset.validation);
      read("test.csv.gz", dataset.test);
    }
  }
  check_labels(dataset, dataset.node_types[0].count, folder.string());
  return dataset;
}

Dataset import_dataset(const fs::path& path, const ImportOptions& options, Defects& defects) {
  if (!fs::exists(path)) bad(path.string(), "does not exist");
  if (fs::is_directory(path)) {
    if (fs::exists(path / "metadata.yaml")) return read_graphbolt(path, options, defects);
    if (fs::exists(path / "raw" / "edge.csv.gz")) return read_ogb(path, options, defects);
    if (const auto edges = first_existing(path, {"edges.csv", "edges.csv.gz", "edges.tsv", "edges.tsv.gz"}))
      return read_plain_folder(path, *edges, options, defects);
    bad(path.string(),
        "holds no graph we know: expected metadata.yaml (GraphBolt), raw/edge.csv.gz (OGB) or edges.csv");
  }
  const std::string extension = path.extension().string();
  if (is_graph_file(path)) return untyped(path, open_graph(path));
  if (extension == ".npy") return untyped(path, build_graph(read_npy_edges(path), options.build, defects));
  if (extension == ".npz") return read_npz(path, defects);
  if (extension == ".graph" || extension == ".metis") return untyped(path, read_metis(path, defects));
  if (extension == ".sg" || extension == ".wsg") return untyped(path, read_gap(path, extension == ".wsg"));
  if (extension == ".mtx") return untyped(path, read_matrix_market(path, options.build, defects));
  return untyped(path, build_graph(read_edge_text(path, options.text, defects), options.build, defects));
}

}  // namespace paceline::gnn
