#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "paceline/gnn/graph.h"
#include "paceline/gnn/sampler.h"

/// Plain versions of what the room does fast, for tests and benchmarks.
namespace paceline::gnn::reference {

/// The plain fused sampling loop: draw, read, number and write one neighbour after the other. 32-bit ids, numbers in
/// an array with stamps, Floyd's algorithm in registers, a multiply-shift random number from a sequential generator.
/// Uniform without replacement only.
class FusedSampler {
 public:
  FusedSampler(const Rows<std::uint32_t>& rows, std::vector<int> fanout, std::uint64_t seed)
      : rows_(rows), fanout_(std::move(fanout)), state_(seed * 2 + 1), stamps_(rows.rows(), 0), ids_(rows.rows(), 0) {}
  void sample(std::span<const std::uint32_t> seeds, Sample<std::uint32_t>& out);

 private:
  Rows<std::uint32_t> rows_;
  std::vector<int> fanout_;
  std::uint64_t state_;
  std::vector<std::uint32_t> stamps_;
  std::vector<std::uint32_t> ids_;
  std::uint32_t stamp_ = 0;
};

/// Probability that a chi-square variable with `degrees` degrees of freedom is at least `value`: the upper regularised
/// incomplete gamma function, by series or continued fraction (Numerical Recipes, section 6.2).
double chi_square_tail(double value, double degrees);

/// Hits of BGL's FIFO cache by the book: per shard a queue and a set, rows go in after their batch is served.
std::uint64_t fifo_hits(const std::vector<std::vector<std::uint64_t>>& trace, std::uint64_t capacity, int shards);

/// Hits of Belady's MIN with the right not to insert: after every batch, of the rows held and the rows fetched, those
/// used soonest stay. O(batches * (capacity + batch) log).
std::uint64_t belady_hits(const std::vector<std::vector<std::uint64_t>>& trace, std::uint64_t capacity);

}  // namespace paceline::gnn::reference
