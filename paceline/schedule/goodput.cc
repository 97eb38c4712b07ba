#include "paceline/schedule/goodput.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace paceline::schedule {
namespace {

constexpr int kParameters = 7;
constexpr int kBatchCandidates = 50;
constexpr double kSlack = 1e-8;  // tolerance of rounding up
constexpr double kTiny = 1e-8;   // "costs nothing"

using Vector = std::array<double, kParameters>;

StepModel to_model(const Vector& x) {
  return {x[0], x[1], x[2], x[3], x[4], x[5], x[6]};
}

/// Value and gradient of Pollux's fitting objective.
double objective(const Vector& x, std::span<const StepSample> samples, Vector& gradient) {
  const StepModel model = to_model(x);
  const double count = static_cast<double>(samples.size());
  double sum_a = 0, sum_s = 0;
  Vector grad_a{}, grad_s{};
  for (const StepSample& sample : samples) {
    const double batch = sample.local_batch;
    const double a = model.accumulation_time(batch);
    const double n = model.network_time(sample.nodes, sample.replicas);
    const double error_a = std::log(a / sample.accumulation);
    sum_a += error_a * error_a;
    grad_a[0] += error_a / a;
    grad_a[1] += error_a * batch / a;
    // log of the step: log(a^g + n^g) / g, written with the larger one in front so that it cannot overflow.
    const double g = model.gamma, la = std::log(a), ln = std::log(n), top = std::max(la, ln);
    const double wa = std::exp(g * (la - top)), wn = std::exp(g * (ln - top)), w = wa + wn;
    const double log_step = top + std::log(w) / g;
    const double error_s = log_step - std::log(sample.step);
    sum_s += error_s * error_s;
    const double da = wa / w / a, dn = wn / w / n;
    grad_s[0] += error_s * da;
    grad_s[1] += error_s * da * batch;
    const double beyond = std::max(sample.replicas - 2.0, kTiny);
    if (sample.nodes > 1) {
      grad_s[2] += error_s * dn;
      grad_s[3] += error_s * dn * beyond;
    } else if (sample.replicas > 1) {
      grad_s[4] += error_s * dn;
      grad_s[5] += error_s * dn * beyond;
    }
    grad_s[6] += error_s * ((wa * la + wn * ln) / w - log_step) / g;
  }
  const double rms_a = std::sqrt(sum_a / count), rms_s = std::sqrt(sum_s / count);
  const double ratio_n = x[3] / x[2], ratio_r = x[5] / x[4];
  for (std::size_t i = 0; i < kParameters; ++i)
    gradient[i] = grad_a[i] / std::max(rms_a * count, 1e-12) + grad_s[i] / std::max(rms_s * count, 1e-12);
  gradient[2] -= 2e-2 * ratio_n * ratio_n / x[2];
  gradient[3] += 2e-2 * ratio_n / x[2];
  gradient[4] -= 2e-2 * ratio_r * ratio_r / x[4];
  gradient[5] += 2e-2 * ratio_r / x[4];
  gradient[6] += 2e-3 * (x[6] - 1);
  return rms_a + rms_s + 1e-3 * (x[6] - 1) * (x[6] - 1) + 1e-2 * (ratio_n * ratio_n + ratio_r * ratio_r);
}

/// BFGS on the variables that are off their bounds, with a projected backtracking line search.
Vector minimise(Vector x, const Vector& lower, const Vector& upper, std::span<const StepSample> samples) {
  std::array<Vector, kParameters> inverse;
  const auto reset = [&] {
    for (std::size_t i = 0; i < kParameters; ++i)
      for (std::size_t j = 0; j < kParameters; ++j) inverse[i][j] = i == j ? 1.0 : 0.0;
  };
  reset();
  Vector gradient;
  double value = objective(x, samples, gradient);
  bool fresh = true;
  for (int iteration = 0; iteration < 200; ++iteration) {
    std::array<bool, kParameters> free{};
    for (std::size_t i = 0; i < kParameters; ++i)
      free[i] = upper[i] > lower[i] && !(x[i] <= lower[i] && gradient[i] > 0) && !(x[i] >= upper[i] && gradient[i] < 0);
    Vector direction{};
    double slope = 0, length = 0;
    for (std::size_t i = 0; i < kParameters; ++i) {
      if (!free[i]) continue;
      for (std::size_t j = 0; j < kParameters; ++j)
        if (free[j]) direction[i] -= inverse[i][j] * gradient[j];
      slope += direction[i] * gradient[i];
      length = std::max(length, std::abs(direction[i]));
    }
    if (!(slope < 0)) {
      if (fresh) break;
      reset(), fresh = true;
      continue;
    }
    double step = fresh ? std::min(1.0, 0.1 / length) : 1.0;
    Vector next, next_gradient;
    double next_value = value;
    bool moved = false;
    for (int tries = 0; tries < 40 && !moved; ++tries, step *= 0.5) {
      for (std::size_t i = 0; i < kParameters; ++i)
        next[i] = std::clamp(x[i] + step * direction[i], lower[i], upper[i]);
      next_value = objective(next, samples, next_gradient);
      moved = next_value < value + 1e-4 * step * slope;
    }
    if (!moved) {
      if (fresh) break;
      reset(), fresh = true;
      continue;
    }
    Vector s, y, hy{};
    double sy = 0, yhy = 0;
    for (std::size_t i = 0; i < kParameters; ++i) {
      s[i] = next[i] - x[i];
      y[i] = next_gradient[i] - gradient[i];
      sy += s[i] * y[i];
    }
    if (sy > 1e-14) {
      for (std::size_t i = 0; i < kParameters; ++i) {
        for (std::size_t j = 0; j < kParameters; ++j) hy[i] += inverse[i][j] * y[j];
        yhy += y[i] * hy[i];
      }
      for (std::size_t i = 0; i < kParameters; ++i)
        for (std::size_t j = 0; j < kParameters; ++j)
          inverse[i][j] += (1 + yhy / sy) * s[i] * s[j] / sy - (hy[i] * s[j] + s[i] * hy[j]) / sy;
      fresh = false;
    }
    const double gained = value - next_value;
    x = next, gradient = next_gradient, value = next_value;
    if (gained < 1e-9 * std::max(value, 1e-3)) break;
  }
  return x;
}

int round_up(double value) {
  return static_cast<int>(std::ceil(value - kSlack));
}

}  // namespace

