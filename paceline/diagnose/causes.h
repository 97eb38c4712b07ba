#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

#include "paceline/diagnose/diagnosis.h"
#include "paceline/diagnose/own_time.h"

namespace paceline::diagnose {

/// A rank, or ranks that are late together: indices into Trace::ranks.
struct Party {
  std::vector<std::uint32_t> ranks;
  bool has(std::uint32_t rank) const { return std::find(ranks.begin(), ranks.end(), rank) != ranks.end(); }
};

/// Fills causes and late.fault: what the party did, collectives left out, item by item against the median of its peers
/// over all steps. `late_start` is how much later its first step began, ns; 0 when that is no matter.
void find_causes(const trace::Trace& trace, const OwnTime& own, const Party& late, std::int64_t late_start,
                 Diagnosis& diagnosis);

}  // namespace paceline::diagnose
