#pragma once
#include "paceline/replay/straggler.h"
#include "paceline/trace/graph/job_graph.h"
#include "paceline/trace/ndtimeline/pipeline_graph.h"

namespace paceline::replay {

/// By the rules of StragglerAnalysis: operations of one name are alike over all workers and steps; computation is
/// compared with its mean, communication with its median, launch delays are left out; workers have a stage and a dp
/// rank.
Roles roles_of(const trace::ndtimeline::Recording& recording, const trace::ndtimeline::PipelineGraph& job);

/// For profiler traces of several ranks: the n-th task of a name that a lane runs in a step is alike on all ranks and
/// in all steps, and is compared with the median. A pause before a task counts as 0 ns where there is none. Throws
/// Error(kBadInput) when fewer than two ranks share a step.
Roles roles_of(const trace::Trace& trace, const trace::JobGraph& job);

}  // namespace paceline::replay
