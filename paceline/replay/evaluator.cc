#include "paceline/replay/evaluator.h"

#include <algorithm>
#include <optional>
#include <queue>
#include <unordered_map>

#include "paceline/base/error.h"

namespace paceline::replay {

using base::kNone;
using taskgraph::Edge;
using taskgraph::LanePatch;

namespace {

/// Values by id of which few differ from a default at a time: forgets all in O(1).
template <class Value>
class Sparse {
 public:
  void reset(std::size_t size) {
    if (values_.size() < size) values_.resize(size), stamps_.resize(size, 0);
    ++now_;
  }
  bool has(std::uint32_t i) const { return stamps_[i] == now_; }
  Value get(std::uint32_t i, Value otherwise) const { return has(i) ? values_[i] : otherwise; }
  void set(std::uint32_t i, Value value) { values_[i] = value, stamps_[i] = now_; }

 private:
  std::vector<Value> values_;
  std::vector<std::uint32_t> stamps_;
  std::uint32_t now_ = 0;
};

}  // namespace

struct Evaluator::Impl {
  /// A task whose ready time may have changed, or a collective whose transfer may; in the order in which the graph's
  /// pass would come to it. Any order gives the right result on an acyclic graph, a good one does so in one visit each.
  struct Visit {
    std::uint64_t position;
    std::uint32_t id;
    bool collective;
    bool operator>(const Visit& other) const {
      return position != other.position ? position > other.position : id > other.id;
    }
  };

  explicit Impl(const TaskGraph& g) : graph(g), base(replay(g)) {
    position.resize(graph.size());
    const auto order = graph.topological_order();
    for (std::size_t i = 0; i < order.size(); ++i) position[index(order[i])] = static_cast<std::uint32_t>(i);
    for (std::uint32_t i = 0; i < graph.size(); ++i) {
      const auto task = static_cast<TaskId>(i);
      if (graph.successors(task).empty() && graph.after(task) == kNone<TaskId>) terminals.push_back(task);
    }
  }

  const TaskGraph& graph;
  Timeline base;
  std::vector<std::uint32_t> position;  // in topological order
  std::vector<TaskId> terminals;        // nothing waits for them: one of them ends last

  // Of the edit at hand.
  const Delta* delta = nullptr;
  const LanePatch* patch = nullptr;  // null: no structure changed
  Sparse<std::int64_t> new_start, new_end, new_duration, new_transfer;
  Sparse<std::uint64_t> place;  // of added tasks and collectives
  Sparse<char> removed, queued_task, queued_collective;
  Sparse<char> odd_in, odd_out;  // edges to or from it changed
  std::unordered_map<TaskId, std::vector<TaskId>> added_in, added_out, dropped_in;
  std::unordered_map<TaskId, CollectiveId> added_member;
  std::priority_queue<Visit, std::vector<Visit>, std::greater<>> queue;
  std::vector<TaskId> lost_successors;
  std::size_t reached = 0;

  bool is_added(TaskId task) const { return index(task) >= graph.size(); }
  std::int64_t end(TaskId task) const { return new_end.get(index(task), is_added(task) ? 0 : base.end[index(task)]); }
  std::int64_t start(TaskId task) const {
    return new_start.get(index(task), is_added(task) ? 0 : base.start[index(task)]);
  }
  std::int64_t duration(TaskId task) const {
    return new_duration.get(index(task), is_added(task) ? 0 : graph.duration(task));
  }
  TaskId before(TaskId task) const { return patch ? patch->before(task) : graph.before(task); }
  TaskId after(TaskId task) const { return patch ? patch->after(task) : graph.after(task); }
  CollectiveId collective(TaskId task) const {
    if (!is_added(task)) return graph.collective(task);
    const auto found = added_member.find(task);
    return found == added_member.end() ? kNone<CollectiveId> : found->second;
  }
  std::span<const TaskId> members(CollectiveId id) const {
    if (index(id) < graph.collectives().size()) return graph.members(id);
    return delta->collectives[index(id) - graph.collectives().size()].members;
  }
  std::uint64_t place_of(TaskId task) const {
    return is_added(task) ? place.get(index(task), 0) : 2ull * position[index(task)];
  }

