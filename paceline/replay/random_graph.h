#pragma once
#include <cstdint>
#include <string>

#include "paceline/base/rng.h"
#include "paceline/taskgraph/delta.h"

namespace paceline::replay {

/// Small graphs and edits of every shape, for tests of the engines and the acceptance's soak.
struct RandomGraphOptions {
  std::uint32_t max_tasks = 14;
  bool only_static = false;
  std::int64_t shortest = 0;  // duration
};
taskgraph::TaskGraph random_graph(base::Rng& rng, const RandomGraphOptions& options = {});

/// An edit that leaves the graph without a circle in most cases.
taskgraph::Delta random_edit(base::Rng& rng, const taskgraph::TaskGraph& graph, const RandomGraphOptions& options = {});

}  // namespace paceline::replay