double StepModel::network_time(int nodes, int replicas) const {
  const double beyond = std::max(replicas - 2.0, kTiny);
  if (nodes > 1) return alpha_n + beta_n * beyond;
  if (replicas > 1) return alpha_r + beta_r * beyond;
  return kTiny + kTiny * beyond;
}

double StepModel::step_time(int nodes, int replicas, double local_batch) const {
  const double a = accumulation_time(local_batch), n = network_time(nodes, replicas), top = std::max(a, n);
  return top * std::pow(std::pow(a / top, gamma) + std::pow(n / top, gamma), 1.0 / gamma);
}

StepModel fit_step_model(std::span<const StepSample> samples) {
  Vector x{1e-1, 1e-2, 1e-1, 1e-2, 1e-1, 1e-2, 1.0 + 1e-3};
  Vector lower{kTiny, kTiny, kTiny, kTiny, kTiny, kTiny, 1.0};
  constexpr double kInfinity = std::numeric_limits<double>::max();
  Vector upper{kInfinity, kInfinity, kInfinity, kInfinity, kInfinity, kInfinity, 10.0};
  const auto fix = [&](std::size_t i, double value) { x[i] = lower[i] = upper[i] = value; };
  bool one_batch = true, several_nodes = false, one_node = false, beyond_two = false;
  double mean = 0;
  for (const StepSample& sample : samples) {
    one_batch &= sample.local_batch == samples.front().local_batch;
    several_nodes |= sample.nodes > 1;
    one_node |= sample.nodes == 1 && sample.replicas > 1;
    beyond_two |= sample.replicas > 2;
    mean += sample.accumulation / static_cast<double>(samples.size());
  }
  if (one_batch) fix(0, mean / 2);
  if (!several_nodes) fix(2, kTiny), fix(3, kTiny);
  if (!one_node) fix(4, kTiny), fix(5, kTiny);
  if (!beyond_two) fix(3, kTiny), fix(5, kTiny);
  x = minimise(x, lower, upper, samples);
  if (!several_nodes) {
    // Several nodes are at least a little slower than one.
    x[2] = std::max(x[2], x[4] * 1.1);
    x[3] = std::max(x[3], x[5] * 1.1);
  }
  return to_model(x);
}

BatchLimits batch_limits(const Application& application) {
  return {application.initial_batch(), application.max_batch(), application.min_local_batch(),
          application.max_local_batch()};
}

BatchChoice fixed_batch(int batch, int replicas, const BatchLimits& limits) {
  BatchChoice choice;
  const int local = round_up(static_cast<double>(batch) / replicas);
  choice.accumulation = round_up(static_cast<double>(local) / limits.largest_local) - 1;
  // Gradient statistics need at least two batches.
  if (replicas == 1 && batch > limits.initial) choice.accumulation = std::max(1, choice.accumulation);
  choice.atomic_batch = round_up(static_cast<double>(local) / (choice.accumulation + 1));
  choice.atomic_batch = std::min(choice.atomic_batch, limits.largest / (replicas * (choice.accumulation + 1)));
  return choice;
}

BatchChoice best_batch(const StepModel& model, const Application::GradientNoise& noise, int nodes, int replicas,
                       const BatchLimits& limits) {
  const double smallest = std::max<double>(limits.initial, static_cast<double>(limits.smallest_local) * replicas);
  const double ratio = std::pow(limits.largest / smallest, 1.0 / (kBatchCandidates - 1));
  const double network = model.network_time(nodes, replicas);
  BatchChoice best;
  double batch = smallest;
  int last_atomic = -1, last_accumulation = -1;
  for (int i = 0; i < kBatchCandidates; ++i, batch *= ratio) {
    const double local = (i + 1 == kBatchCandidates ? limits.largest : batch) / replicas;
    int accumulation = round_up(local / limits.largest_local) - 1;
    if (replicas == 1 && local > limits.initial + kSlack) accumulation = std::max(accumulation, 1);
    const int atomic = round_up(local / (accumulation + 1));
    if (atomic == last_atomic && accumulation == last_accumulation) continue;
    last_atomic = atomic, last_accumulation = accumulation;
    if (atomic < limits.smallest_local || atomic > limits.largest_local) continue;
    const double total = static_cast<double>(replicas) * atomic * (accumulation + 1);
    const double a = model.accumulation_time(atomic), top = std::max(a, network);
    const double step =
        top * std::pow(std::pow(a / top, model.gamma) + std::pow(network / top, model.gamma), 1.0 / model.gamma);
    const double scale = total / limits.initial, denominator = noise.variance / scale + noise.squared;
    const double gain = denominator > 0 ? (noise.variance + noise.squared) / denominator : 1.0;
    const double goodput = total / (accumulation * a + step) * gain / scale;
    if (goodput > best.goodput) best = {goodput, atomic, accumulation};
  }
  return best;
}

}  // namespace paceline::schedule
