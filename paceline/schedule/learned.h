#pragma once
#include <array>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "paceline/schedule/network.h"
#include "paceline/schedule/slotted.h"

// The learned policy of the slotted cluster: one small network scores, for every job alike, the next larger
// (servers, workers) worth having; the best score is granted until nothing fits. It looks at jobs one by one beside
// sums over all of them, so it is permutation-equivariant and has no window.

namespace paceline::schedule {

/// What a job may have, cheapest first: the upper concave hull of speed over the number of tasks, from nothing.
struct PsConfiguration {
  int servers = 0, workers = 0;
  int tasks() const { return servers + workers; }
};
std::vector<PsConfiguration> efficient_configurations(const SlottedCluster& cluster, std::uint32_t job);

inline constexpr int kStepFeatures = 16;
using StepFeatures = std::array<float, kStepFeatures>;

/// Decides counts for all jobs first, by total capacity, then places: workers with GPUs, then what needs CPUs only.
/// With nodes whose GPU workers never fill the CPUs this order fits whatever fits in total.
class StepPolicy : public SlottedPolicy {
 public:
  void allocate(SlottedCluster& cluster) final;

  /// For warm-up: what was offered and what was taken, of every choice of the last slot.
  struct Choice {
    std::vector<StepFeatures> offered;
    std::size_t taken = 0;
  };
  void record(std::vector<Choice>* choices) { choices_ = choices; }

 protected:
  virtual double score(const StepFeatures& features) = 0;

 private:
  struct Candidate {
    std::uint32_t job = 0;
    const std::vector<PsConfiguration>* configurations = nullptr;
    std::size_t now = 0;  // index of the configuration it has
    StepFeatures features{};
    double score = 0;
  };
  const std::vector<PsConfiguration>& configurations(const SlottedCluster& cluster, std::uint32_t job);
  void place(SlottedCluster& cluster, std::span<const Candidate> candidates) const;

  std::map<std::pair<std::string, int>, std::vector<PsConfiguration>> memo_;  // by model and GPU slots of a worker
  std::vector<Choice>* choices_ = nullptr;
};

/// Most gained speed, as a share of the job's best, for a task; jobs weigh their remaining slots to the power
/// -shortness. The rule that the network starts from.
std::unique_ptr<StepPolicy> make_ps_shortest_step(double shortness = 0.25);
std::unique_ptr<StepPolicy> make_ps_learned(Network network);

/// The network that scores as make_ps_shortest_step(shortness) does, with hidden layers that add nothing yet.
Network initial_step_network(double shortness, int hidden, std::uint64_t seed);

}  // namespace paceline::schedule
