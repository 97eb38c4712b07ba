#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "paceline/gnn/graph.h"

namespace paceline::gnn {

enum class Method {
  kUniform,   // every neighbour alike
  kWeighted,  // by edge weight: without replacement by exponential keys (Efraimidis and Spirakis 2006)
  kLabor,     // LABOR-0 (Balin and Catalyurek 2023): one random number per neighbour, shared by all rows of a hop
  kLayer      // layer-wise: `fanout` nodes per hop for all rows together, by the number of edges that lead to them
};

enum class When {
  kAny,     // ignore times
  kBefore,  // only edges not later than the seed's time
  kLast     // the latest of those
};

struct SampleOptions {
  std::vector<int> fanout;  // seeds outwards; -1 takes all neighbours
  Method method = Method::kUniform;
  bool replace = false;
  When when = When::kAny;          // other than kAny: every seed gets a tree of its own
  bool disjoint = false;           // one tree per seed: a node may occur once per tree
  bool labor_shares_hops = false;  // LABOR's random numbers are the same at every hop: fewer unique nodes
  std::uint64_t seed = 0;
};

/// Which batch this is; with the seed it determines every draw.
struct BatchKey {
  std::uint64_t epoch = 0;
  std::uint64_t batch = 0;
};

/// A sampled neighbourhood. Nodes are numbered in order of discovery, the seeds (without repetition) first; only nodes
/// found new at a hop are expanded at the next (as PyG does; DGL expands all). Edge i leads from nodes[source[i]] to
/// nodes[target[i]], the target being nearer to the seeds.
template <class Node>
struct Sample {
  std::vector<Node> nodes;
  std::vector<std::uint32_t> source;
  std::vector<std::uint32_t> target;
  std::vector<std::uint64_t> edge_ids;
  std::vector<std::uint32_t> tree;           // per node, only for disjoint samples
  std::vector<float> edge_weights;           // LABOR and layer-wise: 1 / probability, to correct the mean
  std::vector<std::uint64_t> nodes_per_hop;  // new nodes: seeds, hop 1, ...
  std::vector<std::uint64_t> edges_per_hop;

  bool operator==(const Sample&) const = default;
};

/// Draws samples from one graph. Holds scratch memory (8 bytes per node for graphs up to 2^22 nodes, else in
/// proportion to the batch), so one per thread; results depend on the options and the key only.
template <class Node>
class Sampler {
 public:
  /// Throws Error(kUsage) when the graph lacks what the options need (weights, times) or the options do not fit
  /// together, and Error(kBadInput) naming the first negative weight.
  Sampler(const Rows<Node>& rows, std::uint64_t columns, SampleOptions options);
  ~Sampler();
  Sampler(Sampler&&) noexcept;

  /// `seed_times`: one per seed when options.when is not kAny.
  /// Throws Error(kUsage) naming the seed that is not a node of the graph.
  void sample(std::span<const Node> seeds, BatchKey key, Sample<Node>& out,
              std::span<const std::int64_t> seed_times = {});

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Samples batches of `batch_size` consecutive seeds on all threads; visit(index, sample) is called in any order.
template <class Node>
void sample_batches(const Rows<Node>& rows, std::uint64_t columns, const SampleOptions& options,
                    std::span<const Node> seeds, std::size_t batch_size, std::uint64_t epoch,
                    const std::function<void(std::size_t, const Sample<Node>&)>& visit);

}  // namespace paceline::gnn
