#include "paceline/tune/reference.h"

#include <algorithm>

namespace paceline::tune {

BruteForce brute_force(const Backward& backward, const SyncCost& cost, bool fuse_operations) {
  const std::size_t n = backward.size();
  const auto ends_of = [&](std::uint32_t cuts) {
    std::vector<std::uint32_t> ends;
    for (std::uint32_t i = 1; i < n; ++i) {
      if ((cuts >> (i - 1) & 1) != 0) ends.push_back(i);
    }
    ends.push_back(static_cast<std::uint32_t>(n));
    return ends;
  };
  const std::uint32_t all = (1u << (n - 1)) - 1;
  BruteForce best{.makespan = INT64_MAX, .evaluations = 0};
  for (std::uint32_t ops = fuse_operations ? 0 : all; ops <= all; ++ops) {
    bool possible = true;
    for (std::size_t i = 0; i + 1 < n; ++i) possible &= (ops >> i & 1) != 0 || backward.saving[i] >= 0;
    if (!possible) continue;
    for (std::uint32_t tensors = 0; tensors <= all; ++tensors) {
      FusionPlan plan;
      plan.op_ends = ends_of(ops), plan.tensor_ends = ends_of(tensors);
      evaluate(backward, cost, plan);
      best.makespan = std::min(best.makespan, plan.makespan);
      ++best.evaluations;
    }
  }
  return best;
}

}  // namespace paceline::tune
