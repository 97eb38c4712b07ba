#include "paceline/schedule/max_min.h"

#include <fmt/core.h>

#include <algorithm>
#include <coin/ClpSimplex.hpp>
#include <coin/CoinPackedMatrix.hpp>
#include <coin/CoinPackedVector.hpp>
#include <nlohmann/json.hpp>
#include <numeric>

#include "paceline/base/error.h"
#include "paceline/base/json.h"
#include "paceline/schedule/csv.h"

namespace paceline::schedule {

GavelThroughputs read_gavel_throughputs(const std::filesystem::path& path) {
  const base::Json json = base::parse_json(read_document_text(path), path.string());
  GavelThroughputs throughputs;
  if (!json.is_object()) throw Error(ErrorKind::kBadInput, path.string(), "is no object of GPU types");
  for (const auto& [type, jobs] : json.items()) {
    if (!jobs.is_object()) throw Error(ErrorKind::kBadInput, path.string(), fmt::format("'{}' holds no jobs", type));
    for (const auto& [job, others] : jobs.items())
      if (others.is_object() && others.contains("null") && others["null"].is_number())
        throughputs[type][job] = others["null"].get<double>();
  }
  return throughputs;
}

std::vector<double> max_min_factors(const MaxMinProblem& problem) {
  const std::size_t jobs = problem.throughput.size();
  const double all = std::accumulate(problem.gpus.begin(), problem.gpus.end(), 0.0) / static_cast<double>(jobs);
  std::vector<double> factors(jobs);
  for (std::size_t i = 0; i < jobs; ++i) {
    double proportional = 0;
    for (std::size_t j = 0; j < problem.gpus.size(); ++j)
      proportional += problem.throughput[i][j] * problem.gpus[j] / static_cast<double>(jobs) / std::max(1.0, all);
    if (proportional <= 0)
      throw Error(ErrorKind::kInfeasible, fmt::format("job {}", i), "has no throughput on any GPU type of the cluster");
    factors[i] = problem.scale[i] / (problem.weight[i] * proportional);
  }
  return factors;
}

MaxMinSolution solve_max_min(const MaxMinProblem& problem) {
  const std::vector<double> factors = max_min_factors(problem);
  const int jobs = static_cast<int>(factors.size()), types = static_cast<int>(problem.gpus.size());
  const int columns = jobs * types + 1, value = jobs * types;
  const auto at = [&](int i, int j) { return i * types + j; };
  // Rows: a rate for each job (value - factor * sum T X <= 0), its time (<= 1), GPUs of each type (<= N).
  CoinPackedMatrix matrix(false, 0, 0);
  matrix.setDimensions(0, columns);
  std::vector<double> upper;
  for (int i = 0; i < jobs; ++i) {
    CoinPackedVector row;
    for (int j = 0; j < types; ++j)
      row.insert(at(i, j), -factors[static_cast<std::size_t>(i)] *
                               problem.throughput[static_cast<std::size_t>(i)][static_cast<std::size_t>(j)]);
    row.insert(value, 1.0);
    matrix.appendRow(row);
    upper.push_back(0.0);
  }
  for (int i = 0; i < jobs; ++i) {
    CoinPackedVector row;
    for (int j = 0; j < types; ++j) row.insert(at(i, j), 1.0);
    matrix.appendRow(row);
    upper.push_back(1.0);
  }
  for (int j = 0; j < types; ++j) {
    CoinPackedVector row;
    for (int i = 0; i < jobs; ++i) row.insert(at(i, j), problem.scale[static_cast<std::size_t>(i)]);
    matrix.appendRow(row);
    upper.push_back(problem.gpus[static_cast<std::size_t>(j)]);
  }
  const std::vector<double> row_lower(upper.size(), -COIN_DBL_MAX),
      column_lower(static_cast<std::size_t>(columns), 0.0),
      column_upper(static_cast<std::size_t>(columns), COIN_DBL_MAX);
  std::vector<double> cost(static_cast<std::size_t>(columns), 0.0);
  cost.back() = 1.0;
  ClpSimplex model;
  model.setLogLevel(0);
  model.loadProblem(matrix, column_lower.data(), column_upper.data(), cost.data(), row_lower.data(), upper.data());
  model.setOptimizationDirection(-1);
  model.primal();
  if (!model.isProvenOptimal()) throw Error(ErrorKind::kBug, "Clp", "did not solve a program that has a solution");
  MaxMinSolution solution;
  const double* x = model.getColSolution();
  solution.value = x[value];
  for (int i = 0; i < jobs; ++i) solution.share.emplace_back(x + at(i, 0), x + at(i, 0) + types);
  const double* price = model.getRowPrice();
  solution.rate_price.assign(price, price + jobs);
  solution.time_price.assign(price + jobs, price + 2 * jobs);
  solution.gpu_price.assign(price + 2 * jobs, price + 2 * jobs + types);
  return solution;
}

}  // namespace paceline::schedule
