#pragma once
#include <cstdint>
#include <vector>

#include "paceline/replay/timeline.h"

namespace paceline::replay {

/// A stretch of the critical path. Of a member of a collective it is the transfer and what follows it: the path goes on
/// with the member that came last, so that waiting is never on it.
struct PathStep {
  taskgraph::TaskId task;
  std::int64_t begin, end;
};

/// What kept the last task from ending earlier, first step first. The steps meet: their lengths add up to the makespan.
/// Of several tasks that end at once the lower id counts. O(path), O(tasks) to find the last task.
std::vector<PathStep> critical_path(const taskgraph::TaskGraph& graph, const Timeline& timeline);

/// By how much each task could end later without a longer makespan; 0 on the critical path. Static graphs only.
/// O(tasks + edges).
std::vector<std::int64_t> slack(const taskgraph::TaskGraph& graph, const Timeline& timeline);

}  // namespace paceline::replay
