#include "paceline/replay/evaluator.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <optional>
#include <unordered_map>

#include "paceline/base/error.h"
#include "paceline/replay/critical_path.h"

namespace paceline::replay {

using base::kNone;
using taskgraph::Edge;
using taskgraph::LanePatch;

struct Evaluator::Impl {
  explicit Impl(const TaskGraph& g) : graph(g), base(replay(g)), start(base.start), end(base.end) {
    duration.assign(graph.durations().begin(), graph.durations().end());
    for (const taskgraph::Collective& collective : graph.collectives()) transfer.push_back(collective.transfer);
    const auto order = graph.topological_order();
    position.resize(graph.size());
    for (std::size_t i = 0; i < order.size(); ++i) position[index(order[i])] = static_cast<std::uint32_t>(i);
    last_member.assign(graph.collectives().size(), 0);
    for (std::uint32_t i = 0; i < graph.size(); ++i) {
      const auto task = static_cast<TaskId>(i);
      if (graph.successors(task).empty() && graph.after(task) == kNone<TaskId>) terminals.push_back(task);
      if (const CollectiveId id = graph.collective(task); id != kNone<CollectiveId>) {
        last_member[index(id)] = std::max(last_member[index(id)], position[i]);
      }
    }
    pending.assign(graph.size() / 64 + 1, 0);
    mark.assign(graph.size(), 0);
    collective_pending.assign(graph.collectives().size(), 0);
    slack = replay::slack(graph, base);
    on_path.assign(graph.size(), false);
    for (const PathStep& step : critical_path(graph, base)) on_path[index(step.task)] = true;
  }

  const TaskGraph& graph;
  const Timeline base;
  std::vector<std::uint32_t> position;     // in topological order
  std::vector<std::uint32_t> last_member;  // of each collective: the position at which the graph's pass completes it
  std::vector<TaskId> terminals;           // nothing waits for them: one of them ends last
  std::vector<std::int64_t> slack;
  std::vector<bool> on_path;  // on one critical path

  // As in the graph but for what the edit at hand changed, which `changed` lists so that it can be put back. Added
  // tasks and collectives stand behind the graph's.
  std::vector<std::int64_t> start, end, duration, transfer;
  std::vector<TaskId> changed;
  std::vector<CollectiveId> changed_transfers;
  enum Mark : std::uint8_t { kRemoved = 1, kEdgesIn = 2, kEdgesOut = 4, kQueued = 8, kChanged = 16 };
  std::vector<std::uint8_t> mark;

  // Of the edit at hand.
  const Delta* delta = nullptr;
  const LanePatch* patch = nullptr;  // null: no structure changed
  std::unordered_map<TaskId, std::vector<TaskId>> added_in, added_out, dropped_in;
  std::unordered_map<TaskId, CollectiveId> added_member;
  std::vector<TaskId> lost_successors;
  std::size_t reached = 0;
  bool ends_due = false;  // the makespan is known, the ends of the tasks are not yet worked out

  // What is to be looked at: a bit for each position, scanned upwards, so that most tasks are looked at once, behind
  // all they wait for; and a list for what is added. Any order gives the right result on an acyclic graph.
  std::vector<std::uint64_t> pending;
  std::size_t word = 0;  // no bit is set in the words before
  std::vector<std::uint8_t> collective_pending;
  std::vector<TaskId> added_queue;
  std::vector<CollectiveId> added_collectives;

  bool is_added(TaskId task) const { return index(task) >= graph.size(); }
  bool is_added(CollectiveId id) const { return index(id) >= graph.collectives().size(); }
  bool has(TaskId task, Mark flag) const { return (mark[index(task)] & flag) != 0; }
  void set(TaskId task, Mark flag) {
    change(task);
    mark[index(task)] |= flag;
  }
  void change(TaskId task) {
    if (has(task, kChanged)) return;
    mark[index(task)] |= kChanged;
    changed.push_back(task);
  }
  TaskId before(TaskId task) const { return patch ? patch->before(task) : graph.before(task); }
  TaskId after(TaskId task) const { return patch ? patch->after(task) : graph.after(task); }
  CollectiveId collective(TaskId task) const {
    if (!is_added(task)) return graph.collective(task);
    const auto found = added_member.find(task);
    return found == added_member.end() ? kNone<CollectiveId> : found->second;
  }
  std::span<const TaskId> members(CollectiveId id) const {
    if (!is_added(id)) return graph.members(id);
    return delta->collectives[index(id) - graph.collectives().size()].members;
  }

  void visit_position(std::uint32_t at) {
    pending[at / 64] |= std::uint64_t{1} << (at % 64);
    word = std::min<std::size_t>(word, at / 64);
  }
  void visit(TaskId task) {
    if ((mark[index(task)] & (kRemoved | kQueued)) != 0) return;
    mark[index(task)] |= kQueued;
    is_added(task) ? added_queue.push_back(task) : visit_position(position[index(task)]);
  }
  void visit(CollectiveId id) {
    if (collective_pending[index(id)] != 0) return;
    collective_pending[index(id)] = 1;
    is_added(id) ? added_collectives.push_back(id) : visit_position(last_member[index(id)]);
  }

