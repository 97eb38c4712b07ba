#pragma once
#include <span>
#include <string>

#include "paceline/trace/rank_trace.h"
#include "paceline/trace/understand/trace.h"

namespace paceline::report {

/// A profile for speedscope.app (https://www.speedscope.app/file-format-schema.json): one evented profile for each
/// thread and stream that has slices, in nanoseconds of the common clock. Slices that overlap without nesting go to a
/// profile of their own, as the format asks for. `clocks` one a rank, or empty for none; written as JsonFile does.
void write_speedscope(std::span<const trace::RankTrace> ranks, std::span<const trace::Clock> clocks,
                      const std::string& path);

}  // namespace paceline::report
