#pragma once
#include <cstdint>
#include <filesystem>
#include <string>

#include "paceline/base/json.h"
#include "paceline/schedule/slotted.h"

namespace paceline::learn {

/// The cluster and the workload that a policy is trained for.
struct Setting {
  std::filesystem::path speeds, arrivals;  // DL2's speed table and arrival patterns
  schedule::SlottedOptions cluster;
  std::uint64_t seed = 1;
};

struct SearchOptions {
  double seconds = 270;  // wall time; iterations are counted in the output, since they then depend on the machine
  int iterations = 100000;
  int hidden = 16;
  int pairs = 16;           // mirrored pairs of perturbed networks an iteration
  int traces = 2;           // an iteration, common to all of them
  double deviation = 0.05;  // of a perturbation
  double rate = 0.01;       // Adam's
  int check_every = 10;     // iterations between looks at the validation traces
};

/// Improves the step policy's network by evolution strategies on average completion time itself (Salimans et al. 2017):
/// mirrored perturbations, ranks, Adam, common random traces. The network kept is the best on validation traces.
/// Returns {network, iterations, validation of the start and of the end in slots, seconds}.
base::Json search_step_policy(const Setting& setting, const SearchOptions& options);

struct WarmUpOptions {
  std::string teacher = "DRF";
  int window = 20;
  int traces = 24;
  int held_out = 6;  // traces
  int passes = 12;
  double rate = 0.002;
  int hidden = 80;  // neurons of both layers
};
/// Supervised warm-up of DL2's windowed network from a rule's decisions. Returns {network, window, agreement: share of
/// the held-out slots' decisions in which the most likely action is the teacher's, decisions}.
base::Json warm_up_windowed(const Setting& setting, const WarmUpOptions& options);

}  // namespace paceline::learn
