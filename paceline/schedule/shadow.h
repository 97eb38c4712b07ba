#pragma once
#include <memory>
#include <vector>

#include "paceline/schedule/slotted.h"

namespace paceline::schedule {

/// One look at the recent past: how long its jobs took, replayed to their end under both policies.
struct ShadowDecision {
  int slot = 0;
  int jobs = 0;
  double incumbent = 0, candidate = 0;  // average completion time in slots
  bool candidate_decides = false;       // from this slot on
};

struct ShadowOptions {
  int every = 20;           // slots between looks
  double margin = 0.0;      // the candidate must be better by this share
  bool only_watch = false;  // shadow mode: log, never hand over
};

/// Puts a candidate policy into production without betting the cluster on it. The incumbent decides until the replay of
/// the recent past (what was there at the last look, what has arrived since) says that the candidate would have done
/// better, and again as soon as it says otherwise. Owns both; `log` must outlive it.
std::unique_ptr<SlottedPolicy> make_ps_shadowed(std::unique_ptr<SlottedPolicy> incumbent,
                                                std::unique_ptr<SlottedPolicy> candidate, const PsSpeedTable& speeds,
                                                ShadowOptions options, std::vector<ShadowDecision>& log);

}  // namespace paceline::schedule
