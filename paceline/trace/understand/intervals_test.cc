#include "paceline/trace/understand/intervals.h"

#include <gtest/gtest.h>

#include <bitset>

#include "paceline/base/rng.h"

namespace paceline::trace {
namespace {

constexpr std::int64_t kLength = 96;
using Bitmap = std::bitset<kLength>;  // the naive version: one bit a nanosecond

Intervals random_intervals(base::Rng& rng) {
  Intervals intervals;
  for (std::uint64_t i = rng.below(12); i > 0; --i) {
    const std::int64_t begin = rng.between(0, kLength - 1);
    intervals.push_back({begin, rng.between(std::max<std::int64_t>(begin - 2, 0), kLength)});  // some are empty
  }
  return intervals;
}

Bitmap bits(const Intervals& intervals) {
  Bitmap map;
  for (const Interval& interval : intervals) {
    for (std::int64_t i = interval.begin; i < interval.end; ++i) map.set(static_cast<std::size_t>(i));
  }
  return map;
}

void expect_disjoint_and_ordered(const Intervals& intervals) {
  for (std::size_t i = 0; i < intervals.size(); ++i) {
    EXPECT_LT(intervals[i].begin, intervals[i].end);
    if (i > 0) {
      EXPECT_LE(intervals[i - 1].end, intervals[i].begin);
    }
  }
}

TEST(Intervals, AgreeWithABitmapOnRandomCases) {
  base::Rng rng(1);
  for (int round = 0; round < 5000; ++round) {
    const Intervals raw_a = random_intervals(rng), raw_b = random_intervals(rng);
    const Intervals a = merge(raw_a), b = merge(raw_b);
    const std::int64_t from = rng.between(0, kLength);
    const Interval window{from, rng.between(from, kLength)};
    ASSERT_EQ(bits(a), bits(raw_a));
    ASSERT_EQ(bits(intersect(a, b)), bits(a) & bits(b));
    ASSERT_EQ(bits(subtract(a, b)), bits(a) & ~bits(b));
    ASSERT_EQ(total(a), static_cast<std::int64_t>(bits(a).count()));
    ASSERT_EQ(total_within(a, window), static_cast<std::int64_t>((bits(a) & bits({window})).count()));
    for (const Intervals& result : {a, intersect(a, b), subtract(a, b)}) {
      expect_disjoint_and_ordered(result);
    }
  }
}

TEST(Intervals, TouchingOnesBecomeOne) {
  EXPECT_EQ(merge({{0, 5}, {5, 9}}).size(), 1u);
}

TEST(Intervals, OfNothingAreNothing) {
  EXPECT_TRUE(merge({}).empty());
  EXPECT_TRUE(intersect({{0, 5}}, {}).empty());
  EXPECT_EQ(total(subtract({{0, 5}}, {})), 5);
  EXPECT_EQ(total_within({}, {0, 5}), 0);
}

}  // namespace
}  // namespace paceline::trace
