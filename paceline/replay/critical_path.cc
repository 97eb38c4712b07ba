#include "paceline/replay/critical_path.h"

#include <algorithm>
#include <limits>

#include "paceline/base/error.h"

namespace paceline::replay {

using base::kNone;
using taskgraph::CollectiveId;
using taskgraph::TaskGraph;
using taskgraph::TaskId;

std::vector<PathStep> critical_path(const TaskGraph& graph, const Timeline& timeline) {
  std::vector<PathStep> path;
  if (graph.size() == 0) return path;
  const auto ended_at = [&](TaskId task, std::int64_t time) {
    return task != kNone<TaskId> && timeline.end[index(task)] == time;
  };
  const auto cause_of = [&](TaskId task, std::int64_t time) {
    for (const TaskId predecessor : graph.predecessors(task)) {
      if (ended_at(predecessor, time)) return predecessor;
    }
    if (ended_at(graph.before(task), time)) return graph.before(task);
    return timeline.follows.empty() ? kNone<TaskId> : timeline.follows[index(task)];
  };
  const auto last = std::max_element(timeline.end.begin(), timeline.end.end());
  auto task = static_cast<TaskId>(last - timeline.end.begin());
  std::int64_t now = timeline.makespan;
  while (true) {
    const CollectiveId collective = graph.collective(task);
    std::int64_t begin = timeline.start[index(task)];
    TaskId waited_for = task;
    if (collective != kNone<CollectiveId>) {
      begin = timeline.transfer_start[index(collective)];
      const auto members = graph.members(collective);
      waited_for = *std::max_element(members.begin(), members.end(), [&](TaskId a, TaskId b) {
        return timeline.start[index(a)] < timeline.start[index(b)];
      });
      // All were there, but the link was not free.
      if (timeline.start[index(waited_for)] < begin) waited_for = members.front();
    }
    path.push_back({task, begin, now});
    now = begin;
    if (now == 0) break;
    task = cause_of(waited_for, now);
    PL_CHECK(task != kNone<TaskId>);
  }
  std::reverse(path.begin(), path.end());
  return path;
}

std::vector<std::int64_t> slack(const TaskGraph& graph, const Timeline& timeline) {
  PL_CHECK(graph.is_static());
  std::vector<std::int64_t> latest(graph.size(), timeline.makespan);  // end
  std::vector<std::int64_t> start(graph.size(), 0);                   // latest start
  std::vector<bool> done(graph.collectives().size(), false);
  const auto latest_end = [&](TaskId task) {
    std::int64_t end = timeline.makespan;
    for (const TaskId successor : graph.successors(task)) end = std::min(end, start[index(successor)]);
    if (graph.after(task) != kNone<TaskId>) end = std::min(end, start[index(graph.after(task))]);
    return end;
  };
  const auto order = graph.topological_order();
  for (std::size_t i = order.size(); i-- > 0;) {
    const TaskId task = order[i];
    const CollectiveId collective = graph.collective(task);
    if (collective == kNone<CollectiveId>) {
      latest[index(task)] = latest_end(task);
      start[index(task)] = latest[index(task)] - graph.duration(task);
      continue;
    }
    // All successors of all members stand behind the last member, which this is on the way back.
    if (done[index(collective)]) continue;
    done[index(collective)] = true;
    std::int64_t begin = std::numeric_limits<std::int64_t>::max();
    for (const TaskId member : graph.members(collective)) {
      latest[index(member)] = latest_end(member);
      begin = std::min(begin, latest[index(member)] - graph.duration(member));
    }
    for (const TaskId member : graph.members(collective))
      start[index(member)] = begin - graph.collective(collective).transfer;
  }
  for (std::uint32_t t = 0; t < graph.size(); ++t) latest[t] -= timeline.end[t];
  return latest;
}

}  // namespace paceline::replay
