#include "paceline/gnn/graph.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "paceline/base/error.h"
#include "paceline/base/rng.h"
#include "paceline/gnn/generate.h"
#include "paceline/gnn/graph_file.h"

namespace paceline::gnn {
namespace {
namespace fs = std::filesystem;

class GraphFile : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("paceline_gnn_graph_" + std::to_string(::getpid()));
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  void damage(const fs::path& path, std::streamoff at) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(at);
    const auto byte = static_cast<char>(file.get() ^ 0x10);
    file.seekp(at);
    file.put(byte);
  }
  std::string error_of(const fs::path& path) {
    try {
      open_graph(path);
    } catch (const Error& error) {
      return error.what();
    }
    return "none";
  }
  fs::path folder_;
};

EdgeList random_edges(std::uint64_t nodes, std::size_t count, std::uint64_t seed) {
  base::Rng rng(seed);
  EdgeList edges;
  edges.sources = edges.targets = nodes;
  for (std::size_t e = 0; e < count; ++e) {
    edges.add(rng.below(nodes), rng.below(nodes));
    edges.weight.push_back(static_cast<float>(rng.uniform()));
    edges.time.push_back(static_cast<std::int64_t>(rng.below(50)));
  }
  return edges;
}

TEST(BuildGraph, KeepsEveryEdgeWithItsColumns) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    const EdgeList edges = random_edges(1 + seed, 200, seed);
    Defects defects;
    const Graph graph = build_graph(edges, {.force_wide = seed % 2 == 1}, defects);
    ASSERT_EQ(graph.edges(), edges.size());
    EXPECT_EQ(graph.wide(), seed % 2 == 1);
    graph.visit([&](const auto& rows) {
      std::vector<bool> seen(edges.size(), false);
      for (std::uint64_t v = 0; v < rows.rows(); ++v) {
        for (std::uint64_t i = rows.offsets[v]; i < rows.offsets[v + 1]; ++i) {
          const std::uint64_t e = rows.edge_ids[i];
          EXPECT_FALSE(seen[e]);
          seen[e] = true;
          EXPECT_EQ(edges.target[e], v);
          EXPECT_EQ(edges.source[e], rows.neighbours[i]);
          EXPECT_EQ(edges.weight[e], rows.weights[i]);
          EXPECT_EQ(edges.time[e], rows.times[i]);
        }
      }
    });
    validate(graph, "test");
  }
}

TEST(BuildGraph, NamesTheEdgeBeyondTheDeclaredCount) {
  EdgeList edges;
  edges.where = "edges.csv";
  edges.add(0, 1);
  edges.add(7, 1);
  edges.sources = edges.targets = 5;
  Defects defects;
  try {
    build_graph(edges, {}, defects);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()),
              "edges.csv, edge 1: source 7 is not below the declared number of nodes 5; correct the count or the ids "
              "(0-based)");
  }
}

TEST(BuildGraph, CountsLoopsAndDuplicates) {
  EdgeList edges;
  for (const auto& [from, to] : {std::pair{0, 1}, {0, 1}, {2, 2}, {1, 0}})
    edges.add(static_cast<std::uint64_t>(from), static_cast<std::uint64_t>(to));
  Defects defects;
  const Graph graph =
      build_graph(edges, {.symmetric = true, .drop_self_loops = true, .merge_duplicates = true}, defects);
  EXPECT_EQ(graph.edges(), 2u);
  EXPECT_EQ(defects.find("self loop, removed")->count, 1u);
  EXPECT_EQ(defects.find("duplicate edge, merged")->count, 4u);
  EXPECT_EQ(find_asymmetry(graph).missing, 0u);
}

TEST(BuildGraph, SymmetriseIsTheUndirectedSimpleGraph) {
  Defects defects;
  const EdgeList edges = random_edges(40, 300, 5);
  const Graph graph = symmetrise(build_graph(edges, {}, defects));
  EXPECT_EQ(find_asymmetry(graph).missing, 0u);
  std::set<std::pair<std::uint64_t, std::uint64_t>> pairs;
  for (std::size_t e = 0; e < edges.size(); ++e) {
    if (edges.source[e] == edges.target[e]) continue;
    pairs.emplace(edges.source[e], edges.target[e]);
    pairs.emplace(edges.target[e], edges.source[e]);
  }
  EXPECT_EQ(graph.edges(), pairs.size());
}

