#include "paceline/base/rng.h"

#include <bit>
#include <cmath>
#include <numbers>

#include "paceline/base/error.h"
#include "paceline/base/wide.h"

namespace paceline::base {
namespace {
std::uint64_t splitmix(std::uint64_t& state) {
  state += 0x9E3779B97F4A7C15u;
  std::uint64_t mixed = state;
  mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9u;
  mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EBu;
  return mixed ^ (mixed >> 31);
}
}  // namespace

Rng::Rng(std::uint64_t seed) {
  for (std::uint64_t& word : state_) word = splitmix(seed);
}

std::uint64_t Rng::next() {
  const std::uint64_t result = std::rotl(state_[1] * 5, 7) * 9;
  const std::uint64_t shifted = state_[1] << 17;
  state_[2] ^= state_[0];
  state_[3] ^= state_[1];
  state_[1] ^= state_[2];
  state_[0] ^= state_[3];
  state_[2] ^= shifted;
  state_[3] = std::rotl(state_[3], 45);
  return result;
}

// Lemire, "Fast random integer generation in an interval", 2019: multiply, reject the biased low part.
std::uint64_t Rng::below(std::uint64_t bound) {
  PL_CHECK(bound > 0);
  auto product = static_cast<Wide>(next()) * bound;
  if (static_cast<std::uint64_t>(product) < bound) {
    const std::uint64_t threshold = -bound % bound;
    while (static_cast<std::uint64_t>(product) < threshold) product = static_cast<Wide>(next()) * bound;
  }
  return static_cast<std::uint64_t>(product >> 64);
}

std::int64_t Rng::between(std::int64_t low, std::int64_t high) {
  PL_CHECK(low <= high);
  const std::uint64_t span = static_cast<std::uint64_t>(high) - static_cast<std::uint64_t>(low) + 1;
  const std::uint64_t offset = span == 0 ? next() : below(span);
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(low) + offset);
}

double Rng::uniform() {
  return static_cast<double>(next() >> 11) * 0x1.0p-53;
}

double Rng::normal(double mean, double deviation) {
  // Box-Muller; the second value is not kept, so that fork() and copies need no hidden state.
  const double radius = std::sqrt(-2.0 * std::log(1.0 - uniform()));
  return mean + deviation * radius * std::cos(2.0 * std::numbers::pi * uniform());
}

double Rng::exponential(double mean) {
  return -mean * std::log(1.0 - uniform());
}

Rng Rng::fork(std::uint64_t stream) const {
  std::uint64_t seed = state_[0] ^ std::rotl(state_[2], 29);
  std::uint64_t salt = stream + 0x632BE59BD9B4E019u;
  return Rng(splitmix(seed) ^ splitmix(salt));
}

}  // namespace paceline::base
