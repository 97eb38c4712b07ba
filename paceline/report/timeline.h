#pragma once
#include <optional>
#include <string>
#include <vector>

#include "paceline/diagnose/diagnosis.h"
#include "paceline/trace/load.h"
#include "paceline/trace/understand/trace.h"

namespace paceline::report {

struct TimelineOptions {
  std::optional<std::int64_t> step = {};  // by its number in ProfilerStep#N; the median step when not set
  std::optional<trace::Ranges> ranks = {};
  std::size_t most_slices = 2'000'000;  // beyond them the end of the step is cut off
};

/// What a timeline shows: a step, and the ranks that recorded it.
struct TimelineChoice {
  std::int64_t step = -1;          // -1: the trace marks no steps, all of it is one
  std::vector<std::size_t> ranks;  // indices into Trace::ranks, in order
};

/// The step whose mean over the ranks is the median. Up to 8 ranks all of them; of more the late ones (at most 4) and
/// those that waited longest for them; without a late rank the first ones. Throws Error(kUsage) for a step or ranks
/// that the job does not have.
TimelineChoice choose_timeline(const diagnose::Diagnosis& diagnosis, const trace::Trace& trace,
                               const TimelineOptions& options);

/// The slices that touch the step, compact, as the JSON that web/timeline_data.js reads. `rows` are the ranks of
/// `choice`, in that order, each with the source by which `trace` knows it. Slices of Python functions are left out:
/// they are many, and the operators say where the time went. Times are on the job's common clock. O(rows).
///
///   step, length_ns, left_out (slices cut off), names, kinds (of each name: compute, communication, copy, host
///   operator, annotation, runtime call, other), details ([operator, shapes]), ranks ([{rank, begin_ns, end_ns,
///   clock_known, lanes: [{name, device, rows: [slices]}]}]), collectives ([row, slice, index into the diagnosis'
///   collectives]), data
///
/// A lane's slices lie on rows, of which each is free of overlaps: a row for each level of nesting. `data` is base64 of
/// gzip of, row by row, four columns of LEB128 numbers: starts (the first as zigzag from the window's begin, then the
/// distance to the one before), durations, names, details + 1 (0 = none).
std::string timeline_json(const std::vector<trace::RankTrace>& rows, const TimelineChoice& choice,
                          const diagnose::Diagnosis& diagnosis, const trace::Trace& trace,
                          const TimelineOptions& options);

/// Reads the chosen ranks once more, as the diagnosis keeps no rows. `inputs` and `load` as they were for the
/// diagnosis. "null" when they can be read only once (a pipe).
std::string read_timeline(const std::vector<std::string>& inputs, const trace::LoadOptions& load,
                          const diagnose::Diagnosis& diagnosis, const trace::Trace& trace,
                          const TimelineOptions& options);

}  // namespace paceline::report
