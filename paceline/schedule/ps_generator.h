#pragma once
#include <cstdint>
#include <filesystem>
#include <vector>

#include "paceline/schedule/slotted.h"

namespace paceline::schedule {

/// Arrivals a slot of one of DL2's patterns (JSON object: key = most arrivals a slot, value = list).
std::vector<int> read_arrival_pattern(const std::filesystem::path& path, int most_per_slot);

struct PsGenerator {
  std::vector<int> arrivals;  // a slot, repeated when it ends
  int most_per_slot = 3;
  int jobs = 60;
  double most_epochs = 30000;
};

/// A trace as DL2's generator makes them: starts at a random offset below 5 of the pattern, the eight job types of its
/// table with equal chance (pengyanghua/DL2, trace.py and params.py). Our random numbers, so not its very traces.
PsTrace generate_ps_trace(const PsGenerator& generator, std::uint64_t seed);

}  // namespace paceline::schedule
