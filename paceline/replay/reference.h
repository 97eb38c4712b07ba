#pragma once
#include "paceline/replay/timeline.h"
#include "paceline/taskgraph/task_graph.h"

namespace paceline::replay {

/// What replay() must give, by looking at everything at every moment. O(tasks^2) and more: for tests.
Timeline naive_replay(const taskgraph::TaskGraph& graph);

}  // namespace paceline::replay