  std::int64_t ready(TaskId task) const {
    std::int64_t time = 0;
    const auto wait_for = [&](TaskId other) { time = std::max(time, end[index(other)]); };
    if (const TaskId previous = before(task); previous != kNone<TaskId>) wait_for(previous);
    const auto predecessors = is_added(task) ? std::span<const TaskId>() : graph.predecessors(task);
    if (!has(task, kEdgesIn)) {
      for (const TaskId p : predecessors) wait_for(p);
      return time;
    }
    const auto dropped = dropped_in.find(task);
    std::vector<TaskId> left = dropped == dropped_in.end() ? std::vector<TaskId>() : dropped->second;
    for (const TaskId p : predecessors) {
      if (has(p, kRemoved)) continue;
      const auto at = std::find(left.begin(), left.end(), p);
      at != left.end() ? void(left.erase(at)) : wait_for(p);
    }
    if (const auto more = added_in.find(task); more != added_in.end()) {
      for (const TaskId p : more->second) wait_for(p);
    }
    return time;
  }

  void settle(TaskId task, std::int64_t value) {
    if (end[index(task)] == value) return;
    change(task);
    end[index(task)] = value;
    if (!is_added(task)) {
      for (const TaskId s : graph.successors(task)) visit(s);
    }
    if (const TaskId next = after(task); next != kNone<TaskId>) visit(next);
    if (!has(task, kEdgesOut)) return;
    if (const auto more = added_out.find(task); more != added_out.end()) {
      for (const TaskId s : more->second) visit(s);
    }
  }

  void look_at(TaskId task) {
    ++reached;
    mark[index(task)] &= static_cast<std::uint8_t>(~kQueued);
    const std::int64_t time = ready(task);
    if (time != start[index(task)]) {
      change(task);
      start[index(task)] = time;
      if (const CollectiveId id = collective(task); id != kNone<CollectiveId>) visit(id);
    }
    if (collective(task) == kNone<CollectiveId>) settle(task, time + duration[index(task)]);
  }

  void look_at(CollectiveId id) {
    ++reached;
    collective_pending[index(id)] = 0;
    std::int64_t arrival = 0;
    for (const TaskId member : members(id)) {
      if (!has(member, kRemoved)) arrival = std::max(arrival, start[index(member)]);
    }
    for (const TaskId member : members(id)) {
      if (!has(member, kRemoved)) settle(member, arrival + transfer[index(id)] + duration[index(member)]);
    }
  }

  void look_at_position(std::uint32_t at) {
    const TaskId task = graph.topological_order()[at];
    if (has(task, kQueued)) look_at(task);
    const CollectiveId id = graph.collective(task);
    if (id != kNone<CollectiveId> && collective_pending[index(id)] != 0 && last_member[index(id)] == at) look_at(id);
  }

  void note_structure() {
    for (const TaskId task : delta->removed) {
      set(task, kRemoved);
      start[index(task)] = end[index(task)] = duration[index(task)] = 0;
    }
    for (const TaskId task : delta->removed) {
      for (const TaskId s : graph.successors(task)) set(s, kEdgesIn), visit(s);
      for (const TaskId p : graph.predecessors(task)) lost_successors.push_back(p);
      if (graph.before(task) != kNone<TaskId>) lost_successors.push_back(graph.before(task));
      if (const CollectiveId id = graph.collective(task); id != kNone<CollectiveId>) visit(id);
    }
    for (const Edge& edge : delta->removed_edges) {
      dropped_in[edge.to].push_back(edge.from);
      set(edge.to, kEdgesIn);
      lost_successors.push_back(edge.from);
      visit(edge.to);
    }
    for (std::size_t c = 0; c < delta->collectives.size(); ++c) {
      const auto id = static_cast<CollectiveId>(graph.collectives().size() + c);
      transfer.push_back(delta->collectives[c].collective.transfer);
      collective_pending.push_back(0);
      for (const TaskId member : delta->collectives[c].members) added_member[member] = id;
    }
    for (const Delta::AddedTask& added : delta->added) {
      start.push_back(-1), end.push_back(-1), duration.push_back(added.task.duration), mark.push_back(0);
    }
    for (const Edge& edge : delta->added_edges) {
      if (has(edge.from, kRemoved) || has(edge.to, kRemoved)) continue;
      added_in[edge.to].push_back(edge.from);
      added_out[edge.from].push_back(edge.to);
      set(edge.to, kEdgesIn), set(edge.from, kEdgesOut);
      visit(edge.to);
    }
    for (std::size_t i = 0; i < delta->added.size(); ++i) visit(static_cast<TaskId>(graph.size() + i));
    for (const auto& [task, previous] : patch->changed_before()) visit(task);
  }

