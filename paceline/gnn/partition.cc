#include "paceline/gnn/partition.h"

#include <fmt/core.h>
#include <metis.h>

#include <algorithm>
#include <numeric>

#include "paceline/base/error.h"
#include "paceline/base/file.h"
#include "paceline/base/json.h"
#include "paceline/base/rng.h"
#include "paceline/gnn/block_partition.h"
#include "paceline/gnn/cluster.h"
#include "paceline/gnn/multilevel.h"
#include "paceline/gnn/random.h"
#include "paceline/gnn/read_edges.h"
#include "paceline/gnn/sampler.h"
#include "paceline/gnn/stream_partition.h"

#include <nlohmann/json.hpp>

namespace paceline::gnn {
namespace {

std::vector<std::uint32_t> metis_partition(const WeightedGraph& graph, const PartitionOptions& options) {
  if (graph.neighbours.size() > static_cast<std::uint64_t>(std::numeric_limits<idx_t>::max()))
    throw Error(ErrorKind::kInfeasible, "METIS",
                fmt::format("{} adjacency entries do not fit its {}-bit ids; use multilevel or streaming",
                            graph.neighbours.size(), 8 * sizeof(idx_t)));
  const bool with_train = graph.total_train() > 0;
  auto nodes = static_cast<idx_t>(graph.nodes());
  idx_t constraints = with_train ? 2 : 1;
  auto parts = static_cast<idx_t>(options.parts);
  idx_t cut = 0;
  std::vector<idx_t> offsets(graph.offsets.begin(), graph.offsets.end());
  std::vector<idx_t> neighbours(graph.neighbours.begin(), graph.neighbours.end());
  std::vector<idx_t> weights;
  for (std::uint32_t v = 0; with_train && v < graph.nodes(); ++v) {
    weights.push_back(static_cast<idx_t>(graph.node_weights[v]));
    weights.push_back(static_cast<idx_t>(graph.train_weights[v]));
  }
  std::vector<real_t> allowed{static_cast<real_t>(1 + options.imbalance),
                              static_cast<real_t>(1 + options.train_imbalance)};
  std::vector<idx_t> part(graph.nodes(), 0);
  idx_t settings[METIS_NOPTIONS];
  METIS_SetDefaultOptions(settings);
  settings[METIS_OPTION_SEED] = static_cast<idx_t>(options.seed);
  const int status = METIS_PartGraphKway(&nodes, &constraints, offsets.data(), neighbours.data(),
                                         with_train ? weights.data() : nullptr, nullptr, nullptr, &parts, nullptr,
                                         allowed.data(), settings, &cut, part.data());
  if (status != METIS_OK) throw Error(ErrorKind::kSystem, "METIS", fmt::format("failed with status {}", status));
  return {part.begin(), part.end()};
}

}  // namespace

std::vector<std::uint32_t> partition(const Graph& graph, std::span<const std::uint8_t> is_train,
                                     const PartitionOptions& options) {
  const std::uint64_t nodes = std::max(graph.rows(), graph.columns());
  if (options.parts < 1)
    throw Error(ErrorKind::kUsage, "partition", fmt::format("{} parts, expected 1 or more", options.parts));
  if (static_cast<std::uint64_t>(options.parts) > std::max<std::uint64_t>(1, nodes))
    throw Error(ErrorKind::kUsage, "partition", fmt::format("{} parts of {} nodes", options.parts, nodes));
  if (!is_train.empty() && is_train.size() != nodes)
    throw Error(ErrorKind::kUsage, "partition",
                fmt::format("training marks for {} nodes, the graph has {}", is_train.size(), nodes));
  if (options.parts == 1 || nodes == 0) return std::vector<std::uint32_t>(nodes, 0);
  if (options.method == PartitionMethod::kRandom) {
    std::vector<std::uint32_t> part(nodes);
    for (std::uint64_t v = 0; v < nodes; ++v)
      part[v] = CounterRandom(key_of(options.seed, v)).below32(static_cast<std::uint32_t>(options.parts));
    return part;
  }
  if (options.method == PartitionMethod::kStreaming) return stream_partition(graph, is_train, options);
  const WeightedGraph weighted = weighted_graph(graph, is_train);
  switch (options.method) {
    case PartitionMethod::kMetis:
      return metis_partition(weighted, options);
    case PartitionMethod::kBlocks:
      return block_partition(weighted, options);
    default:
      return multilevel_partition(weighted, options);
  }
}

PartitionQuality partition_quality(const Graph& graph, std::span<const std::uint32_t> part_of, int parts,
                                   std::span<const std::uint8_t> is_train, const std::vector<int>& fanout,
                                   std::size_t most_seeds) {
  PartitionQuality quality;
  std::vector<std::uint64_t> nodes(static_cast<std::size_t>(parts), 0);
  std::vector<std::uint64_t> train(static_cast<std::size_t>(parts), 0);
  std::vector<std::uint64_t> seeds;
  for (std::size_t v = 0; v < part_of.size(); ++v) {
    PL_CHECK(part_of[v] < nodes.size());
    ++nodes[part_of[v]];
    const bool trains = is_train.empty() || is_train[v] != 0;
    train[part_of[v]] += trains;
    if (trains && v < graph.rows()) seeds.push_back(v);
  }
  const auto imbalance = [&](const std::vector<std::uint64_t>& counts) {
    const auto total = static_cast<double>(std::accumulate(counts.begin(), counts.end(), std::uint64_t{0}));
    return total == 0 ? 1.0 : static_cast<double>(*std::max_element(counts.begin(), counts.end())) * parts / total;
  };
  quality.node_imbalance = imbalance(nodes);
  quality.train_imbalance = imbalance(train);
  const Graph simple = symmetrise(graph);
  simple.visit([&](const auto& rows) {
    for (std::uint64_t v = 0; v < rows.rows(); ++v)
      for (const auto u : rows.row(v)) quality.cut += u > v && part_of[u] != part_of[v];
    quality.edges = rows.edges() / 2;
  });
  base::Rng rng(17);
  rng.shuffle(std::span(seeds));
  seeds.resize(std::min(seeds.size(), most_seeds));
  graph.visit([&](const auto& rows) {
    using Node = std::remove_cvref_t<decltype(rows.neighbours[0])>;
    Sampler<Node> sampler(rows, graph.columns(), {.fanout = fanout, .seed = 17});
    Sample<Node> sample;
    std::uint64_t crossing = 0;
    std::uint64_t expansions = 0;
    for (std::size_t i = 0; i < seeds.size(); ++i) {
      const std::vector<Node> seed{static_cast<Node>(seeds[i])};
      sampler.sample(seed, {0, i}, sample);
      // Nodes of the last hop are not expanded.
      for (std::size_t k = 0; k < sample.nodes.size() - sample.nodes_per_hop.back(); ++k, ++expansions)
        crossing += part_of[sample.nodes[k]] != part_of[seeds[i]];
    }
    quality.cross_requests = expansions == 0 ? 0 : static_cast<double>(crossing) / static_cast<double>(expansions);
  });
  return quality;
}

void write_metis_parts(const std::filesystem::path& path, std::span<const std::uint32_t> part_of) {
  std::string text;
  for (const std::uint32_t part : part_of) text += fmt::format("{}\n", part);
  base::write_text_file(path, text);
}

std::vector<std::uint32_t> read_metis_parts(const std::filesystem::path& path, std::uint64_t nodes) {
  Defects defects;
  const std::vector<std::int64_t> values = read_node_values(path, -1, defects);
  if (defects.damaged())
    throw Error(ErrorKind::kBadInput, path.string(), "is not a partition file:\n" + defects.to_string());
  if (values.size() != nodes)
    throw Error(ErrorKind::kBadInput, path.string(),
                fmt::format("has {} lines, the graph has {} nodes", values.size(), nodes));
  for (std::size_t v = 0; v < values.size(); ++v)
    if (values[v] < 0 || values[v] > 0xFFFFFF)
      throw Error(ErrorKind::kBadInput, fmt::format("{}:{}", path.string(), v + 1),
                  fmt::format("part {}, expected 0 or more", values[v]));
  return {values.begin(), values.end()};
}

void write_dgl_config(const std::filesystem::path& path, const Graph& graph, std::span<const std::uint32_t> part_of,
                      int parts, const std::string& graph_name, const std::string& method) {
  std::vector<std::uint64_t> nodes(static_cast<std::size_t>(parts), 0);
  std::vector<std::uint64_t> edges(static_cast<std::size_t>(parts), 0);
  graph.visit([&](const auto& rows) {  // an edge belongs to the part of its target, as in DGL
    for (std::uint64_t v = 0; v < part_of.size(); ++v) {
      ++nodes[part_of[v]];
      if (v < rows.rows()) edges[part_of[v]] += rows.degree(v);
    }
  });
  base::Json json;
  json["graph_name"] = graph_name;
  json["num_parts"] = parts;
  json["num_nodes"] = part_of.size();
  json["num_edges"] = graph.edges();
  json["part_method"] = method;
  json["halo_hops"] = 1;
  const auto ranges = [](const std::vector<std::uint64_t>& counts) {
    base::Json map = base::Json::array();
    std::uint64_t begin = 0;
    for (const std::uint64_t count : counts) {
      map.push_back({begin, begin + count});
      begin += count;
    }
    return map;
  };
  json["node_map"] = {{"_N", ranges(nodes)}};
  json["edge_map"] = {{"_E", ranges(edges)}};
  json["ntypes"] = {{"_N", 0}};
  json["etypes"] = {{"_E", 0}};
  for (int p = 0; p < parts; ++p) {
    const std::string folder = fmt::format("part{}", p);
    json[fmt::format("part-{}", p)] = {{"node_feats", folder + "/node_feat.dgl"},
                                       {"edge_feats", folder + "/edge_feat.dgl"},
                                       {"part_graph", folder + "/graph.dgl"}};
  }
  base::write_text_file(path, base::to_text(json));
}

}  // namespace paceline::gnn
