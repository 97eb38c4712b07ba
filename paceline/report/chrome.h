#pragma once
#include <span>
#include <string>

#include "paceline/trace/rank_trace.h"
#include "paceline/trace/understand/trace.h"

namespace paceline::report {

/// A clean trace for Perfetto or chrome://tracing: all ranks in one file, one process a rank, times on the common clock
/// (nanoseconds kept as decimals of a microsecond), launch arrows from correlation ids. No two slices of one track
/// overlap without nesting: those that did go to a second track "<name> (2)". `clocks` one a rank, or empty for none.
/// Launch arrows are left out without `arrows`: readers know launches by the correlation id. Streams to `path` as
/// JsonFile does.
void write_chrome(std::span<const trace::RankTrace> ranks, std::span<const trace::Clock> clocks,
                  const std::string& path, bool arrows = true);

}  // namespace paceline::report
