#include "paceline/gnn/sampler.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <map>
#include <numeric>
#include <set>

#include "paceline/base/error.h"
#include "paceline/base/parallel.h"
#include "paceline/base/rng.h"
#include "paceline/gnn/generate.h"
#include "paceline/gnn/graph_file.h"
#include "paceline/gnn/hetero_sampler.h"
#include "paceline/gnn/reference.h"

namespace paceline::gnn {
namespace {

/// One row with `neighbours` entries: node 0 draws from all.
Graph star(std::uint64_t neighbours) {
  RowStore<std::uint32_t> store;
  store.offsets = {0, neighbours};
  for (std::uint64_t i = 0; i < neighbours; ++i) store.neighbours.push_back(static_cast<std::uint32_t>(i));
  return Graph(std::move(store), neighbours);
}

EdgeList random_edges(std::uint64_t nodes, std::size_t count, std::uint64_t seed) {
  base::Rng rng(seed);
  EdgeList edges;
  edges.sources = edges.targets = nodes;
  for (std::size_t e = 0; e < count; ++e) {
    edges.add(rng.below(nodes), rng.below(nodes));
    edges.weight.push_back(static_cast<float>(rng.below(4)));
    edges.time.push_back(static_cast<std::int64_t>(rng.below(100)));
  }
  return edges;
}

template <class Node>
void expect_well_formed(const Rows<Node>& rows, const Sample<Node>& sample, const EdgeList& edges) {
  const std::uint64_t nodes =
      std::accumulate(sample.nodes_per_hop.begin(), sample.nodes_per_hop.end(), std::uint64_t{0});
  ASSERT_EQ(nodes, sample.nodes.size());
  ASSERT_EQ(std::accumulate(sample.edges_per_hop.begin(), sample.edges_per_hop.end(), std::uint64_t{0}),
            sample.source.size());
  ASSERT_LT(*std::max_element(sample.nodes.begin(), sample.nodes.end()), rows.rows());
  for (std::size_t i = 0; i < sample.source.size(); ++i) {
    EXPECT_EQ(edges.source[sample.edge_ids[i]], sample.nodes[sample.source[i]]);
    EXPECT_EQ(edges.target[sample.edge_ids[i]], sample.nodes[sample.target[i]]);
  }
}

TEST(Sampler, DrawsEdgesOfTheGraphOnceAndAsManyAsAsked) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const EdgeList edges = random_edges(20 + seed, 10 * (20 + seed), seed);
    Defects defects;
    const Graph graph = build_graph(edges, {}, defects);
    const auto& rows = graph.narrow_rows();
    Sampler<std::uint32_t> sampler(rows, graph.columns(), {.fanout = {7, 3}, .seed = seed});
    Sample<std::uint32_t> sample;
    const std::vector<std::uint32_t> seeds{3, 1, 3, 7};
    sampler.sample(seeds, {0, seed}, sample);
    expect_well_formed(rows, sample, edges);
    EXPECT_EQ(sample.nodes_per_hop[0], 3u);  // 3 occurs twice
    EXPECT_EQ(std::set(sample.nodes.begin(), sample.nodes.end()).size(), sample.nodes.size());
    EXPECT_EQ(std::set(sample.edge_ids.begin(), sample.edge_ids.end()).size(), sample.edge_ids.size());
    std::map<std::uint32_t, std::uint64_t> drawn;
    for (const std::uint32_t target : sample.target) ++drawn[target];
    for (std::uint32_t i = 0; i < sample.nodes_per_hop[0] + sample.nodes_per_hop[1]; ++i)
      EXPECT_EQ(drawn[i], std::min<std::uint64_t>(rows.degree(sample.nodes[i]), i < 3 ? 7 : 3));
  }
}

TEST(Sampler, WideAndNarrowHashedAndDenseNumbersAgree) {
  const EdgeList edges = random_edges(500, 5000, 1);
  Defects defects;
  const Graph narrow = build_graph(edges, {}, defects);
  const Graph wide = build_graph(edges, {.force_wide = true}, defects);
  const SampleOptions options{.fanout = {5, 5}, .seed = 3};
  Sampler<std::uint32_t> a(narrow.narrow_rows(), 500, options);
  Sampler<std::uint64_t> b(wide.wide_rows(), std::uint64_t{1} << 40, options);  // so many columns: numbers by hash
  Sample<std::uint32_t> x;
  Sample<std::uint64_t> y;
  for (std::uint32_t i = 0; i < 50; ++i) {
    a.sample(std::vector<std::uint32_t>{i, i + 1}, {0, i}, x);
    b.sample(std::vector<std::uint64_t>{i, i + 1}, {0, i}, y);
    EXPECT_TRUE(std::ranges::equal(x.nodes, y.nodes));
    EXPECT_EQ(x.edge_ids, y.edge_ids);
    EXPECT_EQ(x.source, y.source);
  }
}

