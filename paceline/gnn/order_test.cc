#include "paceline/gnn/order.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <numeric>

#include "paceline/base/error.h"
#include "paceline/base/rng.h"
#include "paceline/gnn/cluster.h"
#include "paceline/gnn/generate.h"

namespace paceline::gnn {
namespace {

std::vector<std::uint64_t> every_third(std::uint64_t nodes) {
  std::vector<std::uint64_t> train;
  for (std::uint64_t v = 0; v < nodes; v += 3) train.push_back(v);
  return train;
}

bool is_permutation_of(Order order, const std::vector<std::uint64_t>& train) {
  std::sort(order.begin(), order.end());
  return order == train;
}

TEST(TrainingOrder, EveryOrderNamesEveryNodeOnce) {
  std::vector<std::int64_t> labels;
  // Many components: isolated nodes and small pieces.
  const Graph graph = block_model({.nodes = 3000, .blocks = 10, .mean_degree = 1.5}, 1, &labels);
  const std::vector<std::uint64_t> train = every_third(3000);
  const std::vector<Order> sequences = breadth_first_sequences(graph, train, 5, 7);
  const Order clusters = cluster_sequence(graph, train, 3);
  EXPECT_TRUE(is_permutation_of(clusters, train));
  for (const Order& sequence : sequences) EXPECT_TRUE(is_permutation_of(sequence, train));
  for (std::uint64_t epoch = 0; epoch < 20; ++epoch) {
    EXPECT_TRUE(is_permutation_of(random_order(train, epoch, 1), train));
    for (const std::size_t batch : {1, 7, 64, 5000}) {
      EXPECT_TRUE(is_permutation_of(interleave(sequences, batch, epoch, 1), train));
      EXPECT_TRUE(is_permutation_of(balanced_pieces(clusters, labels, 1 + batch / 4, batch, epoch, 1), train));
    }
  }
  EXPECT_EQ(balanced_pieces(clusters, labels, 8, 64, 3, 1), balanced_pieces(clusters, labels, 8, 64, 3, 1));
  EXPECT_NE(balanced_pieces(clusters, labels, 8, 64, 3, 1), balanced_pieces(clusters, labels, 8, 64, 4, 1));
}

TEST(TrainingOrder, BreadthFirstFollowsTheDefinition) {
  // A path 0-1-2-3-4 and a loose pair 5-6, all nodes train; from root 2 the order is 2, {1,3}, {0,4}, then 5, 6.
  EdgeList edges;
  for (const auto& [a, b] : {std::pair{0, 1}, {1, 2}, {2, 3}, {3, 4}, {5, 6}})
    edges.add(static_cast<std::uint64_t>(a), static_cast<std::uint64_t>(b));
  Defects defects;
  const Graph graph = build_graph(edges, {.symmetric = true}, defects);
  std::vector<std::uint64_t> train(7);
  std::iota(train.begin(), train.end(), 0);
  bool seen = false;
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    const Order order = breadth_first_sequences(graph, train, 1, seed)[0];
    if (order[0] != 2) continue;
    seen = true;
    EXPECT_EQ(order, (Order{2, 1, 3, 0, 4, 5, 6}));
  }
  EXPECT_TRUE(seen);
}

TEST(TrainingOrder, OneShiftedSequenceIsARotation) {
  const Order sequence{4, 2, 9, 7};
  Order order = interleave(std::vector<Order>{sequence}, 2, 5, 1);
  std::rotate(order.begin(), std::find(order.begin(), order.end(), 4), order.end());
  EXPECT_EQ(order, sequence);
}

TEST(TrainingOrder, LabelDistanceOfKnownBatches) {
  const std::vector<std::int64_t> labels{0, 0, 1, 1};
  EXPECT_DOUBLE_EQ(label_distance({0, 1, 2, 3}, 2, labels), 0.5);
  EXPECT_DOUBLE_EQ(label_distance({0, 2, 1, 3}, 2, labels), 0.0);
}

TEST(TrainingOrder, BalancedPiecesNeedFewerInputsAtTheDistanceOfRandom) {
  std::vector<std::int64_t> labels;
  const Graph graph = block_model({.nodes = 20000, .blocks = 100}, 1, &labels);
  for (std::int64_t& label : labels) label %= 8;
  const OrderChoice choice = choose_order(graph, every_third(20000), labels, 64, {10, 5}, 1.5, 1);
  EXPECT_TRUE(choice.tried[choice.best].pieces);
  EXPECT_LE(choice.tried[choice.best].distance, 1.5);
  EXPECT_LE(choice.tried[choice.best].inputs, 0.8);
}

TEST(TrainingOrder, SequencesComeBackFromDisk) {
  const auto path =
      std::filesystem::temp_directory_path() / ("paceline_gnn_order_" + std::to_string(::getpid()) + ".npy");
  const std::vector<Order> sequences{{1, 5, 3}, {3, 1, 5}};
  write_sequences(path, sequences);
  EXPECT_EQ(read_sequences(path), sequences);
  write_sequences(path, std::vector<Order>{{1, 1, 3}});
  EXPECT_THROW(read_sequences(path), Error);
  std::filesystem::remove(path);
}

TEST(Clusters, StayWithinTheirWeightAndContractKeepsAllEdges) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const WeightedGraph graph = weighted_graph(kronecker(9, 4, seed + 1), {});
    const std::vector<std::uint32_t> clusters = find_clusters(graph, 20, 1000, 3, seed);
    const WeightedGraph coarse = contract(graph, clusters);
    EXPECT_LE(*std::max_element(coarse.node_weights.begin(), coarse.node_weights.end()), 20u);
    EXPECT_EQ(coarse.total_weight(), graph.total_weight());
    std::uint64_t between = 0;
    for (std::uint32_t v = 0; v < graph.nodes(); ++v)
      for (std::uint64_t i = graph.offsets[v]; i < graph.offsets[v + 1]; ++i)
        between += clusters[v] != clusters[graph.neighbours[i]];
    EXPECT_EQ(std::accumulate(coarse.edge_weights.begin(), coarse.edge_weights.end(), std::uint64_t{0}), between);
  }
}

}  // namespace
}  // namespace paceline::gnn
