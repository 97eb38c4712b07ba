#pragma once
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace paceline::schedule {

/// Steps a second alone, by GPU type, then by Gavel's job key "('model (batch size b)', gpus)".
using GavelThroughputs = std::map<std::string, std::map<std::string, double>>;
GavelThroughputs read_gavel_throughputs(const std::filesystem::path& path);

/// Gavel's heterogeneity-aware max-min fairness (OSDI'20, section 4.1): which share of its time each job spends on
/// each GPU type.
///   max min_i  scale_i / (weight_i * T_i^prop) * sum_j T_ij X_ij
///   sum_j X_ij <= 1,   sum_i scale_i X_ij <= N_j,   X >= 0
/// T_i^prop: the throughput of job i when every job gets the same share of every type.
struct MaxMinProblem {
  std::vector<std::vector<double>> throughput;  // [job][type]
  std::vector<int> scale;                       // GPUs of a job
  std::vector<double> weight;
  std::vector<int> gpus;  // by type
};
struct MaxMinSolution {
  double value = 0;
  std::vector<std::vector<double>> share;  // [job][type]
  /// Dual prices, a certificate of optimality: of a job's rate, of its time, of a GPU of each type.
  std::vector<double> rate_price, time_price, gpu_price;
};
/// The factor of sum_j T_ij X_ij in the objective.
std::vector<double> max_min_factors(const MaxMinProblem& problem);
/// By Clp. Throws Error(kInfeasible) when a job runs on no type.
MaxMinSolution solve_max_min(const MaxMinProblem& problem);

}  // namespace paceline::schedule