TEST(Sampler, DoesNotDependOnThreads) {
  const Graph graph = kronecker(12, 8, 1);
  std::vector<std::uint32_t> seeds(4000);
  std::iota(seeds.begin(), seeds.end(), 0);
  for (const SampleOptions& options :
       {SampleOptions{.fanout = {10, 5}}, SampleOptions{.fanout = {10, 5}, .method = Method::kLabor},
        SampleOptions{.fanout = {100, 100}, .method = Method::kLayer},
        SampleOptions{.fanout = {10, 5}, .replace = true}, SampleOptions{.fanout = {3, 3}, .disjoint = true}}) {
    std::vector<std::vector<Sample<std::uint32_t>>> all;
    for (const int threads : {1, 2, 4}) {
      base::set_threads(threads);
      std::vector<Sample<std::uint32_t>> samples(40);
      sample_batches<std::uint32_t>(graph.narrow_rows(), graph.columns(), options, seeds, 100, 3,
                                    [&](std::size_t i, const auto& sample) { samples[i] = sample; });
      all.push_back(std::move(samples));
    }
    base::set_threads(0);
    EXPECT_TRUE(all[0] == all[1] && all[1] == all[2]);
    EXPECT_FALSE(all[0][0] == all[0][1]);
  }
}

TEST(Sampler, FullNeighbourhoodIsBreadthFirstSearch) {
  const Graph graph = kronecker(9, 4, 2);
  Sampler<std::uint32_t> sampler(graph.narrow_rows(), graph.columns(), {.fanout = {-1, -1, -1}});
  Sample<std::uint32_t> sample;
  for (std::uint32_t seed = 0; seed < 100; ++seed) {
    sampler.sample(std::vector{seed}, {}, sample);
    std::set<std::uint32_t> seen{seed};
    std::set<std::uint32_t> frontier{seed};
    for (std::size_t hop = 0; hop < 3; ++hop) {
      std::set<std::uint32_t> next;
      for (const std::uint32_t v : frontier)
        for (const std::uint32_t u : graph.narrow_rows().row(v))
          if (seen.insert(u).second) next.insert(u);
      EXPECT_EQ(sample.nodes_per_hop[hop + 1], next.size());
      frontier = std::move(next);
    }
  }
}

/// Smallest p-value over 20 seeds of a chi-square test that all neighbours are included alike, in up to 1000 bins.
/// Counts of draws without replacement vary less than independent ones by (N - k) / (N - 1) per batch.
double least_p(std::uint64_t n, int k, int trials, bool replace) {
  const Graph graph = star(n);
  const std::uint64_t bins = std::min<std::uint64_t>(n, 1000);
  double least = 1;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Sampler<std::uint32_t> sampler(graph.narrow_rows(), graph.columns(),
                                   {.fanout = {k}, .replace = replace, .seed = seed});
    Sample<std::uint32_t> sample;
    std::vector<double> counts(bins, 0);
    for (int trial = 0; trial < trials; ++trial) {
      sampler.sample(std::vector<std::uint32_t>{0}, {seed, static_cast<std::uint64_t>(trial)}, sample);
      for (const std::uint64_t id : sample.edge_ids) ++counts[id * bins / n];
    }
    double statistic = 0;
    std::uint64_t first = 0;
    for (std::uint64_t bin = 0; bin < bins; ++bin) {
      const std::uint64_t next = ((bin + 1) * n + bins - 1) / bins;
      const double expected = static_cast<double>(next - first) / static_cast<double>(n) * k * trials;
      first = next;
      statistic += (counts[bin] - expected) * (counts[bin] - expected) / expected;
    }
    if (!replace) statistic *= static_cast<double>(n - 1) / static_cast<double>(n - static_cast<std::uint64_t>(k));
    least = std::min(least, reference::chi_square_tail(statistic, static_cast<double>(bins - 1)));
  }
  return least;
}

