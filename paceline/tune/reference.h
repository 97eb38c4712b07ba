#pragma once
#include <cstddef>
#include <cstdint>

#include "paceline/tune/fusion.h"

namespace paceline::tune {

/// What best_fusion() must reach: every grouping of operations with every grouping of tensors. O(4^operations): for
/// tests.
struct BruteForce {
  std::int64_t makespan = 0;
  std::size_t evaluations = 0;
};
BruteForce brute_force(const Backward& backward, const SyncCost& cost, bool fuse_operations = true);

}  // namespace paceline::tune
