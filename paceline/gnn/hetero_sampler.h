#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "paceline/gnn/dataset.h"
#include "paceline/gnn/sampler.h"

namespace paceline::gnn {

/// A sample of a typed graph: nodes per node type, edges per relation; numbers are places in the lists of the
/// relation's source and target types.
struct TypedSample {
  struct Nodes {
    std::vector<std::uint64_t> nodes;
    std::vector<std::uint32_t> tree;
    std::vector<std::uint64_t> per_hop;
    bool operator==(const Nodes&) const = default;
  };
  struct Edges {
    std::vector<std::uint32_t> source;
    std::vector<std::uint32_t> target;
    std::vector<std::uint64_t> edge_ids;
    std::vector<std::uint64_t> per_hop;
    bool operator==(const Edges&) const = default;
  };
  std::vector<Nodes> types;
  std::vector<Edges> relations;
  bool operator==(const TypedSample&) const = default;
};

/// Neighbour sampling per edge type: a node draws up to fanout[relation][hop] sources in every relation that leads to
/// its type. Any number of relations, also more than any fanout. Scratch grows with the batch only; one per thread.
class TypedSampler {
 public:
  /// options.fanout is the fanout of relations beyond the end of `fanout`. LABOR and uniform, weighted, by time;
  /// layer-wise is refused. Throws as Sampler does, naming the relation.
  TypedSampler(const Dataset& dataset, SampleOptions options, std::vector<std::vector<int>> fanout = {});
  ~TypedSampler();

  /// Seeds are nodes of type `seed_type`.
  void sample(std::size_t seed_type, std::span<const std::uint64_t> seeds, BatchKey key, TypedSample& out,
              std::span<const std::int64_t> seed_times = {});

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace paceline::gnn
