#include "paceline/diagnose/chance.h"

#include <gtest/gtest.h>

#include <cmath>

#include "paceline/base/rng.h"

namespace paceline::diagnose {
namespace {

TEST(Chance, BinomialTailHasItsKnownValues) {
  EXPECT_NEAR(binomial_tail(0, 7, 0.3), 1.0, 1e-12);
  EXPECT_NEAR(binomial_tail(8, 8, 0.5), std::pow(0.5, 8), 1e-12);
  EXPECT_NEAR(binomial_tail(2, 3, 0.25), 3 * 0.0625 * 0.75 + 0.015625, 1e-12);
}

// Student's t with 5 degrees of freedom: P(T > 3.365) = 0.01, P(T > 5.893) = 0.001 (any table).
TEST(Chance, ExcessTailIsAnUpperBoundOfStudentsTTooLargeByLessThanAThird) {
  for (const auto& [t, tail] : {std::pair{3.365, 0.01}, std::pair{5.893, 0.001}}) {
    std::vector<double> excess{-1, -1, -1, 1, 1, 1};  // deviation sqrt(6 / 5), error 1 / sqrt(5)
    for (double& value : excess) value += t / std::sqrt(5.0);
    EXPECT_GE(excess_tail(excess), tail * 0.999);
    EXPECT_LE(excess_tail(excess), tail * 1.333);
  }
}

TEST(Chance, OfFewerThanThreeStepsExplainsEverything) {
  EXPECT_EQ(excess_tail({}), 1.0);
  EXPECT_EQ(excess_tail({9, 9}), 1.0);
  EXPECT_EQ(excess_tail({9, 9, 9}), 0.0);
}

TEST(Chance, NoiseAroundNothingPassesNoMoreOftenThanTheBoundSays) {
  base::Rng rng(1);
  int small = 0;
  for (int trial = 0; trial < 20'000; ++trial) {
    std::vector<double> excess;
    for (int step = 0; step < 6; ++step) excess.push_back(rng.normal(0.0, 1.0));
    small += excess_tail(excess) < 0.01 ? 1 : 0;
  }
  EXPECT_LE(small, 230) << "seed 1";  // 200 expected at most, three standard deviations of 14 allowed
}

}  // namespace
}  // namespace paceline::diagnose
