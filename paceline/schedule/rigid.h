#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "paceline/base/units.h"
#include "paceline/schedule/workload.h"

// The event-driven simulator of rigid jobs: a job asks for GPUs, starts when all of them are there (a gang), runs for
// its duration and ends. Nothing is preempted. What Slurm and most production clusters do.

namespace paceline::schedule {

enum class QueueRule : std::uint8_t {
  kFifo,           // strictly in order: the head blocks everybody
  kFirstFit,       // in order, what does not fit is passed over (may starve large jobs)
  kBackfill,       // EASY: the head gets a reservation, others may start if they do not delay it
  kShortestFirst,  // shortest time limit first, passing over (may starve long jobs)
  kFairShare       // fewest GPU seconds of its queue first, with the head's reservation as in backfill
};
std::string name_of(QueueRule rule);
std::optional<QueueRule> find_queue_rule(const std::string& name);

struct RigidCluster {
  int nodes = 1;
  int gpus_per_node = 8;
  int gpus() const { return nodes * gpus_per_node; }
};

struct RigidOptions {
  RigidCluster cluster;
  int backfill_depth = 500;  // waiting jobs that one pass looks at behind the head, as Slurm's bf_max_job_test
};

struct RigidRun {
  base::Nanos start{-1}, end{-1};
  /// The reservation it got when it first became head of the queue; -1 when it started at once. Under kBackfill no job
  /// starts later than this (time limits being true upper bounds): the bound on starvation.
  base::Nanos reserved{-1};
  bool backfilled = false;
};

struct RigidResult {
  std::vector<RigidRun> runs;  // by job of the workload; start -1: left out
  std::vector<Problem> problems;
  double utilisation = 0;  // of all GPUs until the last end
};

/// Nodes of a job and how many GPUs on each.
using NodeParts = std::vector<std::pair<int, int>>;

/// A job that runs when the simulation begins, for snapshots.
struct RunningJob {
  int gpus = 1;
  NodeParts nodes{};         // where it is; empty: not known
  base::Nanos end{0};        // when it will really end
  base::Nanos limit_end{0};  // when it must have ended
};

/// A job that fits on a node is put on one node, the fullest with room; a larger one takes whole nodes and the rest as
/// one part. A job that no empty cluster could hold is named and left out. Jobs must be in submission order.
RigidResult simulate_rigid(const Workload& workload, QueueRule rule, const RigidOptions& options,
                           std::span<const RunningJob> running = {}, base::Nanos begin = base::Nanos(0));

/// Where the jobs that run at `now` would be, had each been placed at its recorded start by the simulator's rule: by
/// job, empty for the others and for those that did not fit. Jobs must hold starts and ends. O(jobs log jobs).
std::vector<NodeParts> replay_placements(std::span<const JobRequest> jobs, const RigidCluster& cluster,
                                         base::Nanos now);

struct WaitSummary {
  double mean = 0, median = 0, p90 = 0;  // seconds
};
WaitSummary summarise_waits(const Workload& workload, std::span<const RigidRun> runs);

}  // namespace paceline::schedule
