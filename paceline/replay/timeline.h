#pragma once
#include <cstdint>
#include <vector>

#include "paceline/taskgraph/task_graph.h"

namespace paceline::replay {

/// When each task of a graph ran. ns from the begin of the replay.
struct Timeline {
  std::vector<std::int64_t> start;  // of a member of a collective when it was ready: it waits from then on;
                                    // of a task with a resource when it was served
  std::vector<std::int64_t> end;
  std::vector<std::int64_t> transfer_start;  // per collective; -1 = it has no members
  std::int64_t makespan = 0;                 // end of the last task

  /// Of graphs that are not static: the task that left the lane or the resource in the very moment at which this one
  /// got it; kNone elsewhere. Empty for static graphs, where the graph tells.
  std::vector<taskgraph::TaskId> follows;
};

}  // namespace paceline::replay
