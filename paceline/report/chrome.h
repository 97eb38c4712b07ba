#pragma once
#include <string>

#include "paceline/trace/rank_trace.h"
#include "paceline/trace/understand/trace.h"

namespace paceline::report {

/// A clean trace for Perfetto or chrome://tracing: all ranks in one file, one process a rank, times on the common clock
/// (nanoseconds kept as decimals of a microsecond), launch arrows from correlation ids. No two slices of one track
/// overlap without nesting: those that did go to a second track "<name> (2)". `clocks` one a rank, or empty for none.
/// Streams to `path`, which appears only when complete; throws Error(kSystem) when the disk is full, Error(kBadInput)
/// when the path cannot be written.
void write_chrome(const std::vector<trace::RankTrace>& ranks, const std::vector<trace::Clock>& clocks,
                  const std::string& path);

}  // namespace paceline::report
