#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "paceline/taskgraph/delta.h"
#include "paceline/taskgraph/task_graph.h"

namespace paceline::replay {

/// What an edit changes.
enum class Target : std::uint8_t {
  kKernel,  // computation and copies, by name
  kOp,      // everything that belongs to an operator, by the operator's name
  kSpan,    // everything in an annotation, by its name ("load_batch", "layers.3")
  kHost,    // operators, calls and gaps on host threads, by their name or the annotation around them
  kRank,    // all work of a rank but its collectives; the pattern is a list of ranks
  kLink,    // transfers of collectives, by kind or group; a factor is that of the bandwidth
  kLaunch,  // launch calls and what passes between them and their kernels
  kGap,     // recorded idle time that nothing explains
  kRanks    // the number of data-parallel ranks: all-reduce, all-gather and reduce-scatter over rings of that many
};

enum class Change : std::uint8_t { kScale, kSet, kAdd };

/// One edit as it is written on the command line:
///
///     TARGET[:PATTERN][@RANKS]=VALUE      kernel:*gemm*=x0.8   host:load_batch@2=0   link:*=x2   span:layers.3=+1ms
///
/// PATTERN is a shell pattern, RANKS a list like 0-7,16; VALUE is xFACTOR, a time (0, 5us, 1.5ms) or +time, -time.
struct Edit {
  Target target = Target::kKernel;
  std::string pattern = "*";
  std::string ranks;  // empty = all
  Change change = Change::kScale;
  double factor = 1;
  std::int64_t time = 0;   // ns
  std::int64_t count = 0;  // of kRanks
  std::string text;        // as written
};

/// Throws Error(kUsage) that names what is wrong and what may stand there.
Edit parse_edit(std::string_view text);

/// The edit as a change of `graph`; durations never fall below 0. A pure function. Throws Error(kUsage) when nothing in
/// the graph matches, with the longest names of the kind that could. O(tasks).
taskgraph::Delta delta_of(const taskgraph::TaskGraph& graph, const Edit& edit);

/// Several edits one after the other, each seeing what those before it left.
taskgraph::Delta delta_of(const taskgraph::TaskGraph& graph, const std::vector<Edit>& edits);

}  // namespace paceline::replay
