#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

#include "paceline/trace/understand/linked_rows.h"

namespace paceline::trace {

/// Elements in a shapes text: "[[8, 4], []]" has 8*4 (an empty list is no tensor or a scalar); -1 = none or too many.
std::int64_t elements_in(std::string_view shapes);

/// The collectives of a rank by begin, described by their kernels and by what is around their launches.
std::vector<CommEvent> communication_events(const LinkedRows& rows, KeptNames& names);

}  // namespace paceline::trace
