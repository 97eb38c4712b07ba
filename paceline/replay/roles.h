#pragma once
#include "paceline/replay/straggler.h"
#include "paceline/trace/graph/job_graph.h"
#include "paceline/trace/ndtimeline/pipeline_graph.h"

namespace paceline::replay {

/// By the rules of StragglerAnalysis: operations of one name are alike over all workers and steps; computation is
/// compared with its mean, communication with its median, launch delays are left out; workers have a stage and a dp
/// rank.
Roles roles_of(const trace::ndtimeline::Recording& recording, const trace::ndtimeline::PipelineGraph& job);

/// For profiler traces of several ranks: a task is alike on all ranks where it is the same occurrence of the same name
/// on the same lane of the same step, and is compared with their median. A pause before a task counts as 0 ns on the
/// ranks that do not have it. Throws Error(kBadInput) when fewer than two ranks share a step.
Roles roles_of(const trace::Trace& trace, const trace::JobGraph& job);

}  // namespace paceline::replay
