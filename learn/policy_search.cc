#include <algorithm>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

#include "learn/learn.h"
#include "paceline/base/parallel.h"
#include "paceline/base/rng.h"
#include "paceline/schedule/learned.h"
#include "paceline/schedule/ps_generator.h"

namespace paceline::learn {
namespace {

using schedule::Network;
using schedule::PsTrace;

constexpr int kMostTasks = 16, kArrivalsASlot = 3;
constexpr std::uint64_t kValidationSeed = 1'000'000'007;  // far from the training seeds
constexpr int kValidationTraces = 16;

double average(const PsTrace& trace, const schedule::PsSpeedTable& speeds, const Network& network,
               const schedule::SlottedOptions& cluster) {
  const auto policy = schedule::make_ps_learned(network);
  return simulate_slotted(trace, speeds, *policy, cluster).average_completion_time;
}

}  // namespace

base::Json search_step_policy(const Setting& setting, const SearchOptions& options) {
  const auto begin = std::chrono::steady_clock::now();
  const auto elapsed = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(); };
  const schedule::PsSpeedTable speeds(schedule::read_ps_speeds(setting.speeds), kMostTasks);
  schedule::PsGenerator generator;
  generator.arrivals = schedule::read_arrival_pattern(setting.arrivals, kArrivalsASlot);
  generator.most_per_slot = kArrivalsASlot;
  std::vector<PsTrace> validation;
  for (std::uint64_t i = 0; i < kValidationTraces; ++i)
    validation.push_back(generate_ps_trace(generator, kValidationSeed + i));
  const auto validate = [&](const Network& network) {
    std::vector<double> values(validation.size());
    base::parallel_for(values.size(),
                       [&](std::size_t i) { values[i] = average(validation[i], speeds, network, setting.cluster); });
    return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
  };

  base::Rng rng(setting.seed);
  Network network = schedule::initial_step_network(0.25, options.hidden, setting.seed);
  Network smoothed = network, best = network;
  const double start = validate(network);
  double least = start;
  const std::size_t count = network.parameters.size(), pairs = static_cast<std::size_t>(options.pairs);
  std::vector<double> momentum(count, 0.0), scale(count, 0.0);
  int iteration = 0;
  for (; iteration < options.iterations && elapsed() < options.seconds; ++iteration) {
    std::vector<std::vector<float>> noise(pairs, std::vector<float>(count));
    for (auto& direction : noise)
      for (float& x : direction) x = static_cast<float>(rng.normal());
    std::vector<PsTrace> traces;
    for (int k = 0; k < options.traces; ++k) traces.push_back(generate_ps_trace(generator, rng.next()));
    std::vector<double> cost(2 * pairs, 0.0);
    base::parallel_for(cost.size(), [&](std::size_t i) {
      Network changed = network;
      const float sign = static_cast<float>(i % 2 == 0 ? options.deviation : -options.deviation);
      for (std::size_t k = 0; k < count; ++k) changed.parameters[k] += sign * noise[i / 2][k];
      for (const PsTrace& trace : traces) cost[i] += average(trace, speeds, changed, setting.cluster);
    });
    std::vector<std::size_t> order(cost.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return cost[a] < cost[b]; });
    std::vector<double> rank(cost.size());
    for (std::size_t r = 0; r < order.size(); ++r)
      rank[order[r]] = static_cast<double>(r) / static_cast<double>(order.size() - 1) - 0.5;
    constexpr double kMomentum = 0.9, kScale = 0.99;
    const double fresh_momentum = 1 - std::pow(kMomentum, iteration + 1),
                 fresh_scale = 1 - std::pow(kScale, iteration + 1);
    for (std::size_t k = 0; k < count; ++k) {
      double gradient = 0;
      for (std::size_t i = 0; i < pairs; ++i)
        gradient += (rank[2 * i] - rank[2 * i + 1]) * static_cast<double>(noise[i][k]);
      gradient /= 2 * static_cast<double>(pairs) * options.deviation;
      momentum[k] = kMomentum * momentum[k] + (1 - kMomentum) * gradient;
      scale[k] = kScale * scale[k] + (1 - kScale) * gradient * gradient;
      const double step = options.rate * (momentum[k] / fresh_momentum) / (std::sqrt(scale[k] / fresh_scale) + 1e-8);
      network.parameters[k] -= static_cast<float>(step);
      smoothed.parameters[k] += 0.05f * (network.parameters[k] - smoothed.parameters[k]);
    }
    if (iteration % options.check_every != options.check_every - 1) continue;
    if (const double value = validate(smoothed); value < least) least = value, best = smoothed;
  }
  base::Json json;
  json["network"] = to_json(best);
  json["iterations"] = iteration;
  json["validation_start_slots"] = start;
  json["validation_slots"] = least;
  json["seconds"] = elapsed();
  return json;
}

}  // namespace paceline::learn
