#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace paceline::gnn {

/// Time per batch of a stage on c cores: work / c + fixed. `fixed` is what cores do not help (memory-bound or serial).
struct StageCost {
  std::string name;
  double work = 0;   // seconds on one core
  double fixed = 0;  // seconds
  int group = 0;     // which machine's cores it uses
  double on(int cores) const { return work / cores + fixed; }
};

/// Bytes per batch over a shared link, e.g. subgraphs and features over PCIe; time is bytes / share of the bandwidth.
struct TransferCost {
  std::string name;
  double bytes = 0;
  int link = 0;
};

struct ResourceRequest {
  std::vector<StageCost> stages;
  std::vector<TransferCost> transfers;
  std::vector<int> cores;         // per group
  std::vector<double> bandwidth;  // per link, bytes per second
};

struct ResourcePlan {
  std::vector<int> cores;         // per stage
  std::vector<double> bandwidth;  // per transfer
  double seconds_per_batch = 0;   // of the pipeline: its slowest stage
  std::string bound;              // which stage or transfer that is
};

/// BGL's min-max (NSDI 2023, section 3.4): whole cores per stage within each group's count, bandwidth per transfer
/// within each link's, so that the slowest stage is as fast as can be; no more cores than that needs.
/// Exact: the slowest stage gets the next core until none is left or it does not gain. O(cores * stages).
/// Throws Error(kInfeasible) when a group has fewer cores than stages.
ResourcePlan plan_resources(const ResourceRequest& request);

/// Least-squares fit of work and fixed (not below 0) to seconds measured on 1, 2, ... cores; one measurement: no
/// fixed part.
StageCost fit_stage(std::string name, std::span<const int> cores, std::span<const double> seconds, int group = 0);

/// How much of `budget` bytes to spend on rows of the topology, the rest on feature rows, so that fewest bytes are
/// fetched (Legion, ATC 2023, section 4.3). Nodes are held in order of their hotness (accesses per epoch).
struct MemorySplit {
  std::uint64_t topology_bytes = 0;
  std::uint64_t feature_bytes = 0;
  std::uint64_t feature_rows = 0;
  double fetched_bytes = 0;  // per epoch, topology and features
};
MemorySplit split_memory(std::span<const float> topology_hotness, std::span<const std::uint64_t> degrees,
                         std::span<const float> feature_hotness, std::uint64_t feature_row_bytes, std::uint64_t budget);

/// Notices when a stage's time departs from its forecast by more than `tolerance` for a while: mean of the last 16
/// batches, so that one slow batch is not a change.
class DriftWatch {
 public:
  explicit DriftWatch(double predicted_seconds, double tolerance = 0.2)
      : predicted_(predicted_seconds), tolerance_(tolerance) {}
  /// True when it is time to plan again.
  bool add(double seconds);
  double mean() const;

 private:
  double predicted_;
  double tolerance_;
  std::vector<double> last_;
  std::size_t at_ = 0;
};

/// Binds the calling thread to the given processors. Error(kSystem) when the system refuses.
void pin_this_thread(std::span<const int> processors);

}  // namespace paceline::gnn
