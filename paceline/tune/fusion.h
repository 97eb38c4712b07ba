#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace paceline::tune {

/// What it takes to synchronise a tensor, in stages that work on different parts at once (one stage for an all-reduce;
/// push, aggregation and pull for a parameter server).
struct SyncCost {
  struct Stage {
    double latency_ns = 0;
    double ns_per_byte = 0;
  };
  std::vector<Stage> stages = {{}};

  /// ns for `bytes` in `parts` equal parts: the first part passes all stages, the others follow at the pace of the
  /// slowest. 0 for no bytes.
  std::int64_t time(std::int64_t bytes, std::uint32_t parts = 1) const;
  /// The number of parts for which time() is least, at most `most`; the lowest of several. O(log most): the time is
  /// convex.
  std::uint32_t best_parts(std::int64_t bytes, std::uint32_t most = 4096) const;
};

/// The backward pass of one rank: operations one after the other, each of which may yield a tensor to synchronise.
/// Synchronisation runs beside it, one tensor at a time, in order (dPRO, MLSys 2022, section 5: p and q).
struct Backward {
  std::vector<std::int64_t> compute;  // ns of each operation
  std::vector<std::int64_t> bytes;    // of its tensor; 0 = none
  std::vector<std::int64_t> saving;   // ns saved when operation i and i + 1 are fused; negative or kNever = not fusable
  static constexpr std::int64_t kNever = -1;

  std::size_t size() const { return compute.size(); }
};

/// Which operations run as one and which tensors are sent as one. Groups are contiguous: group g ends before
/// ends[g] and begins where the one before it ends.
struct FusionPlan {
  std::vector<std::uint32_t> op_ends, tensor_ends;
  std::vector<std::uint32_t> parts;  // of each tensor group
  std::int64_t makespan = 0;         // ns until both computation and synchronisation are done
};

/// Fills in parts and makespan for the groups of a plan. O(operations).
void evaluate(const Backward& backward, const SyncCost& cost, FusionPlan& plan);

struct FusionOptions {
  bool fuse_operations = true;
  bool prune = true;  // off: every pair of groupings is looked at; to compare
};

/// The best plan. With pruning a dynamic programme over (operations done, tensors sent) that keeps only states no other
/// beats in both times, and none that cannot beat what greedy fusion by dPRO's Theorems 1 to 3 reaches. `evaluations`,
/// if given, counts the groups tried. O(operations^3) states in the worst case, near O(operations^2) in practice.
FusionPlan best_fusion(const Backward& backward, const SyncCost& cost, const FusionOptions& options = {},
                       std::size_t* evaluations = nullptr);

/// One pass by dPRO's theorems: fuse two operations when what it saves is more than the first one's synchronisation
/// takes (Theorem 1) and their tensors with them (Theorem 3), and two tensors when waiting for the second costs less
/// than sending the first alone (Theorem 2). O(operations).
FusionPlan greedy_fusion(const Backward& backward, const SyncCost& cost, bool fuse_operations = true);

/// Every tensor for itself, no operation fused.
FusionPlan no_fusion(const Backward& backward, const SyncCost& cost);

}  // namespace paceline::tune
