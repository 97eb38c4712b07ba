#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "paceline/schedule/triangulation.h"

namespace paceline::schedule {

/// Replicas per node of one job, in the order of its nodes, no zeros: {4, 4, 2}.
using Placement = std::vector<int>;

/// Node index of every replica, replicas of one node together.
using Allocation = std::vector<std::uint16_t>;

Placement placement_of(const Allocation& allocation);
/// `replicas` packed onto nodes of `per_node`.
Placement packed_placement(int replicas, int per_node);

/// A measured application: how long a step takes for a placement and a local batch, and what a step is worth at a
/// batch size (Pollux, OSDI'21, section 3; the profiles of its simulator).
///
/// Step time: if the placement (up to rotation) was measured, linear in the local batch; else linear over the Delaunay
/// triangulation of (nodes, replicas, local batch) of all placements, averaged, and of the scalability runs; nodes are
/// capped at 16. Progress is counted in steps at the initial batch size.
class Application {
 public:
  struct Limits {
    int max_epochs = 0;
    int max_local_batch = 0;  // 0: the largest one measured
  };
  struct StepTime {
    double step = 0;  // seconds per step with synchronisation
    double sync = 0;  // seconds of it that are synchronisation
  };
  struct GradientNoise {
    double squared = 0;
    double variance = 0;
  };

  /// Reads placements.csv, scalability.csv (optional) and validation-<batch>.csv of `folder`.
  Application(const std::filesystem::path& folder, Limits limits);

  const std::string& name() const { return name_; }
  int initial_batch() const { return initial_batch_; }
  int max_batch() const { return max_batch_; }
  int min_local_batch() const { return min_local_batch_; }
  int max_local_batch() const { return max_local_batch_; }
  int max_epochs() const { return max_epochs_; }

  /// Throws Error(kBadInput) outside the measured range. Memoised: not safe for threads.
  StepTime step_time(const Placement& placement, int local_batch) const;
  GradientNoise gradient_noise(int batch, int epoch) const;
  /// Progress at which `epoch` epochs are done.
  double progress_at(int epoch) const { return progress_[static_cast<std::size_t>(epoch)]; }
  /// Steps at `batch` after which `epoch` + 1 epochs are done.
  double iterations(int batch, int epoch) const;
  /// The last epoch: a job is done when it has finished more epochs than this.
  int completion_epoch() const { return max_epochs_ - 1; }

 private:
  struct Epoch {
    double progress, iteration, squared, variance;
  };
  struct Measured {
    std::vector<double> local_batch;
    std::vector<StepTime> time;
  };
  struct Between {
    const std::vector<Epoch>*lower, *upper;
    double lower_batch, upper_batch;
  };

  Between between(int batch) const;
  StepTime compute_step_time(const Placement& normalised, int local_batch) const;
  const LinearInterpolator& interpolator() const;

  std::string name_;
  int initial_batch_ = 0, max_batch_ = 0, min_local_batch_ = 0, max_local_batch_ = 0, max_epochs_ = 0;
  std::map<int, std::vector<Epoch>> validation_;  // by batch size
  std::vector<double> progress_;
  std::map<std::string, Measured, std::less<>> placements_;
  std::vector<LinearInterpolator::Point> points_;
  std::vector<LinearInterpolator::Value> values_;
  mutable std::unique_ptr<LinearInterpolator> interpolator_;  // built when first needed
  mutable std::unordered_map<std::string, StepTime> memo_;
};

/// The six applications of Pollux's simulator, by name, from a folder with one folder each. Their epochs and local
/// batch limits are those of the published simulator.
std::map<std::string, std::unique_ptr<Application>, std::less<>> read_pollux_applications(
    const std::filesystem::path& folder);

}  // namespace paceline::schedule