TEST(Sampler, IncludesEveryNeighbourAlike) {
  for (const std::uint64_t n : {20, 1000, 40000, 70000, 1000000}) {
    EXPECT_GT(least_p(n, 5, 4000, false), 1e-5) << n;
    EXPECT_GT(least_p(n, 15, 4000, false), 1e-5) << n;
    EXPECT_GT(least_p(n, 5, 4000, true), 1e-5) << n;
  }
  EXPECT_GT(least_p(1000, 100, 1000, false), 1e-5);  // the table, not the scan
}

TEST(Sampler, ChiSquareTailMatchesTables) {
  EXPECT_NEAR(reference::chi_square_tail(3.841, 1), 0.05, 1e-4);  // NIST/SEMATECH e-Handbook, table 1.3.6.7.4
  EXPECT_NEAR(reference::chi_square_tail(124.342, 100), 0.05, 1e-4);
  EXPECT_NEAR(reference::chi_square_tail(4.865, 10), 0.9, 1e-3);
}

TEST(Sampler, DrawsByWeight) {
  RowStore<std::uint32_t> store;
  store.offsets = {0, 5};
  store.neighbours = {0, 1, 2, 3, 4};
  store.weights = {1, 2, 0, 3, 4};
  const Graph graph(std::move(store), 5);
  for (const bool replace : {false, true}) {
    Sampler<std::uint32_t> sampler(graph.narrow_rows(), 5,
                                   {.fanout = {1}, .method = Method::kWeighted, .replace = replace});
    Sample<std::uint32_t> sample;
    std::vector<double> counts(5, 0);
    const int draws = 1'000'000;
    for (int i = 0; i < draws; ++i) {
      sampler.sample(std::vector<std::uint32_t>{0}, {0, static_cast<std::uint64_t>(i)}, sample);
      ++counts[sample.edge_ids.at(0)];
    }
    for (std::size_t i = 0; i < 5; ++i)
      EXPECT_NEAR(counts[i] / draws, static_cast<double>(graph.narrow_rows().weights[i]) / 10,
                  0.01 * std::max(0.1, static_cast<double>(graph.narrow_rows().weights[i]) / 10))
          << i;
  }
  // Two draws without replacement: {i, j} has probability w_i w_j (1/(1-w_i) + 1/(1-w_j)), by hand.
  Sampler<std::uint32_t> sampler(graph.narrow_rows(), 5, {.fanout = {2}, .method = Method::kWeighted});
  Sample<std::uint32_t> sample;
  int both = 0;
  for (std::uint64_t i = 0; i < 200000; ++i) {
    sampler.sample(std::vector<std::uint32_t>{0}, {0, i}, sample);
    const std::set<std::uint64_t> ids(sample.edge_ids.begin(), sample.edge_ids.end());
    both += ids == std::set<std::uint64_t>{3, 4};
  }
  EXPECT_NEAR(both / 200000.0, 0.3 * 0.4 * (1 / 0.7 + 1 / 0.6), 0.004);
  RowStore<std::uint32_t> negative;
  negative.offsets = {0, 1};
  negative.neighbours = {0};
  negative.weights = {-1};
  const Graph bad(std::move(negative), 1);
  EXPECT_THROW(Sampler<std::uint32_t>(bad.narrow_rows(), 1, {.fanout = {1}, .method = Method::kWeighted}), Error);
}

TEST(Sampler, NeverLooksIntoTheFuture) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    const EdgeList edges = random_edges(60, 1500, seed);
    Defects defects;
    const Graph graph = build_graph(edges, {}, defects);
    const auto& rows = graph.narrow_rows();
    std::vector<std::uint32_t> seeds{1, 1, 2, 40};
    std::vector<std::int64_t> times{10, 90, 50, -1};
    for (const When when : {When::kBefore, When::kLast}) {
      Sampler<std::uint32_t> sampler(rows, graph.columns(), {.fanout = {4, 3}, .when = when, .seed = seed});
      Sample<std::uint32_t> sample;
      sampler.sample(seeds, {}, sample, times);
      EXPECT_EQ(sample.nodes_per_hop[0], 4u);
      std::map<std::uint32_t, std::vector<std::int64_t>> drawn;
      for (std::size_t i = 0; i < sample.source.size(); ++i) {
        const std::uint32_t tree = sample.tree[sample.target[i]];
        EXPECT_EQ(tree, sample.tree[sample.source[i]]);
        EXPECT_LE(edges.time[sample.edge_ids[i]], times[tree]);
        drawn[sample.target[i]].push_back(edges.time[sample.edge_ids[i]]);
      }
      for (std::uint32_t i = 0; i < sample.nodes_per_hop[0] + sample.nodes_per_hop[1]; ++i) {
        std::vector<std::int64_t> possible;  // by brute force over the input
        for (std::size_t e = 0; e < edges.size(); ++e)
          if (edges.target[e] == sample.nodes[i] && edges.time[e] <= times[sample.tree[i]])
            possible.push_back(edges.time[e]);
        const std::size_t wanted = std::min<std::size_t>(possible.size(), i < 4 ? 4 : 3);
        ASSERT_EQ(drawn[i].size(), wanted);
        if (when != When::kLast) continue;
        std::sort(possible.begin(), possible.end());
        std::sort(drawn[i].begin(), drawn[i].end());
        EXPECT_TRUE(std::equal(drawn[i].begin(), drawn[i].end(), possible.end() - static_cast<std::ptrdiff_t>(wanted)));
      }
    }
  }
}

