#pragma once
#include <optional>
#include <string>

#include "paceline/replay/evaluator.h"
#include "paceline/tune/tune.h"

namespace paceline::tune {

/// Counts what a search may still look at.
struct Budget {
  std::size_t left = 0, used = 0;
  bool take() { return left > 0 ? --left, ++used, true : false; }
};

/// Each finds one strategy for the job, or says why there is none.
using Find = std::optional<Strategy> (*)(const trace::LoadedGraph& loaded, Budget& budget, std::string& why);

/// Gradient buckets (tensor fusion): of the plans DistributedDataParallel can make the one that replays best.
std::optional<Strategy> find_buckets(const trace::LoadedGraph& loaded, Budget& budget, std::string& why);
/// Runs of small element-wise kernels as one kernel each (op fusion), critical path first.
std::optional<Strategy> find_op_fusion(const trace::LoadedGraph& loaded, Budget& budget, std::string& why);
/// Kernels launched as graphs: no launch calls, no operators between them.
std::optional<Strategy> find_graph_launch(const trace::LoadedGraph& loaded, Budget& budget, std::string& why);
/// Matrix products of 32-bit floats on tensor cores.
std::optional<Strategy> find_precision(const trace::LoadedGraph& loaded, Budget& budget, std::string& why);
/// Batches made ready while the step before still runs.
std::optional<Strategy> find_prefetch(const trace::LoadedGraph& loaded, Budget& budget, std::string& why);

}  // namespace paceline::tune
