#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "paceline/replay/timeline.h"
#include "paceline/taskgraph/delta.h"
#include "paceline/taskgraph/task_graph.h"

namespace paceline::replay {

using taskgraph::CollectiveId;
using taskgraph::Delta;
using taskgraph::TaskGraph;
using taskgraph::TaskId;

/// Runs every task as early as what it depends on, its lane and its resource allow. Deterministic: ties go to the lower
/// id. One pass in topological order when graph.is_static(), O(tasks + edges), else by events, O((tasks + edges) log
/// tasks). Throws Error(kBadInput) when lanes that are not in recorded order let collectives wait for each other for
/// ever.
Timeline replay(const TaskGraph& graph);
/// The same as replay(apply(graph, delta)).
Timeline replay(const TaskGraph& graph, const Delta& delta);

/// By events whatever the graph is like; the pass in topological order gives the same for static graphs.
Timeline replay_by_events(const TaskGraph& graph);

/// K sets of durations of one static graph in one pass.
struct Variants {
  std::size_t count = 1;                // K
  std::vector<std::int64_t> durations;  // [task * K + k]
  std::vector<std::int64_t> transfers;  // [collective * K + k]

  /// K copies of the graph's own durations.
  static Variants of(const TaskGraph& graph, std::size_t count);
};
struct VariantEnds {
  std::vector<std::int64_t> end;       // [task * K + k]
  std::vector<std::int64_t> makespan;  // [k]
};
/// K is 1, 2, 4 or 8. Eight variants cost about twice what one does: the pass waits for memory, and neighbours share
/// cache lines. `ends` may be that of a call before, whose memory is used again.
void replay_variants(const TaskGraph& graph, const Variants& variants, VariantEnds& ends);

}  // namespace paceline::replay