  void visit(TaskId task) {
    if (removed.has(index(task)) || queued_task.get(index(task), 0) != 0) return;
    queued_task.set(index(task), 1);
    queue.push({place_of(task), index(task), false});
  }
  void visit(CollectiveId id) {
    if (queued_collective.get(index(id), 0) != 0) return;
    queued_collective.set(index(id), 1);
    std::uint64_t last = 0;
    for (const TaskId member : members(id)) last = std::max(last, place_of(member));
    queue.push({last, index(id), true});
  }

  std::int64_t ready(TaskId task) const {
    std::int64_t time = 0;
    const TaskId previous = before(task);
    if (previous != kNone<TaskId>) time = end(previous);
    const auto predecessors = is_added(task) ? std::span<const TaskId>() : graph.predecessors(task);
    if (!odd_in.has(index(task))) {
      for (const TaskId p : predecessors) time = std::max(time, end(p));
      return time;
    }
    const auto dropped = dropped_in.find(task);
    std::vector<TaskId> left = dropped == dropped_in.end() ? std::vector<TaskId>() : dropped->second;
    for (const TaskId p : predecessors) {
      if (removed.has(index(p))) continue;
      const auto at = std::find(left.begin(), left.end(), p);
      if (at != left.end()) {
        left.erase(at);
        continue;
      }
      time = std::max(time, end(p));
    }
    if (const auto more = added_in.find(task); more != added_in.end()) {
      for (const TaskId p : more->second) time = std::max(time, end(p));
    }
    return time;
  }

  /// Removed tasks and edges may be visited too: their value comes out the same.
  void visit_successors(TaskId task) {
    if (!is_added(task)) {
      for (const TaskId s : graph.successors(task)) visit(s);
    }
    if (const TaskId next = after(task); next != kNone<TaskId>) visit(next);
    if (!odd_out.has(index(task))) return;
    if (const auto more = added_out.find(task); more != added_out.end()) {
      for (const TaskId s : more->second) visit(s);
    }
  }

  void settle(TaskId task, std::int64_t value) {
    if (end(task) == value && (!is_added(task) || new_end.has(index(task)))) return;
    new_end.set(index(task), value);
    visit_successors(task);
  }

  void look_at(TaskId task) {
    const std::int64_t time = ready(task);
    const CollectiveId id = collective(task);
    if (id == kNone<CollectiveId>) {
      new_start.set(index(task), time);
      settle(task, time + duration(task));
    } else if (time != start(task) || is_added(task)) {
      new_start.set(index(task), time);
      visit(id);
    }
  }

  void look_at(CollectiveId id) {
    std::int64_t arrival = 0;
    for (const TaskId member : members(id)) {
      if (!removed.has(index(member))) arrival = std::max(arrival, start(member));
    }
    const std::int64_t transfer =
        new_transfer.get(index(id), index(id) < graph.collectives().size() ? graph.collective(id).transfer : 0);
    for (const TaskId member : members(id)) {
      if (!removed.has(index(member))) settle(member, arrival + transfer + duration(member));
    }
  }

