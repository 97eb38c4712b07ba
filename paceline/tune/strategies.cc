#include "paceline/tune/strategies.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "paceline/replay/critical_path.h"
#include "paceline/replay/what_if.h"
#include "paceline/trace/graph/lanes.h"
#include "paceline/tune/buckets.h"

namespace paceline::tune {
namespace {

using base::kNone;
using taskgraph::Delta;
using taskgraph::LaneId;
using taskgraph::NameId;
using taskgraph::TaskGraph;
using taskgraph::TaskId;
using taskgraph::TaskKind;

/// Looks a property of names up once per name.
template <class Predicate>
class NameSet {
 public:
  NameSet(const TaskGraph& graph, Predicate predicate) : graph_(graph), predicate_(predicate) {}
  bool contains(NameId name) {
    if (name == kNone<NameId>) return false;
    const auto [found, added] = known_.try_emplace(name, false);
    if (added) found->second = predicate_(graph_.text(name));
    return found->second;
  }

 private:
  const TaskGraph& graph_;
  Predicate predicate_;
  std::unordered_map<NameId, bool> known_;
};

/// PyTorch's kernels that read and write every element once.
bool is_elementwise(std::string_view name) {
  return name.find("elementwise_kernel") != name.npos || name.find("vectorized_elementwise") != name.npos;
}

/// cuBLAS and cuDNN name kernels of 32-bit floats so; those on tensor cores already have "tf32", "s1688", "h16816", ...
bool is_float32_product(std::string_view name) {
  const bool product = name.find("sgemm") != name.npos || name.find("scudnn") != name.npos;
  return product && name.find("tensorop") == name.npos && name.find("tf32") == name.npos;
}

bool is_input_span(std::string_view scope) {
  return scope.starts_with("load_batch") || scope.find("DataLoader") != scope.npos || scope.starts_with("dataloader");
}

bool has_device(const trace::LoadedGraph& loaded) {
  return std::any_of(loaded.trace.ranks.begin(), loaded.trace.ranks.end(),
                     [](const auto& rank) { return rank.has_device; });
}

/// A run of kernels one behind the other on a stream that could be one; `length` counts gaps too.
struct Run {
  std::vector<TaskId> kernels, gaps;
};

std::vector<Run> elementwise_runs(const TaskGraph& graph) {
  NameSet elementwise(graph, is_elementwise);
  std::vector<Run> runs;
  for (std::uint32_t l = 0; l < graph.lanes().size(); ++l) {
    if (!graph.lanes()[l].device) continue;
    Run run;
    std::vector<TaskId> gaps;
    const auto close = [&] {
      if (run.kernels.size() > 1) runs.push_back(std::move(run));
      run = {}, gaps.clear();
    };
    for (const TaskId task : graph.tasks_of(static_cast<LaneId>(l))) {
      const TaskKind kind = graph.kind(task);
      if (kind == TaskKind::kDelay || kind == TaskKind::kGap) {
        if (!run.kernels.empty()) gaps.push_back(task);
      } else if (kind == TaskKind::kCompute && elementwise.contains(graph.name(task)) &&
                 (run.kernels.empty() || graph.step(run.kernels.front()) == graph.step(task))) {
        run.gaps.insert(run.gaps.end(), gaps.begin(), gaps.end());
        gaps.clear();
        run.kernels.push_back(task);
      } else {
        close();
      }
    }
    close();
  }
  return runs;
}

/// n kernels that read and write everything move 2n times the data, one kernel that does all of it n + 1 times: each
/// operation's other operand and the result. The first one carries the time, so that all results are there at its end.
void fuse(const TaskGraph& graph, const Run& run, Delta& delta) {
  std::int64_t sum = 0;
  for (const TaskId kernel : run.kernels) sum += graph.duration(kernel);
  const auto n = static_cast<double>(run.kernels.size());
  delta.durations.emplace_back(run.kernels.front(), std::llround(static_cast<double>(sum) * (n + 1) / (2 * n)));
  for (std::size_t i = 1; i < run.kernels.size(); ++i) delta.durations.emplace_back(run.kernels[i], 0);
  for (const TaskId gap : run.gaps) delta.durations.emplace_back(gap, 0);
}

}  // namespace

std::optional<Strategy> find_buckets(const trace::LoadedGraph& loaded, Budget& budget, std::string& why) {
  const std::optional<GradientSync> sync = find_gradient_sync(loaded.job, why);
  if (!sync) return std::nullopt;
  double total_mb = 0;
  for (const std::int64_t bytes : sync->bytes) total_mb += static_cast<double>(bytes) / (1 << 20);
  BucketPlan best;
  std::int64_t best_step = INT64_MAX;
  std::vector<std::vector<std::uint32_t>> seen;
  const auto look_at = [&](const BucketPlan& plan) {
    if (std::find(seen.begin(), seen.end(), plan.ends) != seen.end() || !budget.take()) return;
    seen.push_back(plan.ends);
    const replay::Timeline timeline = replay::replay(loaded.job.graph, rebucket(loaded.job, *sync, plan));
    const std::int64_t step = replay::mean_step(loaded.job, timeline.end);
    if (step < best_step) best_step = step, best = plan;
  };
  for (double cap = total_mb; cap > total_mb / 600; cap /= std::sqrt(2.0)) {
    for (const double first : {cap, cap / 4, 1.0}) look_at(ddp_plan(sync->bytes, first, cap));
  }
  Strategy strategy;
  strategy.name = "buckets";
  strategy.what = fmt::format("gradient buckets: first {:.3g} MB, then {:.3g} MB ({} buckets instead of {})",
                              best.first_mb, best.cap_mb, best.ends.size(), sync->bucket_bytes.size());
  const SyncCost::Stage& cost = sync->cost.stages.front();
  strategy.assumes = fmt::format("an all-reduce takes {:.0f} us and {:.2f} us per MB, as recorded",
                                 cost.latency_ns / 1e3, cost.ns_per_byte * (1 << 20) / 1e3);
  strategy.delta = rebucket(loaded.job, *sync, best);
  nlohmann::ordered_json ddp;
  ddp["first_bucket_mb"] = best.first_mb;
  ddp["bucket_cap_mb"] = best.cap_mb;
  ddp["bucket_ends"] = best.ends;
  strategy.files = {{"ddp.json", ddp.dump(2) + "\n"},
                    {"horovod_tensor_groups.json", horovod_file(best)},
                    {"byteps_partitions.txt", byteps_file(best, sync->bytes)}};
  return strategy;
}

std::optional<Strategy> find_op_fusion(const trace::LoadedGraph& loaded, Budget& budget, std::string& why) {
  const TaskGraph& graph = loaded.job.graph;
  const std::vector<Run> runs = elementwise_runs(graph);
  if (runs.empty()) {
    why = "no two element-wise kernels stand one behind the other";
    return std::nullopt;
  }
  std::unordered_map<TaskId, std::size_t> run_of;
  for (std::size_t r = 0; r < runs.size(); ++r) {
    for (const TaskId kernel : runs[r].kernels) run_of[kernel] = r;
  }
  // Critical path first: a run that is not on it cannot make the job shorter.
  Strategy strategy;
  std::vector<bool> fused(runs.size(), false);
  std::size_t count = 0, kernels = 0;
  for (int round = 0; round < 4; ++round) {
    const TaskGraph edited = taskgraph::apply(graph, strategy.delta);
    replay::Evaluator evaluator(edited);
    std::vector<std::size_t> on_path;
    for (const replay::PathStep& step : replay::critical_path(edited, evaluator.base())) {
      const auto run = run_of.find(step.task);
      if (run == run_of.end() || fused[run->second]) continue;
      fused[run->second] = true;  // looked at
      on_path.push_back(run->second);
    }
    std::size_t taken = 0;
    for (const std::size_t r : on_path) {
      if (!budget.take()) break;
      Delta alone;
      fuse(graph, runs[r], alone);
      if (evaluator.makespan(alone) >= evaluator.base().makespan) continue;
      fuse(graph, runs[r], strategy.delta);
      ++taken, kernels += runs[r].kernels.size();
    }
    count += taken;
    if (taken == 0) break;
  }
  if (count == 0) {
    why = "no run of element-wise kernels is on the critical path";
    return std::nullopt;
  }
  strategy.name = "op fusion";
  strategy.what = fmt::format(
      "{} runs of {} element-wise kernels on the critical path as one kernel each (torch.compile)", count, kernels);
  strategy.assumes = "n fused element-wise kernels move (n + 1) / 2n of the data that they moved one by one";
  return strategy;
}

std::optional<Strategy> find_graph_launch(const trace::LoadedGraph& loaded, Budget&, std::string& why) {
  const TaskGraph& graph = loaded.job.graph;
  if (!has_device(loaded)) {
    why = "the job runs on CPUs";
    return std::nullopt;
  }
  Strategy strategy;
  strategy.name = "graph launch";
  strategy.what = "the forward and backward pass captured as CUDA graphs: no operator dispatch, no launch per kernel";
  strategy.assumes = "shapes do not change from step to step and nothing in the pass waits for the device";
  for (std::uint32_t i = 0; i < graph.size(); ++i) {
    const auto task = static_cast<TaskId>(i);
    if (graph.kind(task) != TaskKind::kHost || graph.step(task) < 0) continue;
    const std::string_view name = graph.text(graph.name(task));
    if (!trace::is_synchronisation(name) && name.find("emcpy") == name.npos)
      strategy.delta.durations.emplace_back(task, 0);
  }
  return strategy;
}

std::optional<Strategy> find_precision(const trace::LoadedGraph& loaded, Budget&, std::string& why) {
  const TaskGraph& graph = loaded.job.graph;
  NameSet products(graph, is_float32_product);
  Strategy strategy;
  for (std::uint32_t i = 0; i < graph.size(); ++i) {
    const auto task = static_cast<TaskId>(i);
    if (graph.kind(task) == TaskKind::kCompute && products.contains(graph.name(task)))
      strategy.delta.durations.emplace_back(task, graph.duration(task) / 2);
  }
  if (strategy.delta.durations.empty()) {
    why = "no matrix product of 32-bit floats outside tensor cores";
    return std::nullopt;
  }
  strategy.name = "mixed precision";
  strategy.what = fmt::format("{} matrix products of 32-bit floats in TF32 or BF16", strategy.delta.durations.size());
  strategy.assumes = "they take half as long on tensor cores; measure one to be sure";
  return strategy;
}

std::optional<Strategy> find_prefetch(const trace::LoadedGraph& loaded, Budget&, std::string& why) {
  const TaskGraph& graph = loaded.job.graph;
  NameSet input(graph, is_input_span);
  Strategy strategy;
  std::int64_t time = 0;
  for (std::uint32_t i = 0; i < graph.size(); ++i) {
    const auto task = static_cast<TaskId>(i);
    if (!input.contains(graph.scope(task))) continue;
    strategy.delta.durations.emplace_back(task, 0);
    time += graph.duration(task);
  }
  if (time == 0) {
    why = "no time in spans that load batches";
    return std::nullopt;
  }
  strategy.name = "prefetch";
  strategy.what = "batches loaded while the step before runs (more DataLoader workers, prefetch_factor, pinned memory)";
  strategy.assumes = "a core is free to load them";
  return strategy;
}

}  // namespace paceline::tune
