#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "paceline/diagnose/diagnosis.h"
#include "paceline/trace/rank_trace.h"

namespace paceline::diagnose {

/// A part of a job.
struct Selection {
  std::vector<std::uint32_t> ranks;                            // rank numbers, ascending
  std::optional<std::pair<std::int64_t, std::int64_t>> steps;  // numbers of the first and the last; nothing = all
};

/// How much of the host's rows an excerpt keeps; device work, its launches, collectives and steps always stay.
enum class HostRows : std::uint8_t {
  kLaunches,    // what launches device work, with all around it; allocator calls, synchronisation, input
  kOutermost,   // also annotations and the outermost operators
  kOperators,   // also all operators and calls
  kEverything,  // also Python functions and shadows on the device
};

/// The finding of `diagnosis` that says the same as `finding` at half to twice its cost: kind, class, rank, host and
/// pattern alike; as the verdict when `verdict`. nullptr when there is none.
const Finding* same_finding(const Diagnosis& diagnosis, const Finding& finding, bool verdict);

/// A small part of the job that still shows `finding`; nothing when not even the whole job does. `shows` is asked for
/// one part after the other: O(log ranks + log steps) times while more than 16 ranks are needed, else O(ranks) more.
/// First the ranks of the finding with more and more of those that share small groups with them, then fewer steps, then
/// without each rank that can be spared.
std::optional<Selection> smallest_selection(const trace::Trace& trace, const Diagnosis& diagnosis,
                                            const Finding& finding, const std::function<bool(const Selection&)>& shows);

/// Takes the rows that `level` does not keep, and instants, out of the trace.
void drop_rows(trace::RankTrace& trace, HostRows level);

}  // namespace paceline::diagnose
