#include "paceline/schedule/max_min.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "paceline/base/rng.h"
#include "paceline/schedule/test_data.h"

namespace paceline::schedule {
namespace {

/// Weak duality, with nothing of the solver: any prices with rate prices that sum to one and
/// time_i + scale_i * gpu_j >= rate_i * factor_i * T_ij bound the value by sum time_i + sum N_j gpu_j.
void expect_certified(const MaxMinProblem& problem, const MaxMinSolution& solution) {
  const std::vector<double> factors = max_min_factors(problem);
  double bound = 0, least = 1e300, prices = 0;
  for (std::size_t i = 0; i < factors.size(); ++i) {
    double rate = 0, time = 0, need = 0;
    for (std::size_t j = 0; j < problem.gpus.size(); ++j) {
      EXPECT_GE(solution.share[i][j], -1e-9);
      rate += factors[i] * problem.throughput[i][j] * solution.share[i][j];
      time += solution.share[i][j];
      // The least time price that is feasible, whatever the solver says.
      need = std::max(need, solution.rate_price[i] * factors[i] * problem.throughput[i][j] -
                                problem.scale[i] * std::max(0.0, solution.gpu_price[j]));
    }
    EXPECT_LE(time, 1 + 1e-9);
    EXPECT_GE(solution.rate_price[i], -1e-9);
    least = std::min(least, rate);
    bound += need;
    prices += solution.rate_price[i];
  }
  for (std::size_t j = 0; j < problem.gpus.size(); ++j) {
    double used = 0;
    for (std::size_t i = 0; i < factors.size(); ++i) used += problem.scale[i] * solution.share[i][j];
    EXPECT_LE(used, problem.gpus[j] + 1e-6);
    bound += problem.gpus[j] * std::max(0.0, solution.gpu_price[j]);
  }
  EXPECT_NEAR(prices, 1.0, 1e-6);
  EXPECT_NEAR(least, solution.value, 1e-6 * solution.value);
  EXPECT_NEAR(bound, solution.value, 1e-6 * solution.value);
}

TEST(MaxMin, TwoJobsAndTwoTypesByHand) {
  // Job 0 runs on type 0 only and half of its time there is its proportional share; job 1 runs on both alike. No job
  // can have more than all of its time, so the value is job 1's: 1.
  const MaxMinProblem problem{{{1, 0}, {1, 1}}, {1, 1}, {1, 1}, {1, 1}};
  const MaxMinSolution solution = solve_max_min(problem);
  EXPECT_NEAR(solution.value, 1.0, 1e-9);
  expect_certified(problem, solution);
}

TEST(MaxMin, EveryOptimumOfRandomProgramsIsCertified) {
  base::Rng rng(3);
  for (int round = 0; round < 100; ++round) {
    MaxMinProblem problem;
    for (int j = 0; j < 3; ++j) problem.gpus.push_back(static_cast<int>(rng.between(1, 36)));
    for (std::int64_t i = rng.between(1, 40); i > 0; --i) {
      problem.throughput.push_back({rng.uniform() + 0.01, rng.uniform() * 3, rng.uniform() * 10});
      problem.scale.push_back(1 << rng.below(4));
      problem.weight.push_back(1 + rng.uniform());
    }
    expect_certified(problem, solve_max_min(problem));
  }
}

TEST(MaxMin, TheMeasuredTableOfGavelIsSolvedToTheOptimum) {
  PACELINE_SCHEDULE_DATA(data);
  const GavelThroughputs table = read_gavel_throughputs(data / "gavel/simulation_throughputs.json.gz");
  MaxMinProblem problem{{}, {}, {}, {36, 36, 36}};
  for (const auto& [job, rate] : table.at("v100")) {
    problem.throughput.push_back({rate, table.at("p100").at(job), table.at("k80").at(job)});
    problem.scale.push_back(std::max(1, job[job.size() - 2] - '0'));
    problem.weight.push_back(1);
    if (problem.scale.size() == 60) break;
  }
  expect_certified(problem, solve_max_min(problem));
}

}  // namespace
}  // namespace paceline::schedule
