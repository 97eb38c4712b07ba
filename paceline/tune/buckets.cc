#include "paceline/tune/buckets.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "paceline/base/statistics.h"
#include "paceline/trace/understand/names.h"

namespace paceline::tune {
namespace {

using base::kNone;
using taskgraph::CollectiveId;
using taskgraph::Delta;
using taskgraph::LaneId;
using taskgraph::TaskGraph;
using taskgraph::TaskId;
using taskgraph::TaskKind;
using trace::Gradient;

constexpr double kMiB = 1 << 20;

/// Transfer = latency + bytes / bandwidth through the recorded ones; of one size alone a tenth is called latency.
SyncCost fit(const TaskGraph& graph, const std::vector<std::vector<CollectiveId>>& of_step) {
  std::vector<double> bytes, times;
  for (const auto& step : of_step) {
    for (const CollectiveId id : step) {
      bytes.push_back(static_cast<double>(graph.collective(id).bytes));
      times.push_back(static_cast<double>(graph.collective(id).transfer));
    }
  }
  const auto [least, most] = std::minmax_element(bytes.begin(), bytes.end());
  SyncCost::Stage stage;
  if (*most > 1.2 * *least) {
    const base::Line line = base::theil_sen(bytes, times);
    stage = {std::max(0.0, line.intercept), std::max(0.0, line.slope)};
  }
  if (stage.ns_per_byte <= 0) {
    const double time = base::median(times), size = base::median(bytes);
    stage = {0.1 * time, 0.9 * time / size};
  }
  return {{stage}};
}

}  // namespace

std::optional<GradientSync> find_gradient_sync(const trace::JobGraph& job, std::string& why) {
  const TaskGraph& graph = job.graph;
  GradientSync sync;
  if (job.gradients.empty()) {
    why = "no gradients with shapes are recorded; record with record_shapes=True";
    return std::nullopt;
  }
  std::map<std::pair<std::uint32_t, std::int32_t>, std::vector<const Gradient*>> lists;
  for (const Gradient& gradient : job.gradients) lists[{gradient.rank, gradient.step}].push_back(&gradient);
  std::int64_t total = 0;
  for (const Gradient* gradient : lists.begin()->second) total += gradient->elements;
  std::map<std::int32_t, std::vector<std::pair<std::int64_t, CollectiveId>>> reduces;
  for (std::uint32_t c = 0; c < graph.collectives().size(); ++c) {
    const auto id = static_cast<CollectiveId>(c);
    if (graph.text(graph.collective(id).name) != "all_reduce" || graph.members(id).size() < 2) continue;
    std::int64_t begin = 0;
    for (const TaskId member : graph.members(id)) begin = std::max(begin, job.recorded_start[index(member)]);
    reduces[graph.step(graph.members(id).front())].emplace_back(begin, id);
  }
  std::map<std::int32_t, std::vector<TaskId>> apart;
  for (std::uint32_t i = 0; i < graph.size(); ++i) {
    const auto task = static_cast<TaskId>(i);
    const bool lone = graph.kind(task) == TaskKind::kCollective && graph.collective(task) == kNone<CollectiveId>;
    if (lone && trace::kind_of_span(graph.text(graph.name(task))) == trace::CollectiveKind::kAllReduce) {
      apart[graph.step(task)].push_back(task);
    }
  }
  std::int64_t element_bytes = 4;
  for (auto& [step, list] : reduces) {
    if (step < 0) continue;
    std::sort(list.begin(), list.end());
    std::int64_t carried = 0;
    for (const auto& [begin, id] : list) carried += graph.collective(id).bytes;
    // A scalar has no shape to count, and some are reduced by themselves.
    const auto carries = [&](std::int64_t of_one) { return std::abs(carried - total * of_one) * 1000 <= carried; };
    // Some may have been torn apart: two gloo threads do not start in the same order in all ranks.
    const bool some_apart = !apart[step].empty() && carried < total * 4 && carried * 10 > total * 4 * 8;
    if (!carries(4) && !carries(2) && !some_apart) {
      why = fmt::format("the all-reduces of a step carry {} bytes, its gradients are {} elements", carried, total);
      continue;
    }
    element_bytes = carries(2) ? 2 : 4;
    sync.of_step.resize(std::max<std::size_t>(sync.of_step.size(), static_cast<std::size_t>(step) + 1));
    sync.apart.resize(sync.of_step.size());
    sync.apart[static_cast<std::size_t>(step)] = apart[step];
    for (const auto& [begin, id] : list) sync.of_step[static_cast<std::size_t>(step)].push_back(id);
  }
  if (sync.of_step.empty()) {
    if (why.empty()) why = "no all-reduce of two or more recorded ranks";
    return std::nullopt;
  }
  for (const Gradient* gradient : lists.begin()->second) sync.bytes.push_back(gradient->elements * element_bytes);
  for (const auto& [of, list] : lists) {
    // Gradients added up over several backward passes: the last of each counts.
    if (list.size() % sync.bytes.size() != 0) {
      why = fmt::format("rank {} has {} gradients in a step, another {}", of.first, list.size(), sync.bytes.size());
      return std::nullopt;
    }
  }
  const auto first =
      std::find_if(sync.of_step.begin(), sync.of_step.end(), [](const auto& step) { return !step.empty(); });
  for (const CollectiveId id : *first) sync.bucket_bytes.push_back(graph.collective(id).bytes);
  sync.cost = fit(graph, sync.of_step);
  return sync;
}

Delta rebucket(const trace::JobGraph& job, const GradientSync& sync, const BucketPlan& plan) {
  const TaskGraph& graph = job.graph;
  Delta delta;
  std::map<std::pair<std::uint32_t, std::int32_t>, std::vector<TaskId>> ready;  // of each rank and step
  for (const Gradient& gradient : job.gradients) ready[{gradient.rank, gradient.step}].push_back(gradient.ready);
  for (std::size_t s = 0; s < sync.of_step.size(); ++s) {
    // Of each rank: its last member so far on each lane that carried some (gloo has two threads), and who waits for
    // them.
    struct Rank {
      std::vector<TaskId> last;
      std::set<TaskId> waiting;
    };
    std::map<std::uint32_t, Rank> ranks;
    std::set<TaskId> members;
    for (const CollectiveId id : sync.of_step[s]) {
      members.insert(graph.members(id).begin(), graph.members(id).end());
    }
    if (members.empty()) continue;
    members.insert(sync.apart[s].begin(), sync.apart[s].end());
    for (const CollectiveId id : sync.of_step[s]) {
      for (const TaskId member : graph.members(id)) {
        Rank& rank = ranks[graph.lane(graph.lane(member)).rank];
        const auto on_lane = [&](TaskId other) { return graph.lane(other) == graph.lane(member); };
        if (std::none_of(rank.last.begin(), rank.last.end(), on_lane)) rank.last.push_back(member);
        for (const TaskId successor : graph.successors(member)) {
          if (!members.contains(successor)) rank.waiting.insert(successor);
        }
        delta.removed.push_back(member);
      }
    }
    for (const TaskId task : sync.apart[s]) {
      for (const TaskId successor : graph.successors(task)) {
        if (!members.contains(successor)) ranks[graph.lane(graph.lane(task)).rank].waiting.insert(successor);
      }
      delta.removed.push_back(task);
    }
    std::size_t lanes = SIZE_MAX;
    for (const auto& [r, rank] : ranks) lanes = std::min(lanes, rank.last.size());
    std::uint32_t begin = 0;
    std::size_t bucket = 0;
    for (const std::uint32_t end : plan.ends) {
      std::int64_t bytes = 0;
      for (std::uint32_t g = begin; g < end; ++g) bytes += sync.bytes[g];
      taskgraph::Collective row = graph.collective(sync.of_step[s].front());
      row.bytes = bytes;
      row.transfer = sync.cost.time(bytes);
      Delta::AddedCollective collective{.collective = row, .members = {}};
      for (auto& [r, rank] : ranks) {
        TaskId& last = rank.last[bucket % lanes];
        taskgraph::Task task =
            index(last) < graph.size() ? graph.task(last) : delta.added[index(last) - graph.size()].task;
        task.duration = 0;
        const auto id = static_cast<TaskId>(graph.size() + delta.added.size());
        delta.added.push_back({.task = task, .behind = last});
        last = id;
        collective.members.push_back(id);
        const auto& list = ready.at({r, static_cast<std::int32_t>(s)});
        delta.added_edges.push_back({list[list.size() - sync.bytes.size() + end - 1], id});
        for (const TaskId waiting : rank.waiting) delta.added_edges.push_back({id, waiting});
      }
      delta.collectives.push_back(std::move(collective));
      begin = end;
      ++bucket;
    }
  }
  return delta;
}

BucketPlan ddp_plan(const std::vector<std::int64_t>& bytes, double first_mb, double cap_mb) {
  BucketPlan plan{.ends = {}, .first_mb = first_mb, .cap_mb = cap_mb};
  std::int64_t size = 0;
  for (std::uint32_t g = 0; g < bytes.size(); ++g) {
    size += bytes[g];
    if (static_cast<double>(size) < (plan.ends.empty() ? first_mb : cap_mb) * kMiB && g + 1 < bytes.size()) continue;
    plan.ends.push_back(g + 1);
    size = 0;
  }
  return plan;
}

std::string horovod_file(const BucketPlan& plan) {
  std::string text = "{\"mapping\": [";
  std::uint32_t g = 0;
  for (std::size_t b = 0; b < plan.ends.size(); ++b) {
    text += b == 0 ? "\"" : ", \"";
    for (const std::uint32_t begin = g; g < plan.ends[b]; ++g) text += fmt::format("{}{}", g == begin ? "" : "+", g);
    text += "\"";
  }
  return text + "]}\n";
}

std::string byteps_file(const BucketPlan& plan, const std::vector<std::int64_t>& bytes) {
  std::string text;
  std::uint32_t g = 0;
  for (const std::uint32_t end : plan.ends) {
    std::int64_t size = 0;
    const std::uint32_t begin = g;
    for (; g < end; ++g) size += bytes[g];
    text += fmt::format("gradient_{}_{} {}\n", begin, end - 1, size);
  }
  return text;
}

}  // namespace paceline::tune