TEST(Sampler, LaborSharesItsNumbersAndKeepsTheMean) {
  const Graph graph = kronecker(12, 16, 4);
  std::vector<std::uint32_t> seeds;
  for (std::uint32_t v = 0; v < graph.rows() && seeds.size() < 200; ++v)
    if (graph.narrow_rows().degree(v) > 20) seeds.push_back(v);
  Sampler<std::uint32_t> labor(graph.narrow_rows(), graph.columns(), {.fanout = {10}, .method = Method::kLabor});
  Sampler<std::uint32_t> uniform(graph.narrow_rows(), graph.columns(), {.fanout = {10}});
  Sample<std::uint32_t> a;
  Sample<std::uint32_t> b;
  double edges = 0;
  double nodes = 0;
  double uniform_nodes = 0;
  for (std::uint64_t i = 0; i < 100; ++i) {
    labor.sample(seeds, {0, i}, a);
    uniform.sample(seeds, {0, i}, b);
    edges += static_cast<double>(a.source.size());
    nodes += static_cast<double>(a.nodes.size());
    uniform_nodes += static_cast<double>(b.nodes.size());
    ASSERT_EQ(a.edge_weights.size(), a.source.size());
  }
  EXPECT_NEAR(edges / 100, 2000, 60);  // E = fanout per row
  EXPECT_LT(nodes, 0.8 * uniform_nodes);
}

TEST(Sampler, LayerWiseTakesTheAskedNumberOfNodes) {
  const Graph graph = kronecker(11, 16, 4);
  Sampler<std::uint32_t> sampler(graph.narrow_rows(), graph.columns(), {.fanout = {50, 60}, .method = Method::kLayer});
  Sample<std::uint32_t> sample;
  std::vector<std::uint32_t> seeds(64);
  std::iota(seeds.begin(), seeds.end(), 100);
  sampler.sample(seeds, {}, sample);
  EXPECT_LE(sample.nodes_per_hop[1], 50u);
  EXPECT_GT(sample.nodes_per_hop[1], 30u);
  std::set<std::uint32_t> sources(sample.source.begin(),
                                  sample.source.begin() + static_cast<std::ptrdiff_t>(sample.edges_per_hop[0]));
  EXPECT_EQ(sources.size(), 50u);
}

TEST(Sampler, SaysWhatDoesNotFit) {
  const Graph graph = star(4);
  const auto error_of = [&](const SampleOptions& options) -> std::string {
    try {
      Sampler<std::uint32_t> sampler(graph.narrow_rows(), graph.columns(), options);
      Sample<std::uint32_t> sample;
      sampler.sample(std::vector<std::uint32_t>{5}, {}, sample);
    } catch (const Error& error) {
      return error.what();
    }
    return "none";
  };
  EXPECT_NE(error_of({.fanout = {}}).find("needs a fanout"), std::string::npos);
  EXPECT_NE(error_of({.fanout = {-2}}).find("-1 (all)"), std::string::npos);
  EXPECT_NE(error_of({.fanout = {1}, .method = Method::kWeighted}).find("edge weights"), std::string::npos);
  EXPECT_NE(error_of({.fanout = {1}, .when = When::kLast}).find("edge times"), std::string::npos);
  EXPECT_NE(error_of({.fanout = {1}, .method = Method::kLabor, .replace = true}).find("without replacement"),
            std::string::npos);
  EXPECT_EQ(error_of({.fanout = {1}}), "seed 0: is node 5, but the graph has 1");
}