TEST_F(GraphFile, ReadsBackWhatItWrote) {
  for (const bool wide : {false, true}) {
    Defects defects;
    const Graph graph = build_graph(random_edges(300, 5000, 3), {.force_wide = wide}, defects);
    write_graph(folder_ / "g", graph);
    const Graph back = open_graph(folder_ / "g");
    EXPECT_TRUE(is_graph_file(folder_ / "g"));
    EXPECT_EQ(back.columns(), graph.columns());
    ASSERT_EQ(back.wide(), wide);
    const auto same = [](const auto& a, const auto& b) {
      return std::ranges::equal(a.offsets, b.offsets) && std::ranges::equal(a.neighbours, b.neighbours) &&
             std::ranges::equal(a.weights, b.weights) && std::ranges::equal(a.times, b.times) &&
             std::ranges::equal(a.edge_ids, b.edge_ids);
    };
    EXPECT_TRUE(wide ? same(graph.wide_rows(), back.wide_rows()) : same(graph.narrow_rows(), back.narrow_rows()));
  }
}

TEST_F(GraphFile, NamesEveryKindOfDamage) {
  Defects defects;
  const fs::path path = folder_ / "g";
  write_graph(path, build_graph(random_edges(2000, 5000, 3), {}, defects));
  const std::string text = base::read_text_file(path);
  const auto rewrite = [&](std::string_view content) { std::ofstream(path, std::ios::binary) << content; };

  rewrite("hello");
  EXPECT_NE(error_of(path).find("is not a Paceline graph file"), std::string::npos);
  rewrite(text);
  damage(path, 8);  // the version
  EXPECT_NE(error_of(path).find("graph file version 17"), std::string::npos) << error_of(path);
  rewrite(text);
  damage(path, 16);
  EXPECT_NE(error_of(path).find("header is damaged"), std::string::npos);
  rewrite(std::string_view(text).substr(0, text.size() / 2));
  EXPECT_NE(error_of(path).find("is cut short: column"), std::string::npos) << error_of(path);
  rewrite(text);
  damage(path, 4096 + 20000);
  EXPECT_NE(error_of(path).find("column neighbours is damaged"), std::string::npos) << error_of(path);
  rewrite(text);
  EXPECT_EQ(error_of(path), "none");
  EXPECT_FALSE(fs::exists(folder_ / "g.part"));
}

TEST_F(GraphFile, RefusesRowsThatBreakTheRules) {
  const fs::path path = folder_ / "g";
  {
    GraphWriter writer(path, {.rows = 3, .columns = 3, .edges = 2});
    writer.offsets()[1] = 1;
    writer.offsets()[2] = 1;
    writer.offsets()[3] = 2;
    writer.narrow_neighbours()[1] = 9;
    writer.finish();
  }
  EXPECT_NE(error_of(path).find("row 2: neighbour 9 is not below the number of nodes 3"), std::string::npos)
      << error_of(path);
  {
    GraphWriter writer(path, {.rows = 2, .columns = 2, .edges = 2});
    writer.offsets()[1] = 5;
    writer.offsets()[2] = 2;
    writer.finish();
  }
  EXPECT_NE(error_of(path).find("do not ascend"), std::string::npos) << error_of(path);
}

TEST(Generators, DependOnTheSeedOnly) {
  const Graph a = kronecker(10, 8, 1);
  const Graph b = kronecker(10, 8, 1);
  EXPECT_TRUE(std::ranges::equal(a.narrow_rows().neighbours, b.narrow_rows().neighbours));
  EXPECT_EQ(find_asymmetry(a).missing, 0u);
  std::vector<std::int64_t> labels;
  const Graph c = block_model({.nodes = 20000, .blocks = 20}, 3, &labels);
  std::uint64_t inside = 0;
  for (std::uint64_t v = 0; v < c.rows(); ++v)
    for (const std::uint32_t u : c.narrow_rows().row(v)) inside += labels[u] == labels[v];
  // A share of 1 - mixing = 0.85 of the edges stays inside its community.
  EXPECT_NEAR(static_cast<double>(inside) / static_cast<double>(c.edges()), 0.85, 0.02);
  const Graph d = bipartite_zipf(500, 100, 4000, 1.0, 9);
  EXPECT_EQ(d.rows(), 500u);
  EXPECT_EQ(d.columns(), 100u);
  Defects defects;
  const Graph e = build_graph(growing_graph(1000, 4, 2), {}, defects);
  validate(e, "growing");
}

}  // namespace
}  // namespace paceline::gnn
