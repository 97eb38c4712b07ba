#include "paceline/gnn/resource_plan.h"

#include <fmt/core.h>
#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <numeric>

#include "paceline/base/error.h"

namespace paceline::gnn {

ResourcePlan plan_resources(const ResourceRequest& request) {
  ResourcePlan plan;
  plan.cores.assign(request.stages.size(), 1);
  std::vector<int> left = request.cores;
  for (const StageCost& stage : request.stages) {
    PL_CHECK(stage.group >= 0 && static_cast<std::size_t>(stage.group) < left.size());
    if (--left[static_cast<std::size_t>(stage.group)] < 0)
      throw Error(ErrorKind::kInfeasible, "resource plan",
                  fmt::format("machine {} has {} cores, fewer than its stages", stage.group,
                              request.cores[static_cast<std::size_t>(stage.group)]));
  }
  // Transfers of one link finish together when each gets bandwidth in proportion to its bytes; any other split makes
  // one of them later.
  std::vector<double> total(request.bandwidth.size(), 0);
  for (const TransferCost& transfer : request.transfers)
    total.at(static_cast<std::size_t>(transfer.link)) += transfer.bytes;
  double slowest_transfer = 0;
  std::string transfer_name;
  for (const TransferCost& transfer : request.transfers) {
    const auto link = static_cast<std::size_t>(transfer.link);
    plan.bandwidth.push_back(total[link] == 0 ? 0 : request.bandwidth[link] * transfer.bytes / total[link]);
    const double seconds = transfer.bytes == 0 ? 0 : total[link] / request.bandwidth[link];
    if (seconds > slowest_transfer) slowest_transfer = seconds, transfer_name = transfer.name;
  }
  const auto slowest = [&] {
    std::size_t found = 0;
    for (std::size_t i = 1; i < request.stages.size(); ++i)
      if (request.stages[i].on(plan.cores[i]) > request.stages[found].on(plan.cores[found])) found = i;
    return found;
  };
  // The slowest stage is the only one whose core can shorten the batch.
  while (!request.stages.empty()) {
    const std::size_t i = slowest();
    const double seconds = request.stages[i].on(plan.cores[i]);
    plan.seconds_per_batch = seconds;
    plan.bound = request.stages[i].name;
    int& free = left[static_cast<std::size_t>(request.stages[i].group)];
    if (seconds <= slowest_transfer || free == 0 || request.stages[i].work == 0) break;
    ++plan.cores[i];
    --free;
  }
  if (slowest_transfer >= plan.seconds_per_batch && slowest_transfer > 0)
    plan.seconds_per_batch = slowest_transfer, plan.bound = transfer_name;
  return plan;
}

StageCost fit_stage(std::string name, std::span<const int> cores, std::span<const double> seconds, int group) {
  PL_CHECK(!cores.empty() && cores.size() == seconds.size());
  // seconds = work * (1 / cores) + fixed, a straight line in 1 / cores.
  const double n = static_cast<double>(cores.size());
  double sum_x = 0;
  double sum_y = 0;
  double sum_xx = 0;
  double sum_xy = 0;
  for (std::size_t i = 0; i < cores.size(); ++i) {
    const double x = 1.0 / cores[i];
    sum_x += x, sum_y += seconds[i], sum_xx += x * x, sum_xy += x * seconds[i];
  }
  const double spread = n * sum_xx - sum_x * sum_x;
  double work = spread > 1e-12 ? (n * sum_xy - sum_x * sum_y) / spread : sum_y / sum_x;
  double fixed = (sum_y - work * sum_x) / n;
  if (fixed < 0) fixed = 0, work = sum_xy / sum_xx;
  if (work < 0) work = 0, fixed = sum_y / n;
  return {std::move(name), work, fixed, group};
}

MemorySplit split_memory(std::span<const float> topology_hotness, std::span<const std::uint64_t> degrees,
                         std::span<const float> feature_hotness, std::uint64_t feature_row_bytes,
                         std::uint64_t budget) {
  const auto by_hotness = [](std::span<const float> hotness) {
    std::vector<std::uint64_t> order(hotness.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](std::uint64_t a, std::uint64_t b) { return hotness[a] > hotness[b]; });
    return order;
  };
  const std::vector<std::uint64_t> topology = by_hotness(topology_hotness);
  const std::vector<std::uint64_t> features = by_hotness(feature_hotness);
  const auto topology_bytes = [&](std::uint64_t v) { return degrees[v] * 4 + 8; };
  double topology_left = 0;
  double feature_left = 0;
  for (std::size_t v = 0; v < topology.size(); ++v)
    topology_left += static_cast<double>(topology_hotness[v]) * static_cast<double>(topology_bytes(v));
  for (const float accesses : feature_hotness)
    feature_left += static_cast<double>(accesses) * static_cast<double>(feature_row_bytes);
  // From all features to ever more topology: rows of features leave as rows of the topology come in.
  std::uint64_t rows =
      std::min<std::uint64_t>(features.size(), feature_row_bytes == 0 ? features.size() : budget / feature_row_bytes);
  for (std::uint64_t i = 0; i < rows; ++i)
    feature_left -= static_cast<double>(feature_hotness[features[i]]) * static_cast<double>(feature_row_bytes);
  MemorySplit best{0, rows * feature_row_bytes, rows, topology_left + feature_left};
  std::uint64_t spent = 0;
  for (const std::uint64_t v : topology) {
    spent += topology_bytes(v);
    if (spent > budget) break;
    topology_left -= static_cast<double>(topology_hotness[v]) * static_cast<double>(topology_bytes(v));
    while (rows > 0 && rows * feature_row_bytes + spent > budget)
      feature_left += static_cast<double>(feature_hotness[features[--rows]]) * static_cast<double>(feature_row_bytes);
    if (topology_left + feature_left < best.fetched_bytes)
      best = {spent, rows * feature_row_bytes, rows, topology_left + feature_left};
  }
  return best;
}

bool DriftWatch::add(double seconds) {
  constexpr std::size_t kBatches = 16;
  if (last_.size() < kBatches)
    last_.push_back(seconds);
  else
    last_[at_] = seconds;
  at_ = (at_ + 1) % kBatches;
  return last_.size() == kBatches && std::fabs(mean() - predicted_) > tolerance_ * predicted_;
}

double DriftWatch::mean() const {
  return last_.empty() ? 0 : std::accumulate(last_.begin(), last_.end(), 0.0) / static_cast<double>(last_.size());
}

void pin_this_thread(std::span<const int> processors) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int processor : processors) CPU_SET(static_cast<std::size_t>(processor), &set);
  if (::sched_setaffinity(0, sizeof(set), &set) != 0)
    throw Error(ErrorKind::kSystem, "pinning",
                fmt::format("cannot bind a thread to its processors: {}", std::strerror(errno)));
}

}  // namespace paceline::gnn
