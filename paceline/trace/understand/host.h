#pragma once
#include <functional>
#include <optional>
#include <vector>

#include "paceline/trace/rank_trace.h"

namespace paceline::trace {

/// What ran from `begin` to `end` (ns): a slice, or nothing.
struct Segment {
  std::int64_t begin, end;
  Row row;                  // kNoRow = in no slice
  std::uint8_t source = 0;  // of Overlay: which of its sources
};

/// Segments one after the other, ordered and disjoint: fills the next one in, false at the end. A rank may have tens of
/// millions of them, so they are walked and never kept.
using Segments = std::function<bool(Segment&)>;

/// At every moment the first source that is in a slice, else the last one. O(sources) per segment.
Segments overlay(std::vector<Segments> sources);

/// A collective that the host itself runs, on a thread of the backend: communication, not host work.
bool is_host_collective(const RankTrace& trace, Row row);

/// The thread that drives the steps: the one with ProfilerStep annotations, else the one with the most operator time.
/// Nothing when no thread ran an operator.
std::optional<LaneId> main_thread(const RankTrace& trace);

/// The main thread last, before it the autograd threads: the main thread only waits while they run an operator.
std::vector<LaneId> training_threads(const RankTrace& trace);

/// What the training threads do: segments without holes from the first to the last slice. `trace` must outlive them.
Segments host_timeline(const RankTrace& trace);

}  // namespace paceline::trace
