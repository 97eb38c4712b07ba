#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "paceline/schedule/profile.h"

namespace paceline::schedule {

/// How a step's time depends on the allocation (Pollux, OSDI'21, section 3.2), seconds:
///   accumulation step  a = alpha_c + beta_c * local_batch
///   network            n = alpha_{n|r} + beta_{n|r} * max(replicas - 2, 1e-8), n: several nodes, r: one node
///   step               (a^gamma + n^gamma)^(1/gamma)
struct StepModel {
  double alpha_c = 0, beta_c = 0, alpha_n = 0, beta_n = 0, alpha_r = 0, beta_r = 0, gamma = 1;

  double accumulation_time(double local_batch) const { return alpha_c + beta_c * local_batch; }
  double network_time(int nodes, int replicas) const;
  double step_time(int nodes, int replicas, double local_batch) const;
};

struct StepSample {
  int nodes = 1, replicas = 1, local_batch = 1;
  double step = 0, accumulation = 0;  // seconds: with synchronisation, without
};

/// Least root mean squared logarithmic error of both times, with Pollux's priors: 1e-3 (gamma - 1)^2 +
/// 1e-2 ((beta_n/alpha_n)^2 + (beta_r/alpha_r)^2). What was never seen is assumed to cost nothing. Projected BFGS.
StepModel fit_step_model(std::span<const StepSample> samples);

/// What a job may do with its batch.
struct BatchLimits {
  int initial = 1, largest = 1;               // total
  int smallest_local = 1, largest_local = 1;  // per replica and step
};
BatchLimits batch_limits(const Application& application);

struct BatchChoice {
  double goodput = 0;  // useful samples per second
  int atomic_batch = 0;
  int accumulation = 0;  // steps before the synchronised one
};

/// Local batch and accumulation for a total batch that the user fixed.
BatchChoice fixed_batch(int batch, int replicas, const BatchLimits& limits);

/// The best of 50 total batches in geometric steps; goodput = throughput * statistical efficiency (Pollux section 3.1).
BatchChoice best_batch(const StepModel& model, const Application::GradientNoise& noise, int nodes, int replicas,
                       const BatchLimits& limits);

}  // namespace paceline::schedule
