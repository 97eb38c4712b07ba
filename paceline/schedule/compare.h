#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "paceline/base/json.h"
#include "paceline/schedule/csv.h"

namespace paceline::schedule {

/// What `schedule simulate` is asked: these policies on these workloads, in the simulator that the workload asks for.
struct CompareOptions {
  std::vector<std::filesystem::path> workloads;
  std::vector<std::string> policies;  // empty: all that the simulator knows
  std::filesystem::path profiles;     // measured speeds: folder of applications, or DL2's table
  int nodes = 0, gpus_per_node = 0;   // 0: the simulator's published cluster
  double slot_seconds = 0;            // 0: published
  double restart_seconds = -1;        // -1: published
  double interference = 0;
  std::filesystem::path learned;  // network of the policy "Learned"
  std::uint64_t seed = 1;
  bool timeline = false;
};

/// One policy on one workload. Times in seconds.
struct PolicyResult {
  std::string workload, policy;
  double average = 0, median = 0, p90 = 0, p99 = 0;  // completion time
  double average_wait = 0;                           // rigid jobs only
  double makespan = 0, utilisation = 0, restarts_per_job = 0;
  double slot_seconds = 0;
  std::vector<std::pair<std::string, double>> completion_times{};
  std::vector<Problem> problems{};
  /// (time, job, GPUs or tasks by node); nothing where the simulator keeps none.
  struct Change {
    double time;
    std::string job;
    std::vector<int> nodes;
  };
  std::vector<Change> timeline{};
};

std::vector<PolicyResult> compare_policies(const CompareOptions& options);

/// The policies a simulator knows, in the order of the table: for "elastic", "slotted", "rigid".
std::vector<std::string> policy_names(const std::string& simulator);

base::Json to_json(const std::vector<PolicyResult>& results);
/// Average over workloads of every policy, best first, as a table.
std::string to_text(const std::vector<PolicyResult>& results);

}  // namespace paceline::schedule
