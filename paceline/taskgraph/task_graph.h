#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "paceline/base/intern.h"
#include "paceline/base/units.h"

namespace paceline::taskgraph {

using base::index;
using base::LaneId;
using base::NameId;
using base::TaskId;

enum class CollectiveId : std::uint32_t {};
enum class ResourceId : std::uint32_t {};

enum class TaskKind : std::uint8_t {
  kCompute,     // a kernel, or an operator of a CPU job
  kCollective,  // a member of a collective: holds its lane while it waits and while the transfer runs
  kCopy,        // copies and fills
  kHost,        // an operator or a call on the host
  kHostGap,     // the host between operators: Python, a pause
  kDelay,       // between cause and effect: launch latency, hand-over between threads
  kGap,         // recorded idle time that nothing explains
  kOther
};
inline constexpr std::size_t kTaskKinds = 8;

/// "compute", "collective", "copy", "host", "host_gap", "delay", "gap", "other".
std::string_view kind_name(TaskKind kind);

/// In which order a lane serves tasks that could run. Never two at once.
enum class LaneOrder : std::uint8_t {
  kRecorded,  // as the tasks were added
  kReady,     // first ready, first served; ties to the lower id
  kPriority   // lowest Task::priority first, then as kReady
};

struct Lane {
  std::uint32_t rank = 0;
  std::string name = {};  // "stream 7", "thread 4711 (autograd)"
  bool device = false;
  LaneOrder order = LaneOrder::kRecorded;
  std::uint32_t multiplicity = 1;  // how many symmetric lanes it stands for, itself included
};

/// How a shared resource (link, NIC, copy engine, server) serves those that want it at once.
enum class Service : std::uint8_t {
  kExclusive,  // one at a time, the lowest id first
  kArrival,    // one at a time, first come first served; ties to the lower id
  kFair        // all at once, each at an equal share of its speed
};

struct Resource {
  std::string name = {};
  Service service = Service::kExclusive;
};

struct Task {
  std::int64_t duration =
      0;  // ns, >= 0; of a member of a collective what follows the transfer on this member (mostly 0)
  LaneId lane = base::kNone<LaneId>;  // kNone: runs as soon as it may, beside anything
  NameId name = base::kNone<NameId>;
  NameId scope = base::kNone<NameId>;  // the operator or module it belongs to
  TaskKind kind = TaskKind::kOther;
  std::int32_t step = -1;
  std::int32_t priority = 0;
  ResourceId resource = base::kNone<ResourceId>;
};

/// What the members of a rendezvous do together: starts when the last of them is ready, ends for all at once.
struct Collective {
  NameId name = base::kNone<NameId>;
  NameId group = base::kNone<NameId>;  // who takes part, in words
  std::int64_t bytes = 0;
  std::int64_t transfer = 0;  // ns, >= 0
  std::uint32_t algorithm = 0;
  ResourceId resource = base::kNone<ResourceId>;
};

struct Edge {
  TaskId from, to;
  bool operator==(const Edge&) const = default;
};

/// What takes time and what must come before what, as columns with 32-bit ids. Immutable: built by a Builder, changed
/// by a Delta. Times are int64 ns.
class TaskGraph {
 public:
  TaskGraph() = default;
  TaskGraph(TaskGraph&&) = default;
  TaskGraph& operator=(TaskGraph&&) = default;

  std::uint32_t size() const { return static_cast<std::uint32_t>(duration_.size()); }
  std::uint32_t edge_count() const { return static_cast<std::uint32_t>(predecessors_.size()); }

  std::span<const std::int64_t> durations() const { return duration_; }
  std::int64_t duration(TaskId task) const { return duration_[index(task)]; }
  LaneId lane(TaskId task) const { return lane_[index(task)]; }
  NameId name(TaskId task) const { return name_[index(task)]; }
  NameId scope(TaskId task) const { return scope_[index(task)]; }
  TaskKind kind(TaskId task) const { return kind_[index(task)]; }
  std::int32_t step(TaskId task) const { return step_[index(task)]; }
  std::int32_t priority(TaskId task) const { return priority_.empty() ? 0 : priority_[index(task)]; }
  ResourceId resource(TaskId task) const {
    return task_resource_.empty() ? base::kNone<ResourceId> : task_resource_[index(task)];
  }
  /// kNone for tasks that belong to none.
  CollectiveId collective(TaskId task) const {
    return collective_of_.empty() ? base::kNone<CollectiveId> : collective_of_[index(task)];
  }
  /// The whole task as it was added.
  Task task(TaskId task) const;