  /// Puts everything back as it is in the graph.
  void undo() {
    for (const TaskId task : changed) {
      if (is_added(task)) continue;
      const std::uint32_t i = index(task);
      start[i] = base.start[i], end[i] = base.end[i], duration[i] = graph.duration(task), mark[i] = 0;
    }
    for (const CollectiveId id : changed_transfers) {
      if (!is_added(id)) transfer[index(id)] = graph.collective(id).transfer;
    }
    for (auto* times : {&start, &end, &duration}) times->resize(graph.size());
    mark.resize(graph.size()), transfer.resize(graph.collectives().size());
    collective_pending.resize(graph.collectives().size());
    changed.clear(), changed_transfers.clear();
    added_in.clear(), added_out.clear(), dropped_in.clear(), added_member.clear(), lost_successors.clear();
    reached = 0, word = pending.size(), ends_due = false;
  }

  void visit_new_times() {
    for (const TaskId task : changed) {
      if (is_added(task) || duration[index(task)] == graph.duration(task)) continue;
      const CollectiveId id = collective(task);
      id == kNone<CollectiveId> ? visit(task) : visit(id);
    }
    for (const CollectiveId id : changed_transfers) visit(id);
  }

  /// Works out what an edit moves without a change of the makespan.
  void work_out_ends() {
    if (!ends_due) return;
    ends_due = false;
    visit_new_times();
    settle_all();
  }

  /// Looks at all that waits to be looked at; false when it goes round in a circle.
  bool settle_all() {
    // Without a circle a good order needs about one look at each.
    const std::size_t enough = 64 * end.size() + 1'000;
    while (reached <= enough) {
      if (!added_queue.empty()) {
        const TaskId task = added_queue.back();
        added_queue.pop_back();
        look_at(task);
      } else if (!added_collectives.empty()) {
        const CollectiveId id = added_collectives.back();
        added_collectives.pop_back();
        look_at(id);
      } else {
        while (word < pending.size() && pending[word] == 0) ++word;
        if (word == pending.size()) break;
        const auto bit = static_cast<std::uint32_t>(std::countr_zero(pending[word]));
        pending[word] &= pending[word] - 1;
        look_at_position(static_cast<std::uint32_t>(word * 64) + bit);
      }
    }
    return reached <= enough;
  }

  /// A circle would go round for ever: forgets what is still to be looked at.
  void give_up() {
    for (std::uint8_t& flags : mark) flags &= static_cast<std::uint8_t>(~kQueued);
    std::fill(pending.begin(), pending.end(), 0);
    std::fill(collective_pending.begin(), collective_pending.end(), 0);
    added_queue.clear(), added_collectives.clear();
  }

  /// Whether new times alone, of tasks and transfers, surely leave the makespan as it is: what gets shorter is not on
  /// the critical path, and what gets longer has slack for all that is added anywhere. A path through something longer
  /// is shorter than the makespan by its slack at least, and grows by no more than all that is added.
  bool keeps_makespan(const Delta& edit) const {
    std::int64_t added = 0, least_slack = std::numeric_limits<std::int64_t>::max();
    bool shortens_path = false;
    const auto note = [&](TaskId task, std::int64_t change) {
      if (change > 0) least_slack = std::min(least_slack, slack[index(task)]);
      if (change < 0 && on_path[index(task)]) shortens_path = true;
    };
    for (const auto& [task, value] : edit.durations) {
      const std::int64_t change = value - graph.duration(task);
      added += std::max<std::int64_t>(change, 0);
      note(task, change);
    }
    for (const auto& [id, value] : edit.transfers) {
      const std::int64_t change = value - graph.collective(id).transfer;
      added += std::max<std::int64_t>(change, 0);
      for (const TaskId member : graph.members(id)) note(member, change);
    }
    return !shortens_path && added <= least_slack;
  }

  std::int64_t run(const Delta& edit) {
    undo();
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
      if (has(task, kRemoved)) continue;
      change(task);
      duration[index(task)] = value;
    }
    for (const auto& [id, value] : edit.transfers) {
      changed_transfers.push_back(id);
      transfer[index(id)] = value;
    }
    if (patch == nullptr && keeps_makespan(edit)) {
      ends_due = true;
      return base.makespan;
    }
    visit_new_times();
    if (!settle_all()) {
      give_up();
      return replay(graph, edit).makespan;  // which names the circle
    }
    std::int64_t makespan = 0;
    for (const TaskId task : terminals) makespan = std::max(makespan, end[index(task)]);
    for (const TaskId task : lost_successors) makespan = std::max(makespan, end[index(task)]);
    for (std::size_t i = graph.size(); i < end.size(); ++i) makespan = std::max(makespan, end[i]);
    patch = nullptr;
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
  impl_->work_out_ends();
  return impl_->end[index(task)];
}
std::size_t Evaluator::reached() const {
  return impl_->reached;
}

}  // namespace paceline::replay
