#include "paceline/gnn/partition.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "paceline/base/error.h"
#include "paceline/base/json.h"
#include "paceline/base/rng.h"
#include "paceline/gnn/cluster.h"
#include "paceline/gnn/generate.h"
#include "paceline/gnn/graph_file.h"
#include "paceline/gnn/refine.h"
#include "paceline/gnn/stream_partition.h"

namespace paceline::gnn {
namespace {
namespace fs = std::filesystem;

constexpr PartitionMethod kMethods[] = {PartitionMethod::kMultilevel, PartitionMethod::kStreaming,
                                        PartitionMethod::kBlocks, PartitionMethod::kMetis, PartitionMethod::kRandom};

std::vector<std::uint8_t> some_train(std::uint64_t nodes) {
  base::Rng rng(3);
  std::vector<std::uint8_t> train(nodes);
  for (std::uint8_t& mark : train) mark = rng.chance(0.6);
  return train;
}

TEST(Partition, EveryMethodNamesAPartForEveryNode) {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    // Isolated nodes and small components included.
    const Graph graph = block_model({.nodes = 500, .blocks = 5, .mean_degree = 2}, seed);
    const std::vector<std::uint8_t> train = some_train(500);
    for (const PartitionMethod method : kMethods) {
      for (const int parts : {1, 2, 7}) {
        const PartitionOptions options{.parts = parts, .method = method, .seed = seed, .tries = 1};
        const std::vector<std::uint32_t> part = partition(graph, train, options);
        ASSERT_EQ(part.size(), 500u);
        EXPECT_LT(*std::max_element(part.begin(), part.end()), static_cast<std::uint32_t>(parts));
        EXPECT_EQ(part, partition(graph, train, options));
      }
    }
  }
}

TEST(Partition, MultilevelKeepsBothBalances) {
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    const Graph graph = seed % 2 == 0 ? kronecker(10, 8, seed) : block_model({.nodes = 3000, .blocks = 30}, seed);
    const std::vector<std::uint8_t> train = some_train(graph.rows());
    for (const int parts : {2, 4, 16}) {
      const auto part = partition(graph, train, {.parts = parts, .seed = seed, .tries = 1});
      const PartitionQuality quality = partition_quality(graph, part, parts, train, {5, 5}, 50);
      EXPECT_LE(quality.node_imbalance, 1.05);
      EXPECT_LE(quality.train_imbalance, 1.05);
    }
  }
}

TEST(Partition, FindsThePlantedParts) {
  std::vector<std::int64_t> labels;
  const Graph graph = block_model({.nodes = 4000, .blocks = 4, .mixing = 0.1}, 5, &labels);
  const auto part = partition(graph, {}, {.parts = 4, .imbalance = 0.01, .tries = 1});
  std::uint64_t planted = 0;
  for (std::uint64_t v = 0; v < graph.rows(); ++v)
    for (const std::uint32_t u : graph.narrow_rows().row(v)) planted += u > v && labels[u] != labels[v];
  EXPECT_LE(partition_quality(graph, part, 4, {}, {5}, 10).cut, planted * 101 / 100);
}

TEST(Partition, RefinementNeverRaisesTheCutAndReportsItRight) {
  base::Rng rng(1);
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    const WeightedGraph graph = weighted_graph(kronecker(8, 4, seed), {});
    std::vector<std::uint32_t> part(graph.nodes());
    for (std::uint32_t v = 0; v < graph.nodes(); ++v) part[v] = v % 4;
    const std::uint64_t before = cut_of(graph, part);
    const Limits limits{{70, 70, 70, 70}, {1000, 1000, 1000, 1000}};
    const std::uint64_t after = refine(graph, part, limits, 5, seed);
    EXPECT_LE(after, before);
    EXPECT_EQ(after, cut_of(graph, part));
    for (std::uint32_t p = 0; p < 4; ++p) EXPECT_LE(std::count(part.begin(), part.end(), p), 70);
  }
}

TEST(Partition, RebalancingEmptiesWhatIsTooFull) {
  const WeightedGraph graph = weighted_graph(kronecker(8, 4, 2), {});
  std::vector<std::uint32_t> part(graph.nodes(), 0);
  rebalance(graph, part, {{70, 70, 70, 70}, {1000, 1000, 1000, 1000}});
  for (std::uint32_t p = 0; p < 4; ++p) EXPECT_LE(std::count(part.begin(), part.end(), p), 70);
}

TEST(Partition, TheFileIsStreamedLikeTheGraph) {
  const fs::path path = fs::temp_directory_path() / ("paceline_gnn_stream_" + std::to_string(::getpid()));
  const Graph graph = kronecker(12, 8, 3);
  write_graph(path, graph);
  const std::vector<std::uint8_t> train = some_train(graph.rows());
  const PartitionOptions options{.parts = 5, .method = PartitionMethod::kStreaming};
  for (const std::size_t buffer : {64, 4096, 1 << 20})
    EXPECT_EQ(stream_partition_file(path, train, options, buffer), partition(graph, train, options));
  fs::resize_file(path, 4096 + 100);
  EXPECT_THROW(stream_partition_file(path, train, options), Error);
  fs::remove(path);
}

TEST(Partition, FilesForMetisAndDgl) {
  const fs::path path = fs::temp_directory_path() / ("paceline_gnn_parts_" + std::to_string(::getpid()));
  write_metis_parts(path, std::vector<std::uint32_t>{0, 2, 1});
  EXPECT_EQ(base::read_text_file(path), "0\n2\n1\n");
  EXPECT_EQ(read_metis_parts(path, 3), (std::vector<std::uint32_t>{0, 2, 1}));
  EXPECT_THROW(read_metis_parts(path, 4), Error);
  base::write_text_file(path, "0\nx\n");
  EXPECT_THROW(read_metis_parts(path, 2), Error);
  EdgeList edges;
  edges.add(0, 1);
  edges.add(1, 2);
  Defects defects;
  write_dgl_config(path, build_graph(edges, {}, defects), std::vector<std::uint32_t>{0, 1, 1}, 2, "g", "paceline");
  const base::Json json = base::parse_json(base::read_text_file(path), "config");
  EXPECT_EQ(json["num_parts"], 2);
  EXPECT_EQ(json["node_map"]["_N"], base::Json::parse("[[0,1],[1,3]]"));
  EXPECT_EQ(json["edge_map"]["_E"], base::Json::parse("[[0,0],[0,2]]"));
  fs::remove(path);
}

TEST(Partition, SaysWhatCannotBe) {
  const Graph graph = kronecker(4, 2, 1);
  EXPECT_THROW(partition(graph, {}, {.parts = 0}), Error);
  EXPECT_THROW(partition(graph, {}, {.parts = 17}), Error);
  EXPECT_THROW(partition(graph, std::vector<std::uint8_t>(3), {.parts = 2}), Error);
}

}  // namespace
}  // namespace paceline::gnn
