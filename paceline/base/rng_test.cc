#include "paceline/base/rng.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>
#include <vector>

namespace paceline::base {
namespace {

// The expected outputs come from an implementation in Python, written from the pseudo-code of Blackman and Vigna's
// paper with integers of any length. Its splitmix64 gives the published values of seed 1234567 (6457827717110365317,
// ...).
TEST(Rng, GivesTheOutputsOfAnIndependentImplementation) {
  const auto first = [](std::uint64_t seed) {
    Rng random(seed);
    return std::vector{random.next(), random.next(), random.next(), random.next()};
  };
  EXPECT_EQ(first(0), (std::vector<std::uint64_t>{0x99ec5f36cb75f2b4, 0xbf6e1f784956452a, 0x1a5f849d4933e6e0,
                                                  0x6aa594f1262d2d2c}));
  EXPECT_EQ(first(42), (std::vector<std::uint64_t>{0x15780b2e0c2ec716, 0x6104d9866d113a7e, 0xae17533239e499a1,
                                                   0xecb8ad4703b360a1}));
  EXPECT_EQ(
      first(std::numeric_limits<std::uint64_t>::max()),
      (std::vector<std::uint64_t>{0x8f5520d52a7ead08, 0xc476a018caa1802d, 0x81de31c0d260469e, 0xbf658d7e065f3c2f}));
  Rng random(42);
  for (int i = 1; i < 1'000'000; ++i) random.next();
  EXPECT_EQ(random.next(), 0x55cf61d654b8f555u);
  EXPECT_EQ(Rng(7).uniform(), 0.7005764821796896);
}

TEST(Rng, BelowIsUniformForBoundsThatDoNotDivideTheRange) {
  Rng random(1);
  constexpr int kDraws = 60'000;
  std::vector<int> counts(6);
  for (int i = 0; i < kDraws; ++i) ++counts[random.below(6)];
  double chi_squared = 0;
  for (const int count : counts) chi_squared += (count - kDraws / 6.0) * (count - kDraws / 6.0) / (kDraws / 6.0);
  EXPECT_LT(chi_squared, 20.5);  // 5 degrees of freedom: 0.1 % of seeds are above
  // Of a bound of 3/4 of the range a plain modulo would give the lower third twice as often.
  constexpr std::uint64_t kBound = 3ull << 62;
  int low = 0;
  for (int i = 0; i < kDraws; ++i) low += random.below(kBound) < kBound / 3;
  EXPECT_NEAR(low / static_cast<double>(kDraws), 1.0 / 3.0, 0.01);
}

TEST(Rng, BetweenReachesBothEndsAndTheWholeRange) {
  Rng random(2);
  std::set<std::int64_t> seen;
  for (int i = 0; i < 200; ++i) seen.insert(random.between(-2, 1));
  EXPECT_EQ(seen, (std::set<std::int64_t>{-2, -1, 0, 1}));
  EXPECT_EQ(random.between(5, 5), 5);
  using Limits = std::numeric_limits<std::int64_t>;
  int negative = 0;
  for (int i = 0; i < 1000; ++i) negative += random.between(Limits::min(), Limits::max()) < 0;
  EXPECT_NEAR(negative, 500, 80);
}

TEST(Rng, DistributionsHaveTheirMoments) {
  Rng random(3);
  constexpr int kDraws = 200'000;
  double sum = 0, squares = 0, waits = 0;
  for (int i = 0; i < kDraws; ++i) {
    const double value = random.normal(5.0, 2.0);
    sum += value;
    squares += (value - 5.0) * (value - 5.0);
    waits += random.exponential(3.0);
    const double part = random.uniform();
    ASSERT_TRUE(part >= 0.0 && part < 1.0);
  }
  EXPECT_NEAR(sum / kDraws, 5.0, 0.02);
  EXPECT_NEAR(std::sqrt(squares / kDraws), 2.0, 0.02);
  EXPECT_NEAR(waits / kDraws, 3.0, 0.03);
}

TEST(Rng, ForksDependOnTheStreamOnlyAndDiffer) {
  const Rng parent(4);
  EXPECT_EQ(parent.fork(1).next(), Rng(4).fork(1).next());
  std::set<std::uint64_t> firsts;
  for (std::uint64_t stream = 0; stream < 1000; ++stream) firsts.insert(parent.fork(stream).next());
  EXPECT_EQ(firsts.size(), 1000u);
  EXPECT_FALSE(firsts.contains(Rng(4).next()));
}

TEST(Rng, ShuffleKeepsAllAndReachesEveryOrder) {
  Rng random(5);
  std::set<std::vector<int>> orders;
  for (int i = 0; i < 500; ++i) {
    std::vector<int> items{1, 2, 3, 4};
    random.shuffle(std::span(items));
    orders.insert(items);
    std::sort(items.begin(), items.end());
    ASSERT_EQ(items, (std::vector{1, 2, 3, 4}));
  }
  EXPECT_EQ(orders.size(), 24u);
}

}  // namespace
}  // namespace paceline::base