TEST(TypedSampler, AgreesWithBruteForceOnMoreRelationsThanFanout) {
  Dataset dataset;
  dataset.node_types = {{"user", 50}, {"item", 30}, {"shop", 10}};
  base::Rng rng(1);
  Defects defects;
  std::vector<EdgeList> lists;
  for (std::size_t r = 0; r < 12; ++r) {
    const std::size_t s = r % 3;
    const std::size_t t = (r / 3 + r) % 3;
    EdgeList edges;
    edges.sources = dataset.node_types[s].count;
    edges.targets = dataset.node_types[t].count;
    for (int e = 0; e < 300; ++e) edges.add(rng.below(*edges.sources), rng.below(*edges.targets));
    dataset.relations.push_back({dataset.node_types[s].name, "r" + std::to_string(r), dataset.node_types[t].name,
                                 build_graph(edges, {.bipartite = s != t, .force_wide = r % 2 == 0}, defects)});
    lists.push_back(std::move(edges));
  }
  TypedSampler sampler(dataset, {.fanout = {2, 2}}, {{0, 1}});
  TypedSample sample;
  TypedSample again;
  sampler.sample(1, std::vector<std::uint64_t>{0, 5, 29}, {0, 1}, sample);
  TypedSampler(dataset, {.fanout = {2, 2}}, {{0, 1}}).sample(1, std::vector<std::uint64_t>{0, 5, 29}, {0, 1}, again);
  EXPECT_EQ(sample, again);
  for (std::size_t r = 0; r < 12; ++r) {
    const std::size_t s = r % 3;
    const std::size_t t = (r / 3 + r) % 3;
    std::map<std::uint32_t, std::uint64_t> drawn;
    for (std::size_t i = 0; i < sample.relations[r].source.size(); ++i) {
      const std::uint64_t e = sample.relations[r].edge_ids[i];
      EXPECT_EQ(lists[r].source[e], sample.types[s].nodes[sample.relations[r].source[i]]);
      EXPECT_EQ(lists[r].target[e], sample.types[t].nodes[sample.relations[r].target[i]]);
      ++drawn[sample.relations[r].target[i]];
    }
    const std::uint64_t expanded = sample.types[t].per_hop[0] + sample.types[t].per_hop[1];
    for (std::uint32_t i = 0; i < expanded; ++i) {
      const auto degree = static_cast<std::uint64_t>(
          std::count(lists[r].target.begin(), lists[r].target.end(), sample.types[t].nodes[i]));
      const std::uint64_t fanout = r == 0 ? (i < sample.types[t].per_hop[0] ? 0 : 1) : 2;
      EXPECT_EQ(drawn[i], std::min(degree, fanout)) << r << " " << i;
    }
  }
}

TEST(Sampler, SamplesFiveBillionEdgesFromASparseFile) {
  const std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("paceline_gnn_sparse_" + std::to_string(::getpid()));
  constexpr std::uint64_t kEdges = 5'000'000'000;
  constexpr std::uint64_t kRows = 1000;
  {
    GraphWriter writer(path, {.rows = kRows, .columns = 4'000'000, .edges = kEdges}, GraphWriter::Space::kSparse);
    for (std::uint64_t v = 0; v <= kRows; ++v) writer.offsets()[v] = kEdges / kRows * v;
    for (std::uint64_t i = 0; i < 100; ++i)
      writer.narrow_neighbours()[kEdges - 1 - i] = static_cast<std::uint32_t>(1000 + i);
    writer.finish(false);
  }
  const Graph graph = open_graph(path, Check::kHeader);
  EXPECT_EQ(graph.edges(), kEdges);
  Sampler<std::uint32_t> sampler(graph.narrow_rows(), graph.columns(), {.fanout = {20, 5}});
  Sample<std::uint32_t> sample;
  std::uint64_t beyond = 0;
  for (std::uint64_t batch = 0; batch < 20; ++batch) {
    sampler.sample(std::vector<std::uint32_t>{0, 500, 999}, {0, batch}, sample);
    ASSERT_EQ(sample.edges_per_hop[0], 60u);
    for (std::size_t i = 0; i < sample.source.size(); ++i) {
      const std::uint64_t row = sample.edge_ids[i] / (kEdges / kRows);
      EXPECT_EQ(row, sample.nodes[sample.target[i]]);
      beyond += sample.edge_ids[i] > 0xFFFFFFFFu;
    }
  }
  EXPECT_GT(beyond, 300u);
  EXPECT_EQ(graph.narrow_rows().row(999).back(), 1000u);
  struct rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  EXPECT_LT(usage.ru_maxrss, 1'000'000);  // KiB
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace paceline::gnn
