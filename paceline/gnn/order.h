#pragma once
#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "paceline/gnn/graph.h"

namespace paceline::gnn {

/// Orders of the training nodes. All are permutations of them: every node once per epoch.
using Order = std::vector<std::uint64_t>;

Order random_order(std::span<const std::uint64_t> train, std::uint64_t epoch, std::uint64_t seed);

/// Breadth-first sequences over the training nodes (BGL, section 3.2): from a random root each, continuing at the next
/// unvisited node when a component is exhausted. Walks the rows, that is the direction of sampling.
/// O(sequences * (nodes + edges)); compute once and keep them on disk.
std::vector<Order> breadth_first_sequences(const Graph& graph, std::span<const std::uint64_t> train, int sequences,
                                           std::uint64_t seed);

/// BGL's order: each epoch every sequence is shifted by a random amount, a batch takes batch / P nodes from each in
/// turn, and a node already used in the epoch is skipped.
Order interleave(std::span<const Order> sequences, std::size_t batch, std::uint64_t epoch, std::uint64_t seed);

/// Our order: one locality-preserving sequence, shifted at random and cut into pieces of `piece` nodes; a batch joins
/// pieces chosen among random ones so that its label histogram comes nearest to that of the training set.
/// O(train / piece * candidates * classes) per epoch.
Order balanced_pieces(const Order& sequence, std::span<const std::int64_t> labels, std::size_t piece, std::size_t batch,
                      std::uint64_t epoch, std::uint64_t seed);

/// A sequence in which neighbouring places share neighbourhoods: nodes by cluster of a size-constrained label
/// propagation, clusters merged level by level and laid out so that near clusters are adjacent.
Order cluster_sequence(const Graph& graph, std::span<const std::uint64_t> train, std::uint64_t seed);

/// Mean total-variation distance between a batch's labels and the labels of all: half the L1 distance of the shares.
/// Random batches of finite size have a distance above 0 too, so compare with theirs.
double label_distance(const Order& order, std::size_t batch, std::span<const std::int64_t> labels);

/// Mean number of nodes whose features a batch needs, sampled with `fanout` without replacement.
double unique_inputs(const Graph& graph, const Order& order, std::size_t batch, const std::vector<int>& fanout,
                     std::uint64_t seed, std::size_t most_batches = 64);

/// The chosen order: fewest unique inputs among those whose label distance is at most `allowed` times random's.
struct OrderChoice {
  struct Candidate {
    bool pieces = false;   // balanced pieces; otherwise BGL's sequences
    std::size_t size = 0;  // piece length or number of sequences
    double inputs = 0;     // against random order's
    double distance = 0;   // against random order's
  };
  std::vector<Candidate> tried;
  std::size_t best = 0;  // index into tried; tried[0] is random order itself
};
OrderChoice choose_order(const Graph& graph, std::span<const std::uint64_t> train, std::span<const std::int64_t> labels,
                         std::size_t batch, const std::vector<int>& fanout, double allowed, std::uint64_t seed);

/// Sequences on disk, one int64 array of shape (sequences, train nodes) in numpy's format.
void write_sequences(const std::filesystem::path& path, std::span<const Order> sequences);
std::vector<Order> read_sequences(const std::filesystem::path& path);

}  // namespace paceline::gnn
