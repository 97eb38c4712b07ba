#pragma once
#include <cstdint>
#include <string>

#include "paceline/base/rng.h"
#include "paceline/taskgraph/delta.h"

namespace paceline::replay {

/// Small graphs and edits of every shape, for tests of the engines.
struct RandomGraphOptions {
  std::uint32_t max_tasks = 14;
  bool only_static = false;
  std::int64_t shortest = 0;  // duration
};
taskgraph::TaskGraph random_graph(base::Rng& rng, const RandomGraphOptions& options = {});

/// An edit that leaves the graph without a circle in most cases.
taskgraph::Delta random_edit(base::Rng& rng, const taskgraph::TaskGraph& graph, const RandomGraphOptions& options = {});

/// One that is large, to measure with: 8 data-parallel ranks, each a host that launches kernels on a compute stream and
/// buckets on a second one, like eight traces of 216,000 events. At least `tasks` tasks.
taskgraph::TaskGraph large_graph(std::uint32_t tasks);

}  // namespace paceline::replay