  void note_structure() {
    for (const TaskId task : delta->removed) {
      removed.set(index(task), 1);
      new_end.set(index(task), 0), new_start.set(index(task), 0), new_duration.set(index(task), 0);
    }
    for (const TaskId task : delta->removed) {
      for (const TaskId s : graph.successors(task)) odd_in.set(index(s), 1), visit(s);
      for (const TaskId p : graph.predecessors(task)) lost_successors.push_back(p);
      if (graph.before(task) != kNone<TaskId>) lost_successors.push_back(graph.before(task));
      if (const CollectiveId id = graph.collective(task); id != kNone<CollectiveId>) visit(id);
    }
    for (const Edge& edge : delta->removed_edges) {
      dropped_in[edge.to].push_back(edge.from);
      odd_in.set(index(edge.to), 1);
      lost_successors.push_back(edge.from);
      visit(edge.to);
    }
    for (std::size_t c = 0; c < delta->collectives.size(); ++c) {
      const auto id = static_cast<CollectiveId>(graph.collectives().size() + c);
      new_transfer.set(index(id), delta->collectives[c].collective.transfer);
      for (const TaskId member : delta->collectives[c].members) added_member[member] = id;
    }
    for (std::size_t i = 0; i < delta->added.size(); ++i) {
      const auto task = static_cast<TaskId>(graph.size() + i);
      new_duration.set(index(task), delta->added[i].task.duration);
      const TaskId behind = delta->added[i].behind;
      place.set(index(task), behind == kNone<TaskId> ? 1 : place_of(behind) | 1);
    }
    for (const Edge& edge : delta->added_edges) {
      if (removed.has(index(edge.from)) || removed.has(index(edge.to))) continue;
      added_in[edge.to].push_back(edge.from);
      added_out[edge.from].push_back(edge.to);
      odd_in.set(index(edge.to), 1), odd_out.set(index(edge.from), 1);
      if (is_added(edge.to)) place.set(index(edge.to), std::max(place_of(edge.to), place_of(edge.from) | 1));
      visit(edge.to);
    }
    for (std::size_t i = 0; i < delta->added.size(); ++i) visit(static_cast<TaskId>(graph.size() + i));
    for (const auto& [task, previous] : patch->changed_before()) visit(task);
  }

  std::int64_t run(const Delta& edit) {
    const std::size_t tasks = graph.size() + edit.added.size();
    const std::size_t collectives = graph.collectives().size() + edit.collectives.size();
    for (auto* values : {&new_start, &new_end, &new_duration}) values->reset(tasks);
    new_transfer.reset(collectives);
    for (auto* flags : {&removed, &queued_task, &odd_in, &odd_out}) flags->reset(tasks);
    place.reset(tasks), queued_collective.reset(collectives);
    added_in.clear(), added_out.clear(), dropped_in.clear(), added_member.clear(), lost_successors.clear();
    queue = {};
    reached = 0;
    delta = &edit;
    taskgraph::check(graph, edit);
    std::optional<LanePatch> links;
    patch = nullptr;
    if (edit.changes_structure()) {
      links.emplace(graph, edit);
      patch = &*links;
      note_structure();
    }
    for (const auto& [task, value] : edit.durations) {
      if (removed.has(index(task))) continue;
      new_duration.set(index(task), value);
      const CollectiveId id = collective(task);
      id == kNone<CollectiveId> ? visit(task) : visit(id);
    }
    for (const auto& [id, value] : edit.transfers) new_transfer.set(index(id), value), visit(id);

    // A circle would go round for ever; without one a good order needs about one visit each.
    const std::size_t enough = 64 * tasks + 1'000;
    while (!queue.empty()) {
      const Visit next = queue.top();
      queue.pop();
      if (next.collective) {
        queued_collective.set(next.id, 0);
        look_at(static_cast<CollectiveId>(next.id));
      } else {
        queued_task.set(next.id, 0);
        look_at(static_cast<TaskId>(next.id));
      }
      if (++reached > enough) return replay(graph, edit).makespan;  // which names the circle
    }
    std::int64_t makespan = 0;
    for (const TaskId task : terminals) makespan = std::max(makespan, end(task));
    for (const TaskId task : lost_successors) makespan = std::max(makespan, end(task));
    for (std::uint32_t i = graph.size(); i < tasks; ++i) makespan = std::max(makespan, end(static_cast<TaskId>(i)));
    return makespan;
  }
};

Evaluator::Evaluator(const TaskGraph& graph) : impl_(std::make_unique<Impl>(graph)) {
  PL_CHECK(graph.is_static());
}
Evaluator::~Evaluator() = default;
const Timeline& Evaluator::base() const {
  return impl_->base;
}
std::int64_t Evaluator::makespan(const Delta& delta) {
  return impl_->run(delta);
}
std::int64_t Evaluator::end(TaskId task) const {
  return impl_->end(task);
}
std::size_t Evaluator::reached() const {
  return impl_->reached;
}

}  // namespace paceline::replay
