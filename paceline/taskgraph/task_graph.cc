#include "paceline/taskgraph/task_graph.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "paceline/base/error.h"

namespace paceline::taskgraph {
namespace {

using base::kNone;

/// Offsets of rows by counting: rows[i] is where row i begins.
template <class Keys>
std::vector<std::uint32_t> rows_of(std::size_t count, const Keys& keys) {
  std::vector<std::uint32_t> rows(count + 1, 0);
  for (const auto key : keys) ++rows[index(key) + 1];
  for (std::size_t i = 0; i < count; ++i) rows[i + 1] += rows[i];
  return rows;
}

/// Fills rows with `items` of increasing position; keeps the order within a row.
template <class Item, class Key, class Value>
std::vector<TaskId> fill_rows(const std::vector<std::uint32_t>& rows, const std::vector<Item>& items, Key key,
                              Value value) {
  std::vector<TaskId> filled(items.size());
  std::vector<std::uint32_t> next(rows.begin(), rows.end() - 1);
  for (const Item& item : items) filled[next[index(key(item))]++] = value(item);
  return filled;
}

[[noreturn]] void fault(const std::string& what) {
  throw Error(ErrorKind::kBadInput, "task graph", what);
}

}  // namespace

std::string_view kind_name(TaskKind kind) {
  constexpr std::array<std::string_view, kTaskKinds> kNames = {"compute",  "collective", "copy", "host",
                                                               "host_gap", "delay",      "gap",  "other"};
  return kNames[static_cast<std::size_t>(kind)];
}

Task TaskGraph::task(TaskId id) const {
  return {duration(id), lane(id), name(id), scope(id), kind(id), step(id), priority(id), resource(id)};
}

Builder::Builder() : names_(std::make_shared<base::InternTable>()) {}
Builder::Builder(std::shared_ptr<base::InternTable> names) : names_(std::move(names)) {}

LaneId Builder::add_lane(Lane lane) {
  lanes_.push_back(std::move(lane));
  lane_orders_.emplace_back();
  return static_cast<LaneId>(lanes_.size() - 1);
}

ResourceId Builder::add_resource(Resource resource) {
  resources_.push_back(std::move(resource));
  return static_cast<ResourceId>(resources_.size() - 1);
}

TaskId Builder::add_task(const Task& task) {
  if (tasks_.size() >= index(kNone<TaskId>)) fault("more than 2^32 - 2 tasks; take fewer steps or ranks");
  tasks_.push_back(task);
  return static_cast<TaskId>(tasks_.size() - 1);
}

CollectiveId Builder::add_collective(const Collective& collective) {
  collectives_.push_back(collective);
  return static_cast<CollectiveId>(collectives_.size() - 1);
}

void Builder::add_member(CollectiveId collective, TaskId task) {
  members_.push_back({collective, task});
}

void Builder::validate() const {
  const auto in_range = [](auto id, std::size_t count) { return id == kNone<decltype(id)> || index(id) < count; };
  for (std::size_t i = 0; i < tasks_.size(); ++i) {
    const Task& task = tasks_[i];
    if (task.duration < 0) fault(fmt::format("task {} lasts {} ns; a duration is 0 or more", i, task.duration));
    if (!in_range(task.lane, lanes_.size()))
      fault(fmt::format("task {} is on lane {} of {}", i, index(task.lane), lanes_.size()));
    if (!in_range(task.resource, resources_.size()))
      fault(fmt::format("task {} wants resource {} of {}", i, index(task.resource), resources_.size()));
  }
  for (std::size_t i = 0; i < collectives_.size(); ++i) {
    if (collectives_[i].transfer < 0)
      fault(fmt::format("collective {} has a transfer of {} ns", i, collectives_[i].transfer));
    if (!in_range(collectives_[i].resource, resources_.size()))
      fault(
          fmt::format("collective {} wants resource {} of {}", i, index(collectives_[i].resource), resources_.size()));
  }
  for (const Edge& edge : edges_) {
    if (index(edge.from) >= tasks_.size() || index(edge.to) >= tasks_.size())
      fault(fmt::format("edge {} -> {}, but there are {} tasks", index(edge.from), index(edge.to), tasks_.size()));
  }
  for (const Member& member : members_) {
    if (index(member.task) >= tasks_.size() || index(member.collective) >= collectives_.size())
      fault(fmt::format("member {} of collective {}: no such task or collective", index(member.task),
                        index(member.collective)));
    if (tasks_[index(member.task)].resource != kNone<ResourceId>)
      fault(fmt::format("task {} is a member of a collective: the collective holds the resource, not the task",
                        index(member.task)));
  }
}

TaskGraph Builder::build() && {
  validate();
  TaskGraph graph;
  const std::size_t n = tasks_.size();
  graph.duration_.reserve(n), graph.lane_.reserve(n), graph.name_.reserve(n), graph.scope_.reserve(n);
  graph.kind_.reserve(n), graph.step_.reserve(n);
  bool priorities = false, resources = false;
  for (const Task& task : tasks_) {
    graph.duration_.push_back(task.duration);
    graph.lane_.push_back(task.lane);
    graph.name_.push_back(task.name);
    graph.scope_.push_back(task.scope);
    graph.kind_.push_back(task.kind);
    graph.step_.push_back(task.step);
    priorities |= task.priority != 0;
    resources |= task.resource != kNone<ResourceId>;
  }
  if (priorities) {
    for (const Task& task : tasks_) graph.priority_.push_back(task.priority);
  }
  if (resources) {
    for (const Task& task : tasks_) graph.task_resource_.push_back(task.resource);
  }
  for (const Collective& collective : collectives_) resources |= collective.resource != kNone<ResourceId>;
  graph.is_static_ = !resources;
  for (const Lane& lane : lanes_) graph.is_static_ &= lane.order == LaneOrder::kRecorded;

  if (!members_.empty()) {
    graph.collective_of_.assign(n, kNone<CollectiveId>);
    for (const Member& member : members_) {
      CollectiveId& of = graph.collective_of_[index(member.task)];
      if (of != kNone<CollectiveId>)
        fault(fmt::format("task {} is in collectives {} and {}; it can be in one", index(member.task), index(of),
                          index(member.collective)));
      of = member.collective;
    }
  }
  const auto collective_of = [](const Member& member) { return member.collective; };
  const auto task_of = [](const Member& member) { return member.task; };
  std::vector<CollectiveId> member_keys;
  for (const Member& member : members_) member_keys.push_back(member.collective);
  graph.member_rows_ = rows_of(collectives_.size(), member_keys);
  graph.members_ = fill_rows(graph.member_rows_, members_, collective_of, task_of);

  graph.before_.assign(n, kNone<TaskId>), graph.after_.assign(n, kNone<TaskId>);
  std::vector<TaskId> on_lanes;
  std::vector<LaneId> lane_keys;
  on_lanes.reserve(n), lane_keys.reserve(n);
  for (std::uint32_t i = 0; i < n; ++i) {
    if (tasks_[i].lane == kNone<LaneId>) continue;
    on_lanes.push_back(static_cast<TaskId>(i)), lane_keys.push_back(tasks_[i].lane);
  }
  graph.lane_rows_ = rows_of(lanes_.size(), lane_keys);
  graph.lane_tasks_ = fill_rows(
      graph.lane_rows_, on_lanes, [&](TaskId task) { return tasks_[index(task)].lane; },
      [](TaskId task) { return task; });
  for (std::uint32_t l = 0; l < lanes_.size(); ++l) {
    const std::span<TaskId> row(graph.lane_tasks_.data() + graph.lane_rows_[l],
                                graph.lane_tasks_.data() + graph.lane_rows_[l + 1]);
    if (!lane_orders_[l].empty()) {
      PL_CHECK(lane_orders_[l].size() == row.size());
      std::copy(lane_orders_[l].begin(), lane_orders_[l].end(), row.begin());
    }
    if (lanes_[l].order != LaneOrder::kRecorded) continue;
    for (std::size_t i = 1; i < row.size(); ++i) {
      graph.before_[index(row[i])] = row[i - 1];
      graph.after_[index(row[i - 1])] = row[i];
    }
  }
  tasks_ = {};

  std::vector<TaskId> keys;
  keys.reserve(edges_.size());
  for (const Edge& edge : edges_) keys.push_back(edge.to);
  graph.predecessor_rows_ = rows_of(n, keys);
  graph.predecessors_ = fill_rows(
      graph.predecessor_rows_, edges_, [](const Edge& e) { return e.to; }, [](const Edge& e) { return e.from; });
  keys.clear();
  for (const Edge& edge : edges_) keys.push_back(edge.from);
  graph.successor_rows_ = rows_of(n, keys);
  graph.successors_ = fill_rows(
      graph.successor_rows_, edges_, [](const Edge& e) { return e.from; }, [](const Edge& e) { return e.to; });
  edges_ = {};
  graph.names_ = std::move(names_);
  graph.lanes_ = std::move(lanes_);
  graph.resources_ = std::move(resources_);
  graph.collectives_ = std::move(collectives_);
  order_tasks(graph);
  return graph;
}

namespace {

/// One cycle in what waits for what among the tasks that never became ready, by walking backwards.
std::string describe_cycle(const TaskGraph& graph, const std::vector<bool>& done) {
  const auto waits_for = [&](TaskId task) {
    const auto undone = [&](TaskId t) { return t != kNone<TaskId> && !done[index(t)]; };
    if (undone(graph.before(task))) return graph.before(task);
    for (const TaskId predecessor : graph.predecessors(task)) {
      if (undone(predecessor)) return predecessor;
    }
    return kNone<TaskId>;
  };
  /// A member that could start waits for the members that cannot.
  const auto hop = [&](TaskId task) {
    const TaskId direct = waits_for(task);
    if (direct != kNone<TaskId>) return direct;
    if (graph.collective(task) == kNone<CollectiveId>) return kNone<TaskId>;
    for (const TaskId member : graph.members(graph.collective(task))) {
      if (waits_for(member) != kNone<TaskId>) return member;
    }
    return kNone<TaskId>;
  };
  TaskId at = kNone<TaskId>;
  for (std::uint32_t i = 0; i < graph.size() && at == kNone<TaskId>; ++i) {
    if (!done[i] && hop(static_cast<TaskId>(i)) != kNone<TaskId>) at = static_cast<TaskId>(i);
  }
  std::vector<std::uint32_t> seen(graph.size(), 0);
  std::vector<TaskId> path;
  while (at != kNone<TaskId> && seen[index(at)] == 0) {
    path.push_back(at);
    seen[index(at)] = static_cast<std::uint32_t>(path.size());
    at = hop(at);
  }
  std::string text = "tasks wait for each other in a circle:";
  if (at == kNone<TaskId>) return text;
  std::size_t shown = 0;
  for (std::size_t i = path.size(); i-- > seen[index(at)] - 1;) {
    if (++shown > 12) {
      text += " ...";
      break;
    }
    const std::string_view name = graph.text(graph.name(path[i]));
    text += fmt::format("{} {}{}{}", shown == 1 ? "" : " ->", index(path[i]), name.empty() ? "" : " ", name);
  }
  return text;
}

}  // namespace

void Builder::order_tasks(TaskGraph& graph) {
  const std::uint32_t n = graph.size();
  // What a task still waits for: its edges and the task before it on its lane.
  std::vector<std::uint32_t> open(n);
  std::vector<std::uint32_t> absent(graph.collectives_.size());
  for (std::size_t c = 0; c < absent.size(); ++c) absent[c] = graph.member_rows_[c + 1] - graph.member_rows_[c];
  std::vector<TaskId> stack;
  for (std::uint32_t i = 0; i < n; ++i) {
    open[i] = static_cast<std::uint32_t>(graph.predecessors(static_cast<TaskId>(i)).size()) +
              (graph.before_[i] != kNone<TaskId>);
  }
  for (std::uint32_t i = n; i-- > 0;) {
    if (open[i] == 0) stack.push_back(static_cast<TaskId>(i));
  }
  graph.order_.reserve(n);
  const auto release = [&](TaskId task) {
    if (--open[index(task)] == 0) stack.push_back(task);
  };
  const auto finish = [&](TaskId task) {
    const auto successors = graph.successors(task);
    for (std::size_t i = successors.size(); i-- > 0;) release(successors[i]);
    // Last in, first out: the walk goes on along the lane, whose columns are then in the cache.
    if (graph.after_[index(task)] != kNone<TaskId>) release(graph.after_[index(task)]);
  };
  while (!stack.empty()) {
    const TaskId task = stack.back();
    stack.pop_back();
    graph.order_.push_back(task);
    const CollectiveId collective = graph.collective(task);
    if (collective == kNone<CollectiveId>) {
      finish(task);
    } else if (--absent[index(collective)] == 0) {
      for (const TaskId member : graph.members(collective)) finish(member);
    }
  }
  if (graph.order_.size() == n) return;
  std::vector<bool> done(n, false);
  for (const TaskId task : graph.order_) {
    const CollectiveId collective = graph.collective(task);
    done[index(task)] = collective == kNone<CollectiveId> || absent[index(collective)] == 0;
  }
  fault(describe_cycle(graph, done));
}

}  // namespace paceline::taskgraph
