#pragma once
#include <vector>

#include "paceline/trace/rank_trace.h"
#include "paceline/trace/understand/intervals.h"

namespace paceline::trace {

/// What the host was doing: the innermost slice of the threads that do the training, one after the other.
struct HostSegment {
  std::int64_t begin, end;  // ns
  Row row;                  // innermost slice; kNoRow = in no slice
};

/// The thread that drives the steps: the one with ProfilerStep annotations, else the one with the most operator time.
/// Nothing when no thread ran an operator.
std::optional<LaneId> main_thread(const RankTrace& trace);

/// Segments of the main thread, and of autograd threads while they run an operator (the main thread only waits for them
/// then). Ordered, disjoint, without holes from the first to the last slice. O(rows).
std::vector<HostSegment> host_timeline(const RankTrace& trace);

}  // namespace paceline::trace
