#include "paceline/replay/roles.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <tuple>

#include "paceline/base/error.h"

namespace paceline::replay {
namespace {

using base::LaneId;
using base::NameId;
using taskgraph::TaskGraph;
using taskgraph::TaskId;
using taskgraph::TaskKind;

/// Names in order of first appearance.
class Names {
 public:
  explicit Names(std::vector<std::string>& names) : names_(names) {}
  std::uint32_t operator[](std::string_view name) {
    const auto [at, added] = known_.try_emplace(std::string(name), static_cast<std::uint32_t>(names_.size()));
    if (added) names_.emplace_back(name);
    return at->second;
  }

 private:
  std::vector<std::string>& names_;
  std::map<std::string, std::uint32_t> known_;
};

/// Sends and receives of one direction count together.
std::string_view group_of(std::string_view operation) {
  if (operation == "forward-send" || operation == "forward-recv") return "forward-pp-comm";
  if (operation == "backward-send" || operation == "backward-recv") return "backward-pp-comm";
  return operation;
}

/// `coordinate(worker)` in ascending order as the places of a dimension.
template <class Coordinate>
Dimension dimension(std::string name, const std::vector<trace::ndtimeline::Worker>& workers, Coordinate coordinate) {
  Dimension result{.name = std::move(name), .places = {}, .place_of = {}};
  std::set<std::uint32_t> values;
  for (const auto& worker : workers) values.insert(coordinate(worker));
  for (const std::uint32_t value : values) result.places.push_back(std::to_string(value));
  for (const auto& worker : workers) {
    result.place_of.push_back(
        static_cast<std::uint32_t>(std::distance(values.begin(), values.find(coordinate(worker)))));
  }
  return result;
}

bool is_pause(TaskKind kind) {
  return kind == TaskKind::kDelay || kind == TaskKind::kGap || kind == TaskKind::kHostGap;
}

/// What is the same task on every rank. A pause is told by the task behind it.
struct Occurrence {
  std::int32_t step;
  std::uint32_t lane;  // n-th of its kind on its rank
  bool device;
  bool pause;
  NameId name;
  std::uint32_t n;
  auto operator<=>(const Occurrence&) const = default;
};

}  // namespace

Roles roles_of(const trace::ndtimeline::Recording& recording, const trace::ndtimeline::PipelineGraph& job) {
  const TaskGraph& graph = job.graph;
  Roles roles;
  const bool several_tp = std::any_of(recording.workers.begin(), recording.workers.end(),
                                      [](const auto& worker) { return worker.tp_rank > 0; });
  for (const auto& worker : recording.workers) {
    roles.workers.push_back(fmt::format("stage {}, dp rank {}", worker.stage, worker.dp_rank) +
                            (several_tp ? fmt::format(", tp rank {}", worker.tp_rank) : ""));
  }
  roles.dimensions.push_back(dimension("dp rank", recording.workers, [](const auto& w) { return w.dp_rank; }));
  roles.dimensions.push_back(dimension("stage", recording.workers, [](const auto& w) { return w.stage; }));
  roles.pipeline = 1;
  for (const auto& step : job.steps) roles.steps.push_back({step.number, {{step.begin, step.end}}});

  Names groups(roles.groups);
  std::map<NameId, std::uint32_t> class_of;
  for (std::uint32_t id = 0; id < graph.size(); ++id) {
    const TaskId task{id};
    const bool barrier = graph.lane(task) == base::kNone<LaneId>;
    roles.worker_of.push_back(barrier ? kNobody : graph.lane(graph.lane(task)).rank);
    if (barrier) {
      roles.class_of.push_back(kNobody);
      continue;
    }
    const auto [known, added] =
        class_of.try_emplace(graph.name(task), static_cast<std::uint32_t>(roles.classes.size()));
    roles.class_of.push_back(known->second);
    if (!added) continue;
    TaskClass& task_class = roles.classes.emplace_back();
    if (graph.kind(task) == TaskKind::kDelay) {
      task_class.ideal = Ideal::kNothing;
      continue;
    }
    task_class.ideal = graph.kind(task) == TaskKind::kCollective ? Ideal::kMedian : Ideal::kMean;
    task_class.group = groups[group_of(graph.text(graph.name(task)))];
  }
  return roles;
}

Roles roles_of(const trace::Trace& trace, const trace::JobGraph& job) {
  const TaskGraph& graph = job.graph;
  Roles roles;
  Dimension ranks{.name = "rank", .places = {}, .place_of = {}};
  for (std::uint32_t rank = 0; rank < trace.ranks.size(); ++rank) {
    const std::string number = std::to_string(trace.ranks[rank].rank.value_or(rank));
    roles.workers.push_back("rank " + number);
    ranks.places.push_back(number);
    ranks.place_of.push_back(rank);
  }
  roles.dimensions.push_back(std::move(ranks));

  std::map<std::int64_t, std::vector<Span>> steps;
  for (const trace::StepTasks& step : job.steps) {
    const TaskId end = step.device_end != base::kNone<TaskId> ? step.device_end : step.host_end;
    if (end != base::kNone<TaskId>) steps[step.number].push_back({step.begin, end});
  }
  for (auto& [number, spans] : steps) {
    if (spans.size() > 1) roles.steps.push_back({number, std::move(spans)});
  }
  if (roles.steps.empty()) {
    throw Error(ErrorKind::kBadInput, "", "fewer than two ranks recorded the same step; give the traces of all ranks");
  }

  std::vector<std::uint32_t> lane_of(graph.lanes().size());
  std::map<std::pair<std::uint32_t, bool>, std::uint32_t> lanes;
  for (std::size_t lane = 0; lane < lane_of.size(); ++lane) {
    lane_of[lane] = lanes[{graph.lanes()[lane].rank, graph.lanes()[lane].device}]++;
  }
  Names groups(roles.groups);
  roles.worker_of.assign(graph.size(), kNobody);
  roles.class_of.assign(graph.size(), kNobody);
  std::map<Occurrence, std::uint32_t> class_of;
  std::map<std::pair<std::int32_t, NameId>, std::uint32_t> seen;  // of one lane
  std::map<std::int32_t, std::set<std::uint32_t>> ranks_of;       // by step
  std::vector<std::uint32_t> members;                             // per class
  for (std::uint32_t id = 0; id < graph.lanes().size(); ++id) {
    const taskgraph::Lane& lane = graph.lanes()[id];
    seen.clear();
    TaskId pause = base::kNone<TaskId>;
    for (const TaskId task : graph.tasks_of(LaneId{id})) {
      roles.worker_of[base::index(task)] = lane.rank;
      if (is_pause(graph.kind(task))) {
        pause = task;
        continue;
      }
      if (graph.step(task) < 0) {
        pause = base::kNone<TaskId>;
        continue;
      }
      Occurrence occurrence{graph.step(task), lane_of[id], lane.device, false, graph.name(task), 0};
      ranks_of[occurrence.step].insert(lane.rank);
      occurrence.n = seen[{graph.step(task), occurrence.name}]++;
      const auto join = [&](TaskId member) {
        const auto [known, added] = class_of.try_emplace(occurrence, static_cast<std::uint32_t>(roles.classes.size()));
        if (added) {
          roles.classes.push_back({.group = groups[taskgraph::kind_name(graph.kind(member))]});
          members.push_back(0);
        }
        ++members[known->second];
        roles.class_of[base::index(member)] = known->second;
      };
      join(task);
      occurrence.pause = true;
      if (pause != base::kNone<TaskId>) join(pause);
      pause = base::kNone<TaskId>;
    }
  }
  for (const auto& [occurrence, id] : class_of) {
    roles.classes[id].absent = static_cast<std::uint32_t>(ranks_of[occurrence.step].size()) - members[id];
  }
  return roles;
}

}  // namespace paceline::replay
