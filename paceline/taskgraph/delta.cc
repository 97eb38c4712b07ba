#include "paceline/taskgraph/delta.h"

#include <fmt/core.h>

#include <algorithm>

#include "paceline/base/error.h"

namespace paceline::taskgraph {
namespace {

using base::kNone;

[[noreturn]] void fault(const std::string& what) {
  throw Error(ErrorKind::kBadInput, "edit of a task graph", what);
}

}  // namespace

void check(const TaskGraph& graph, const Delta& delta) {
  const std::size_t tasks = graph.size() + delta.added.size();
  for (const auto& [task, duration] : delta.durations) {
    if (index(task) >= tasks) fault(fmt::format("duration of task {}, but there are {}", index(task), tasks));
  }
  for (const auto& [collective, transfer] : delta.transfers) {
    const std::size_t count = graph.collectives().size() + delta.collectives.size();
    if (index(collective) >= count)
      fault(fmt::format("transfer of collective {}, but there are {}", index(collective), count));
  }
  for (const TaskId task : delta.removed) {
    if (index(task) >= graph.size())
      fault(fmt::format("removal of task {}, but the graph has {}", index(task), graph.size()));
  }
  std::vector<TaskId> removed = delta.removed;
  std::sort(removed.begin(), removed.end());
  const auto twice = std::adjacent_find(removed.begin(), removed.end());
  if (twice != removed.end()) fault(fmt::format("task {} is removed twice", index(*twice)));
  for (const Edge& edge : delta.removed_edges) {
    const auto predecessors = index(edge.to) < graph.size() ? graph.predecessors(edge.to) : std::span<const TaskId>();
    if (std::find(predecessors.begin(), predecessors.end(), edge.from) == predecessors.end())
      fault(fmt::format("removal of the edge {} -> {}, which is not there", index(edge.from), index(edge.to)));
  }
  for (const Edge& edge : delta.added_edges) {
    if (index(edge.from) >= tasks || index(edge.to) >= tasks)
      fault(fmt::format("added edge {} -> {}, but there are {} tasks", index(edge.from), index(edge.to), tasks));
  }
  for (const Delta::AddedCollective& added : delta.collectives) {
    for (const TaskId member : added.members) {
      if (index(member) < graph.size() || index(member) >= tasks)
        fault(fmt::format("member {} of an added collective is not an added task", index(member)));
    }
  }
}

Delta join(const TaskGraph& graph, const Delta& first, const Delta& second) {
  Delta both = first;
  const auto moved = [&](TaskId task) {
    const bool added = task != kNone<TaskId> && index(task) >= graph.size();
    return added ? static_cast<TaskId>(index(task) + first.added.size()) : task;
  };
  const auto shorter = [](auto& mine, const auto& other, auto count, auto rename) {
    std::unordered_map<std::decay_t<decltype(mine[0].first)>, std::int64_t> times(mine.begin(), mine.end());
    for (const auto& [id, time] : mine) times[id] = time;  // the last one counts
    for (const auto& [id, time] : other) {
      const auto found = times.find(rename(id));
      if (index(id) < count && found != times.end() && found->second <= time) continue;
      mine.emplace_back(rename(id), time);
    }
  };
  shorter(both.durations, second.durations, graph.size(), moved);
  const auto collectives = graph.collectives().size();
  shorter(both.transfers, second.transfers, collectives, [&](CollectiveId id) {
    return index(id) < collectives ? id : static_cast<CollectiveId>(index(id) + first.collectives.size());
  });
  both.removed.insert(both.removed.end(), second.removed.begin(), second.removed.end());
  std::sort(both.removed.begin(), both.removed.end());
  both.removed.erase(std::unique(both.removed.begin(), both.removed.end()), both.removed.end());
  for (const Edge& edge : second.removed_edges) {
    if (std::find(both.removed_edges.begin(), both.removed_edges.end(), edge) == both.removed_edges.end()) {
      both.removed_edges.push_back(edge);
    }
  }
  for (Delta::AddedTask added : second.added) {
    added.behind = moved(added.behind);
    both.added.push_back(std::move(added));
  }
  for (Delta::AddedCollective collective : second.collectives) {
    for (TaskId& member : collective.members) member = moved(member);
    both.collectives.push_back(std::move(collective));
  }
  for (const Edge& edge : second.added_edges) both.added_edges.push_back({moved(edge.from), moved(edge.to)});
  return both;
}

LanePatch::LanePatch(const TaskGraph& graph, const Delta& delta) : graph_(graph) {
  const auto lane_of = [&](TaskId task) {
    return index(task) < graph.size() ? graph.lane(task) : delta.added[index(task) - graph.size()].task.lane;
  };
  for (std::size_t i = 0; i < delta.added.size(); ++i) {
    const Delta::AddedTask& added = delta.added[i];
    const LaneId lane = added.task.lane;
    const auto id = static_cast<TaskId>(graph.size() + i);
    if (lane == kNone<LaneId> || graph.lane(lane).order != LaneOrder::kRecorded) continue;
    if (added.behind != kNone<TaskId> && (index(added.behind) >= index(id) || lane_of(added.behind) != lane))
      fault(
          fmt::format("added task {} is put behind task {}, which is not on its lane", index(id), index(added.behind)));
    const TaskId next = added.behind == kNone<TaskId> ? first(lane) : after(added.behind);
    link(lane, added.behind, id);
    link(lane, id, next);
    lanes_.push_back(lane);
  }
  std::sort(lanes_.begin(), lanes_.end());
  lanes_.erase(std::unique(lanes_.begin(), lanes_.end()), lanes_.end());
  for (const TaskId task : delta.removed) {
    const LaneId lane = graph.lane(task);
    if (lane == kNone<LaneId> || graph.lane(lane).order != LaneOrder::kRecorded) continue;
    link(lane, before(task), after(task));
    before_[task] = after_[task] = kNone<TaskId>;
  }
}

TaskId LanePatch::first(LaneId lane) const {
  const auto found = first_.find(lane);
  if (found != first_.end()) return found->second;
  const auto tasks = graph_.tasks_of(lane);
  return tasks.empty() ? kNone<TaskId> : tasks.front();
}

void LanePatch::link(LaneId lane, TaskId before, TaskId after) {
  if (before == kNone<TaskId>) {
    first_[lane] = after;
  } else {
    after_[before] = after;
  }
  if (after != kNone<TaskId>) before_[after] = before;
}

TaskGraph apply(const TaskGraph& graph, const Delta& delta) {
  check(graph, delta);
  Builder builder(graph.shared_names());
  for (const Lane& lane : graph.lanes()) builder.add_lane(lane);
  for (const Resource& resource : graph.resources()) builder.add_resource(resource);

  std::vector<bool> removed(graph.size() + delta.added.size(), false);
  for (const TaskId task : delta.removed) removed[index(task)] = true;
  for (std::uint32_t i = 0; i < graph.size(); ++i) {
    Task task = graph.task(static_cast<TaskId>(i));
    if (removed[i]) task.duration = 0, task.lane = kNone<LaneId>, task.resource = kNone<ResourceId>;
    builder.add_task(task);
  }
  for (const Delta::AddedTask& added : delta.added) builder.add_task(added.task);
  for (const auto& [task, duration] : delta.durations) {
    if (!removed[index(task)]) builder.task(task).duration = duration;
  }

  for (std::uint32_t c = 0; c < graph.collectives().size(); ++c) {
    const auto id = static_cast<CollectiveId>(c);
    builder.add_collective(graph.collective(id));
    for (const TaskId member : graph.members(id)) {
      if (!removed[index(member)]) builder.add_member(id, member);
    }
  }
  for (const Delta::AddedCollective& added : delta.collectives) {
    const CollectiveId id = builder.add_collective(added.collective);
    for (const TaskId member : added.members) builder.add_member(id, member);
  }
  for (const auto& [collective, transfer] : delta.transfers) builder.collective(collective).transfer = transfer;

  std::vector<Edge> dropped = delta.removed_edges;
  const auto by_ids = [](const Edge& a, const Edge& b) { return a.to != b.to ? a.to < b.to : a.from < b.from; };
  std::sort(dropped.begin(), dropped.end(), by_ids);
  std::vector<bool> used(dropped.size(), false);
  const auto is_dropped = [&](const Edge& edge) {
    const auto [begin, end] = std::equal_range(dropped.begin(), dropped.end(), edge, by_ids);
    for (auto at = begin; at != end; ++at) {
      const auto i = static_cast<std::size_t>(at - dropped.begin());
      if (!used[i]) return used[i] = true, true;
    }
    return false;
  };
  const auto add = [&](const Edge& edge) {
    if (!removed[index(edge.from)] && !removed[index(edge.to)] && !is_dropped(edge))
      builder.add_edge(edge.from, edge.to);
  };
  for (std::uint32_t i = 0; i < graph.size(); ++i) {
    for (const TaskId from : graph.predecessors(static_cast<TaskId>(i))) add({from, static_cast<TaskId>(i)});
  }
  for (const Edge& edge : delta.added_edges) {
    if (!removed[index(edge.from)] && !removed[index(edge.to)]) builder.add_edge(edge.from, edge.to);
  }

  const LanePatch patch(graph, delta);
  for (const LaneId lane : patch.changed_lanes()) {
    std::vector<TaskId> tasks;
    for (TaskId at = patch.first(lane); at != kNone<TaskId>; at = patch.after(at)) tasks.push_back(at);
    builder.set_lane_order(lane, std::move(tasks));
  }
  return std::move(builder).build();
}

}  // namespace paceline::taskgraph
