#include "paceline/base/statistics.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "paceline/base/rng.h"

namespace paceline::base {
namespace {

using Values = std::vector<double>;

TEST(Statistics, QuantilesAreThoseOfNumpysDefault) {
  // numpy.percentile([15, 20, 35, 40, 50], 40) and Python's statistics.quantiles(..., method="inclusive").
  EXPECT_DOUBLE_EQ(quantile(Values{15, 20, 35, 40, 50}, 0.40), 29.0);
  const Values values{20, 3, 7, 6, 8, 8, 16, 10, 15, 13};
  EXPECT_DOUBLE_EQ(quantile(values, 0.25), 7.25);
  EXPECT_DOUBLE_EQ(median(values), 9.0);
  EXPECT_DOUBLE_EQ(quantile(values, 0.75), 14.5);
  EXPECT_DOUBLE_EQ(quantile(values, 0.0), 3.0);
  EXPECT_DOUBLE_EQ(quantile(values, 1.0), 20.0);
  EXPECT_DOUBLE_EQ(quantile(Values{4}, 0.3), 4.0);
}

TEST(Statistics, QuantilesOfInfiniteValuesAreNotNumbersOnlyBetweenThem) {
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(median(Values{1, infinity, infinity}), infinity);
}

TEST(Statistics, QuantilesGrowWithQ) {
  Rng random(1);
  for (int round = 0; round < 200; ++round) {
    Values values(1 + random.below(20));
    for (double& value : values) value = std::floor(random.uniform() * 10);
    double before = quantile(values, 0);
    for (double q = 0; q <= 1.0; q += 0.05) {
      const double now = quantile(values, q);
      ASSERT_GE(now, before);
      before = now;
    }
  }
}

TEST(Statistics, DeviationIsTheSamples) {
  EXPECT_DOUBLE_EQ(mean(Values{2, 4, 4, 4, 5, 5, 7, 9}), 5.0);
  // Python: statistics.stdev([2, 4, 4, 4, 5, 5, 7, 9])
  EXPECT_DOUBLE_EQ(standard_deviation(Values{2, 4, 4, 4, 5, 5, 7, 9}), 2.138089935299395);
  EXPECT_EQ(standard_deviation(Values{3}), 0.0);
}

TEST(Statistics, SpearmanSharesRanksOfTies) {
  // The example of scipy.stats.spearmanr's documentation.
  EXPECT_DOUBLE_EQ(spearman(Values{1, 2, 3, 4, 5}, Values{5, 6, 7, 8, 7}), 0.82078268166812329);
  EXPECT_DOUBLE_EQ(spearman(Values{1, 2, 3}, Values{9, 4, 1}), -1.0);
  EXPECT_EQ(spearman(Values{1, 2, 3}, Values{7, 7, 7}), 0.0);
}

TEST(Statistics, SpearmanSeesOnlyTheOrder) {
  Rng random(2);
  Values a(50), b(50), stretched(50);
  for (std::size_t i = 0; i < a.size(); ++i) {
    a[i] = random.normal(), b[i] = a[i] + random.normal();
    stretched[i] = std::exp(a[i]);
  }
  EXPECT_DOUBLE_EQ(spearman(a, b), spearman(stretched, b));
}

TEST(Statistics, TheilSenIsNotMovedByAWildPoint) {
  Values x, y;
  for (int i = 0; i < 20; ++i) x.push_back(i), y.push_back(3.0 + 0.5 * i);
  y[7] = 1e9;
  const Line line = theil_sen(x, y);
  EXPECT_DOUBLE_EQ(line.slope, 0.5);
  EXPECT_DOUBLE_EQ(line.intercept, 3.0);
}

TEST(Statistics, TheilSenOfOnePlaceIsFlat) {
  const Line line = theil_sen(Values{2, 2, 2}, Values{1, 5, 9});
  EXPECT_EQ(line.slope, 0.0);
  EXPECT_EQ(line.intercept, 5.0);
}

}  // namespace
}  // namespace paceline::base
