#pragma once
#include <optional>
#include <string>
#include <vector>

#include "paceline/base/json.h"
#include "paceline/base/units.h"

// Why a job waits, from a snapshot of the cluster, in the words of Kueue's KEP-10852.

namespace paceline::schedule {

/// In order of precedence: the first that holds is the reason.
enum class PendingReason : std::uint8_t {
  kDeactivated,
  kMisconfigured,
  kNoMatchingFlavor,
  kSuspended,
  kAdmissionGated,
  kWaitingForPodsReady,
  kExceedsMaxQuota,
  kBorrowingLimitReached,
  kWaitingForQuota,
  kTopologyPlacementFailed,
  kWaitingForPreemptedWorkloads,
  kPendingEvaluation
};
std::string name_of(PendingReason reason);

/// A node or a quota: how many GPUs of which type, how many are taken.
struct GpuPool {
  std::string name, type;
  int gpus = 0, used = 0;
  bool up = true;
  std::optional<int> borrowing_limit;  // quotas only
};

struct SnapshotJob {
  std::string name, queue, gpu_type;
  int gpus = 0;
  double priority = 0;
  base::Nanos submit{0}, start{-1}, limit{0};
  bool pending = true;
  bool active = true, suspended = false, gated = false, waits_for_pods = false, waits_for_preempted = false;
  std::string own_reason;  // what the scheduler itself says
};

/// What `why` looks at. With quotas (Kueue) jobs wait for the quota of their queue, without (Slurm) for nodes.
struct ClusterSnapshot {
  base::Nanos now{0};
  std::vector<SnapshotJob> jobs;
  std::vector<GpuPool> nodes, quotas;
};

/// `squeue --json` (Slurm 22.05 to 25.x) with or without the nodes of `sinfo --json` or `scontrol show nodes --json` in
/// the same or another document; `kubectl get workloads,clusterqueues -o json` of Kueue. Adds to `snapshot`.
/// Throws Error(kBadInput) when the document is neither.
void add_document(ClusterSnapshot& snapshot, const base::Json& json, const std::string& where);

struct Why {
  std::string job;
  PendingReason reason = PendingReason::kPendingEvaluation;
  std::string detail;              // one sentence with numbers
  std::string own_reason;          // of the scheduler
  std::vector<std::string> ahead;  // jobs in front, first first
  int gpus_ahead = 0;
  std::string unblocked_by;  // what would let it run
};
/// Throws Error(kBadInput) when there is no such job or it does not wait.
Why explain(const ClusterSnapshot& snapshot, const std::string& job);
base::Json to_json(const Why& why);
std::string to_text(const Why& why);

}  // namespace paceline::schedule
