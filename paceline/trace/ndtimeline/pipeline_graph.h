#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "paceline/taskgraph/task_graph.h"
#include "paceline/trace/ndtimeline/recording.h"

namespace paceline::trace::ndtimeline {

/// A step of the whole job: it lasts from the end of `begin` to the end of `end`.
struct PipelineStep {
  std::int32_t number = 0;
  taskgraph::TaskId begin = base::kNone<taskgraph::TaskId>, end = base::kNone<taskgraph::TaskId>;
  std::int64_t recorded = 0;  // ns from the first begin to the last end
};

struct PipelineGraph {
  taskgraph::TaskGraph graph;  // Lane::rank = index into Recording::workers
  std::vector<PipelineStep> steps;
  std::vector<std::string> left_out;  // of each incomplete step what it lacks
  std::uint32_t unpaired = 0;         // sends and receives whose peer was not recorded, in the steps of the graph
};

/// The dependencies of a pipelined training step by the rules of StragglerAnalysis ("Understanding Stragglers in Large
/// Model Training Using What-if Analysis", OSDI 2025). A lane is one stream of a worker: compute, each of the four
/// directions of point-to-point transfer, and data parallelism. A receive comes before its compute and behind the
/// compute before; a send behind its compute; both are one rendezvous with their peer. Parameters are gathered before
/// the first forward pass of their model chunk, gradients reduced behind the last backward pass, and all workers meet
/// to clip gradients before the optimizer. Transfers last from the last begin of their members; what an operation began
/// later than its dependencies allowed is a kDelay task before it. Steps follow each other with a barrier between.
///
/// Steps that lack operations which most steps have are left out. O(operations log operations). Throws Error(kBadInput)
/// when operations wait for each other in a circle.
PipelineGraph build_graph(const Recording& recording);

}  // namespace paceline::trace::ndtimeline