  std::span<const TaskId> predecessors(TaskId task) const { return row(predecessors_, predecessor_rows_, index(task)); }
  std::span<const TaskId> successors(TaskId task) const { return row(successors_, successor_rows_, index(task)); }
  /// Neighbours on a lane in recorded order; kNone at its ends, and on lanes of another order.
  TaskId before(TaskId task) const { return before_[index(task)]; }
  TaskId after(TaskId task) const { return after_[index(task)]; }

  std::span<const Lane> lanes() const { return lanes_; }
  const Lane& lane(LaneId lane) const { return lanes_[index(lane)]; }
  std::span<const TaskId> tasks_of(LaneId lane) const { return row(lane_tasks_, lane_rows_, index(lane)); }
  std::span<const Resource> resources() const { return resources_; }
  std::span<const Collective> collectives() const { return collectives_; }
  const Collective& collective(CollectiveId id) const { return collectives_[index(id)]; }
  std::span<const TaskId> members(CollectiveId id) const { return row(members_, member_rows_, index(id)); }

  /// Every task once, each behind all it depends on; a member of a collective depends on what any member depends on
  /// only for its end, so successors of members stand behind the last member.
  std::span<const TaskId> topological_order() const { return order_; }
  /// Every lane is kRecorded and no resource is in use: one pass in topological order replays the graph.
  bool is_static() const { return is_static_; }

  std::string_view text(NameId name) const { return name == base::kNone<NameId> ? "" : names_->text(name); }
  /// For graphs made of this one: their names go into the same table, which only grows.
  const std::shared_ptr<base::InternTable>& shared_names() const { return names_; }

 private:
  friend class Builder;
  template <class Id>
  static std::span<const Id> row(const std::vector<Id>& items, const std::vector<std::uint32_t>& rows,
                                 std::uint32_t i) {
    return {items.data() + rows[i], items.data() + rows[i + 1]};
  }

  std::shared_ptr<base::InternTable> names_;  // shared with the graphs that edits make of this one
  std::vector<Lane> lanes_;
  std::vector<Resource> resources_;
  std::vector<Collective> collectives_;

  std::vector<std::int64_t> duration_;
  std::vector<LaneId> lane_;
  std::vector<NameId> name_, scope_;
  std::vector<TaskKind> kind_;
  std::vector<std::int32_t> step_;
  std::vector<std::int32_t> priority_;       // empty: all 0
  std::vector<ResourceId> task_resource_;    // empty: none
  std::vector<CollectiveId> collective_of_;  // empty: none
  std::vector<TaskId> before_, after_;

  std::vector<std::uint32_t> predecessor_rows_, successor_rows_, lane_rows_, member_rows_;
  std::vector<TaskId> predecessors_, successors_, lane_tasks_, members_;
  std::vector<TaskId> order_;
  bool is_static_ = true;
};

/// Collects tasks, edges and collectives; build() puts them in rows and checks them.
class Builder {
 public:
  Builder();
  /// Starts from names that are already interned; ids stay valid.
  explicit Builder(std::shared_ptr<base::InternTable> names);

  NameId intern(std::string_view text) { return names_->intern(text); }
  std::string_view text(NameId name) const { return name == base::kNone<NameId> ? "" : names_->text(name); }
  LaneId add_lane(Lane lane);
  ResourceId add_resource(Resource resource);
  /// Behind the tasks that its lane has so far.
  TaskId add_task(const Task& task);
  /// `to` starts when `from` has ended. Edges between members of one collective are refused by build().
  void add_edge(TaskId from, TaskId to) { edges_.push_back({from, to}); }
  CollectiveId add_collective(const Collective& collective);
  void add_member(CollectiveId collective, TaskId task);
  /// Another order of a kRecorded lane than that in which its tasks were added; all of them, each once.
  void set_lane_order(LaneId lane, std::vector<TaskId> tasks) { lane_orders_[index(lane)] = std::move(tasks); }

  std::uint32_t size() const { return static_cast<std::uint32_t>(tasks_.size()); }
  Task& task(TaskId id) { return tasks_[index(id)]; }
  Collective& collective(CollectiveId id) { return collectives_[index(id)]; }

  /// Throws Error(kBadInput) that names the fault: an id out of range, a negative duration, a task in two collectives,
  /// or one cycle, task by task. O(tasks + edges).
  TaskGraph build() &&;

 private:
  struct Member {
    CollectiveId collective;
    TaskId task;
  };
  void validate() const;
  static void order_tasks(TaskGraph& graph);

  std::shared_ptr<base::InternTable> names_;
  std::vector<Lane> lanes_;
  std::vector<std::vector<TaskId>> lane_orders_;  // empty: as added
  std::vector<Resource> resources_;
  std::vector<Collective> collectives_;
  std::vector<Task> tasks_;
  std::vector<Edge> edges_;
  std::vector<Member> members_;
};

}  // namespace paceline::taskgraph
