#pragma once
#include <vector>

#include "paceline/trace/understand/linked_rows.h"

namespace paceline::trace {

/// The collectives of a rank by begin, described by their kernels and by what is around their launches.
std::vector<CommEvent> communication_events(const LinkedRows& rows, KeptNames& names);

}  // namespace paceline::trace
