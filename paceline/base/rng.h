#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <utility>

namespace paceline::base {

/// Seeded random numbers with our own distributions, so that the same seed gives the same bytes with every standard
/// library. xoshiro256** (Blackman and Vigna, "Scrambled linear pseudorandom number generators", 2018), seeded by
/// splitmix64.
class Rng {
 public:
  using result_type = std::uint64_t;

  explicit Rng(std::uint64_t seed);

  std::uint64_t next();
  /// Uniform in [0, bound), unbiased. bound > 0.
  std::uint64_t below(std::uint64_t bound);
  /// Uniform in [low, high], both included.
  std::int64_t between(std::int64_t low, std::int64_t high);
  /// Uniform in [0, 1) with 53 bits.
  double uniform();
  double normal(double mean = 0.0, double deviation = 1.0);
  double exponential(double mean);
  bool chance(double probability) { return uniform() < probability; }
  /// An independent generator for part `stream` of the work: results do not depend on how work is divided.
  Rng fork(std::uint64_t stream) const;

  template <class T>
  void shuffle(std::span<T> items) {
    for (std::size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[below(i)]);
  }

  static constexpr result_type min() { return 0; }
  static constexpr result_type max() { return ~result_type{0}; }
  result_type operator()() { return next(); }

 private:
  std::array<std::uint64_t, 4> state_;
};

}  // namespace paceline::base
