#pragma once
#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

#include "paceline/taskgraph/task_graph.h"

namespace paceline::taskgraph {

/// An edit of a graph, kept beside it: replay(graph, delta) == replay(apply(graph, delta)). Ids of added tasks and
/// collectives follow those of the graph, in the order of their rows here; removed ones keep their id, last 0 ns and
/// take part in nothing.
struct Delta {
  struct AddedTask {
    Task task;
    TaskId behind = base::kNone<TaskId>;  // directly behind this task of its lane, one of the graph, which may be
                                          // removed, or one added before; kNone = first of its lane
  };
  struct AddedCollective {
    Collective collective;
    std::vector<TaskId> members;  // added tasks only
  };

  std::vector<std::pair<TaskId, std::int64_t>> durations;  // the last of several for one task counts
  std::vector<std::pair<CollectiveId, std::int64_t>> transfers;
  std::vector<TaskId> removed;      // with their edges; what waited for them waits no longer
  std::vector<Edge> removed_edges;  // one edge each; no such edge is an error
  std::vector<AddedTask> added;
  std::vector<AddedCollective> collectives;
  std::vector<Edge> added_edges;  // may name added tasks

  bool changes_structure() const {
    return !removed.empty() || !removed_edges.empty() || !added.empty() || !collectives.empty() || !added_edges.empty();
  }
};

/// Both edits at once, each made of the graph by itself: where both change a duration or a transfer the shorter counts,
/// what either removes is gone. O(edits log edits).
Delta join(const TaskGraph& graph, const Delta& first, const Delta& second);

/// Throws Error(kBadInput) when the edit names what is not there, or removes something twice. O(edit log edit).
void check(const TaskGraph& graph, const Delta& delta);

/// The lanes in recorded order after an edit, as what differs from the graph's own links.
class LanePatch {
 public:
  /// O(added + removed). Throws Error(kBadInput) when an added task is put behind a task of another lane.
  LanePatch(const TaskGraph& graph, const Delta& delta);

  TaskId before(TaskId task) const {
    return look_up(before_, task, [&] { return graph_.before(task); });
  }
  TaskId after(TaskId task) const {
    return look_up(after_, task, [&] { return graph_.after(task); });
  }
  /// First task of a lane, kNone when it has none.
  TaskId first(LaneId lane) const;
  /// Lanes in recorded order to which tasks were added; others only lost some. Ascending.
  const std::vector<LaneId>& changed_lanes() const { return lanes_; }
  /// Tasks whose `before` is another one than in the graph.
  const std::unordered_map<TaskId, TaskId>& changed_before() const { return before_; }

 private:
  template <class Else>
  TaskId look_up(const std::unordered_map<TaskId, TaskId>& map, TaskId task, Else otherwise) const {
    const auto found = map.find(task);
    if (found != map.end()) return found->second;
    return index(task) < graph_.size() ? otherwise() : base::kNone<TaskId>;
  }
  void link(LaneId lane, TaskId before, TaskId after);

  const TaskGraph& graph_;
  std::unordered_map<TaskId, TaskId> before_, after_;
  std::unordered_map<LaneId, TaskId> first_;
  std::vector<LaneId> lanes_;
};

/// The graph with the edit made. O(tasks + edges). Throws Error(kBadInput) as Builder::build() does, and when the edit
/// names what is not there.
TaskGraph apply(const TaskGraph& graph, const Delta& delta);

}  // namespace paceline::taskgraph
