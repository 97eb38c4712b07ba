#pragma once
#include <cstdint>

#include "paceline/base/wide.h"

namespace paceline::gnn {

/// The finalizer of splitmix64 (Steele, Lea and Flood 2014): a bijection that mixes all bits.
constexpr std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}
constexpr std::uint64_t key_of(std::uint64_t key, std::uint64_t part) {
  return mix(key ^ (part + 0x9E3779B97F4A7C15u) * 0xD1B54A32D192ED03u);
}

/// Random numbers that depend on their key and on nothing else: the same row of the same batch draws the same
/// neighbours, whichever thread works on it and whatever was drawn before.
class CounterRandom {
 public:
  explicit CounterRandom(std::uint64_t key) : state_(key) {}

  std::uint64_t next() { return mix(state_ += 0x9E3779B97F4A7C15u); }

  /// Uniform in [0, bound), unbiased (Lemire 2019). 32-bit bounds cost half a word.
  std::uint32_t below32(std::uint32_t bound) {
    std::uint64_t product = std::uint64_t{next32()} * bound;
    if (static_cast<std::uint32_t>(product) < bound) [[unlikely]] {
      const std::uint32_t threshold = -bound % bound;
      while (static_cast<std::uint32_t>(product) < threshold) product = std::uint64_t{next32()} * bound;
    }
    return static_cast<std::uint32_t>(product >> 32);
  }
  std::uint64_t below(std::uint64_t bound) {
    if (bound <= 0xFFFFFFFFu) return below32(static_cast<std::uint32_t>(bound));
    auto product = static_cast<base::Wide>(next()) * bound;
    const std::uint64_t threshold = -bound % bound;
    while (static_cast<std::uint64_t>(product) < threshold) product = static_cast<base::Wide>(next()) * bound;
    return static_cast<std::uint64_t>(product >> 64);
  }
  /// Uniform in (0, 1], 53 bits.
  double uniform() { return static_cast<double>((next() >> 11) + 1) * 0x1.0p-53; }

 private:
  std::uint32_t next32() {
    if (half_) {
      half_ = false;
      return static_cast<std::uint32_t>(kept_ >> 32);
    }
    half_ = true;
    kept_ = next();
    return static_cast<std::uint32_t>(kept_);
  }

  std::uint64_t state_;
  std::uint64_t kept_ = 0;
  bool half_ = false;
};

}  // namespace paceline::gnn
