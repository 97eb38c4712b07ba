#pragma once
#include <vector>

#include "paceline/trace/rank_trace.h"
#include "paceline/trace/understand/intervals.h"

namespace paceline::trace {

/// What ran from `begin` to `end` (ns): a slice, or nothing. `layer` tells apart what was laid over what.
struct HostSegment {
  std::int64_t begin, end;
  Row row;  // kNoRow = in no slice
  std::uint8_t layer = 0;
};

/// The thread that drives the steps: the one with ProfilerStep annotations, else the one with the most operator time.
/// Nothing when no thread ran an operator.
std::optional<LaneId> main_thread(const RankTrace& trace);

/// Segments of the main thread, and of autograd threads while they run an operator (the main thread only waits for them
/// then). Ordered, disjoint, without holes from the first to the last slice. O(rows).
std::vector<HostSegment> host_timeline(const RankTrace& trace);

/// `front` wherever it is in a slice, else `back`. Both ordered and disjoint. O(segments).
std::vector<HostSegment> overlay(const std::vector<HostSegment>& front, const std::vector<HostSegment>& back);

}  // namespace paceline::trace
