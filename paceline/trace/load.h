#pragma once
#include <functional>
#include <string>
#include <vector>

#include "paceline/trace/captures.h"
#include "paceline/trace/rank_trace.h"
#include "paceline/trace/understand/summary.h"

namespace paceline::trace {

struct LoadOptions {
  bool show_progress = true;
  std::string glob = {};        // of file names or paths, e.g. "rank*.json.gz"; empty = all
  std::string rank_regex = {};  // its first group is the rank in a path, and counts for more than the trace's own word
  Ranges ranks = {};            // only these
  Ranges steps = {};            // only these, by the numbers of ProfilerStep#N
  std::string capture = {};     // of several captures in one tree the one so called; empty = the last
  std::string hosts = {};       // a file with the host of each rank, or a list of nodes; see hosts_of_ranks()
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
/// A look at the ranks read so far, in order, each with its own number; `files` of `all` files have been read. They
/// must be there again when it returns.
using LookBetween = std::function<void(std::vector<RankSummary>& ranks, std::size_t files, std::size_t all)>;

/// `look`, where given, is called now and then while files are still to be read and no thread reads.
LoadedSummaries load_summaries(const std::vector<std::string>& arguments, const LoadOptions& options,
                               const ReduceOptions& reduce_options, const LookBetween& look = {});

}  // namespace paceline::trace
