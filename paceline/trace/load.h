#pragma once
#include <functional>
#include <string>
#include <vector>

#include "paceline/trace/rank_trace.h"
#include "paceline/trace/understand/summary.h"

namespace paceline::trace {

struct LoadOptions {
  bool show_progress = true;
};

/// Reads every trace under the arguments (files, directories, patterns, archives; see base::expand_inputs), several at
/// a time, in the order of their ranks. Each trace has a rank afterwards: its own word (distributedInfo), else its file
/// name (rank-3, rank_3, rank[3], worker3), else the folder's, else the next free number, with a line in `warnings`.
/// Documents that are no traces are passed over with a warning as long as at least one is; else Error(kBadInput).
struct Loaded {
  std::vector<RankTrace> ranks;
  std::vector<std::string> warnings;
  bool damaged = false;  // something passed over may have been a trace before it was damaged (exit code 6)
};
Loaded load(const std::vector<std::string>& arguments, const LoadOptions& options = {});

/// The same, but reduces each trace as soon as it is read, so that only the summaries of all ranks are in memory.
struct LoadedSummaries {
  std::vector<RankSummary> ranks;
  std::vector<std::string> warnings;
  bool damaged = false;
};
LoadedSummaries load_summaries(const std::vector<std::string>& arguments, const LoadOptions& options,
                               const ReduceOptions& reduce_options);

/// The rank a path names, e.g. 3 for "job/rank-3.json.gz" or "rank_3/trace.json"; nothing when it names none.
std::optional<std::uint32_t> rank_from_path(std::string_view path);

}  // namespace paceline::trace
