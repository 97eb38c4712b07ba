#include <fmt/core.h>

#include <algorithm>
#include <queue>
#include <set>
#include <tuple>

#include "paceline/base/error.h"
#include "paceline/replay/fair_share.h"
#include "paceline/replay/replay.h"

namespace paceline::replay {
namespace {

using base::kNone;
using taskgraph::LaneId;
using taskgraph::LaneOrder;
using taskgraph::ResourceId;
using taskgraph::Service;

/// What a resource serves: a task, or a collective, which stands in the queue under its first member's id.
struct Client {
  TaskId task;
  CollectiveId collective;  // kNone: the task alone
};

/// One moment at a time, in rounds: first all that ends in this moment, then lanes take what they can in order of their
/// ids, then resources. What lasts 0 ns ends in the next round of the same moment.
class EventLoop {
 public:
  explicit EventLoop(const TaskGraph& graph)
      : graph_(graph), lanes_(graph.lanes().size()), resources_(graph.resources().size()) {
    timeline_.start.assign(graph.size(), 0);
    timeline_.end.assign(graph.size(), 0);
    timeline_.transfer_start.assign(graph.collectives().size(), -1);
    timeline_.follows.assign(graph.is_static() ? 0 : graph.size(), kNone<TaskId>);
    for (std::uint32_t c = 0; c < graph.collectives().size(); ++c) {
      absent_.push_back(static_cast<std::uint32_t>(graph.members(static_cast<CollectiveId>(c)).size()));
    }
    open_.resize(graph.size());
    for (std::uint32_t i = 0; i < graph.size(); ++i) {
      open_[i] = static_cast<std::uint32_t>(graph.predecessors(static_cast<TaskId>(i)).size());
    }
    for (std::uint32_t l = 0; l < lanes_.size(); ++l) wake_.insert(static_cast<LaneId>(l));
    for (std::uint32_t i = 0; i < graph.size(); ++i) {
      if (open_[i] == 0) ready(static_cast<TaskId>(i));
    }
  }

  Timeline run() {
    while (true) {
      start_round();
      if (events_.empty()) break;
      now_ = events_.top().time;
      while (!events_.empty() && events_.top().time == now_) {
        const Event event = events_.top();
        events_.pop();
        due(event);
      }
    }
    if (ended_ < graph_.size()) refuse();
    for (const std::int64_t end : timeline_.end) timeline_.makespan = std::max(timeline_.makespan, end);
    return std::move(timeline_);
  }

 private:
  struct Event {
    std::int64_t time;
    TaskId task = kNone<TaskId>;                    // that ends
    CollectiveId collective = kNone<CollectiveId>;  // whose transfer ends
    ResourceId resource = kNone<ResourceId>;        // a fair one at which somebody may be served
    std::uint64_t version = 0;
    bool operator>(const Event& other) const { return time > other.time; }
  };
  using Key = std::tuple<std::int64_t, std::int64_t, TaskId>;  // priority, ready, id: the least is served first
  struct LaneState {
    std::size_t next = 0;   // of a lane in recorded order
    std::set<Key> waiting;  // of others
    TaskId holder = kNone<TaskId>, last = kNone<TaskId>;
    std::int64_t last_end = 0;
  };
  struct ResourceState {
    std::set<std::tuple<std::int64_t, TaskId, CollectiveId>> waiting;
    bool busy = false;
    TaskId last = kNone<TaskId>;
    std::int64_t last_end = 0;
    FairShare fair;
    std::vector<Client> sharing;  // fair: in the order of FairShare's slots
    std::uint64_t version = 0;
  };

  /// Every lane that is held waits for a member that stands behind another held lane.
  [[noreturn]] void refuse() const {
    std::string held;
    for (const LaneState& lane : lanes_) {
      if (lane.holder == kNone<TaskId> || held.size() > 200) continue;
      held +=
          fmt::format("{}{} {}", held.empty() ? "" : ", ", index(lane.holder), graph_.text(graph_.name(lane.holder)));
    }
    throw Error(
        ErrorKind::kBadInput, "task graph",
        fmt::format("collectives wait for each other for ever: {}; put lanes with collectives in recorded order",
                    held));
  }

  void ready(TaskId task) {
    const LaneId lane = graph_.lane(task);
    if (lane == kNone<LaneId>) {
      free_.insert(task);
      return;
    }
    wake_.insert(lane);
    const LaneOrder order = graph_.lane(lane).order;
    if (order == LaneOrder::kRecorded) return;
    const std::int64_t priority = order == LaneOrder::kPriority ? graph_.priority(task) : 0;
    lanes_[index(lane)].waiting.insert({priority, now_, task});
  }

  void start_round() {
    for (const TaskId task : std::exchange(free_, {})) start(task);
    for (const LaneId lane : std::exchange(wake_, {})) serve(lane);
    for (const ResourceId resource : std::exchange(asked_, {})) serve(resource);
  }

  void serve(LaneId id) {
    LaneState& lane = lanes_[index(id)];
    if (lane.holder != kNone<TaskId>) return;
    TaskId task = kNone<TaskId>;
    if (graph_.lane(id).order == LaneOrder::kRecorded) {
      const auto tasks = graph_.tasks_of(id);
      if (lane.next == tasks.size() || open_[index(tasks[lane.next])] > 0) return;
      task = tasks[lane.next++];
    } else {
      if (lane.waiting.empty()) return;
      task = std::get<TaskId>(*lane.waiting.begin());
      lane.waiting.erase(lane.waiting.begin());
    }
    follow(task, lane.last, lane.last_end);
    lane.holder = task;
    start(task);
  }

  /// Remembers who made room in this very moment.
  void follow(TaskId task, TaskId last, std::int64_t left) {
    if (left == now_ && last != kNone<TaskId> && !timeline_.follows.empty()) timeline_.follows[index(task)] = last;
  }

  void start(TaskId task) {
    timeline_.start[index(task)] = now_;
    const CollectiveId collective = graph_.collective(task);
    if (collective != kNone<CollectiveId>) {
      if (--absent_[index(collective)] > 0) return;
      const ResourceId resource = graph_.collective(collective).resource;
      const Client client{graph_.members(collective).front(), collective};
      resource == kNone<ResourceId> ? begin(client) : ask(resource, client);
    } else if (graph_.resource(task) != kNone<ResourceId>) {
      ask(graph_.resource(task), {task, kNone<CollectiveId>});
    } else {
      events_.push({now_ + graph_.duration(task), task});
    }
  }

  std::int64_t work(const Client& client) const {
    return client.collective != kNone<CollectiveId> ? graph_.collective(client.collective).transfer
                                                    : graph_.duration(client.task);
  }

  /// Serves a client alone.
  void begin(const Client& client) {
    served(client);
    if (client.collective != kNone<CollectiveId>) {
      events_.push({now_ + work(client), kNone<TaskId>, client.collective});
    } else {
      events_.push({now_ + work(client), client.task});
    }
  }

  void served(const Client& client) {
    if (client.collective != kNone<CollectiveId>) {
      timeline_.transfer_start[index(client.collective)] = now_;
    } else {
      timeline_.start[index(client.task)] = now_;
    }
  }

  void ask(ResourceId resource, const Client& client) {
    const bool by_arrival = graph_.resources()[index(resource)].service == Service::kArrival;
    resources_[index(resource)].waiting.insert({by_arrival ? now_ : 0, client.task, client.collective});
    asked_.insert(resource);
  }

  void serve(ResourceId id) {
    ResourceState& resource = resources_[index(id)];
    if (graph_.resources()[index(id)].service == Service::kFair) {
      resource.fair.advance(now_);
      for (const auto& [arrival, task, collective] : std::exchange(resource.waiting, {})) {
        const Client client{task, collective};
        served(client);
        resource.fair.add(work(client));
        resource.sharing.push_back(client);
      }
      if (!resource.sharing.empty()) {
        events_.push({resource.fair.next_end(), kNone<TaskId>, kNone<CollectiveId>, id, ++resource.version});
      }
      return;
    }
    if (resource.busy || resource.waiting.empty()) return;
    const auto [arrival, task, collective] = *resource.waiting.begin();
    resource.waiting.erase(resource.waiting.begin());
    resource.busy = true;
    follow(task, resource.last, resource.last_end);
    begin({task, collective});
  }

  void due(const Event& event) {
    if (event.resource != kNone<ResourceId>) {
      ResourceState& resource = resources_[index(event.resource)];
      if (event.version != resource.version) return;  // somebody came or went since
      resource.fair.advance(now_);
      for (const std::size_t slot : resource.fair.take_done()) {
        const Client client = resource.sharing[slot];
        client.collective != kNone<CollectiveId> ? end_transfer(client.collective) : end(client.task);
        resource.sharing[slot].task = kNone<TaskId>;
      }
      std::erase_if(resource.sharing, [](const Client& client) { return client.task == kNone<TaskId>; });
      asked_.insert(event.resource);
    } else if (event.collective != kNone<CollectiveId>) {
      end_transfer(event.collective);
      leave(graph_.collective(event.collective).resource, graph_.members(event.collective).front());
    } else {
      end(event.task);
      leave(graph_.resource(event.task), event.task);
    }
  }

  void leave(ResourceId resource, TaskId task) {
    if (resource == kNone<ResourceId>) return;
    resources_[index(resource)].busy = false;
    resources_[index(resource)].last = task;
    resources_[index(resource)].last_end = now_;
    asked_.insert(resource);
  }

  void end_transfer(CollectiveId collective) {
    for (const TaskId member : graph_.members(collective)) {
      if (graph_.duration(member) == 0) {
        end(member);
      } else {
        events_.push({now_ + graph_.duration(member), member});
      }
    }
  }

  void end(TaskId task) {
    timeline_.end[index(task)] = now_;
    ++ended_;
    const LaneId lane = graph_.lane(task);
    if (lane != kNone<LaneId>) {
      lanes_[index(lane)].holder = kNone<TaskId>;
      lanes_[index(lane)].last = task;
      lanes_[index(lane)].last_end = now_;
      wake_.insert(lane);
    }
    for (const TaskId successor : graph_.successors(task)) {
      if (--open_[index(successor)] == 0) ready(successor);
    }
  }

  const TaskGraph& graph_;
  Timeline timeline_;
  std::vector<std::uint32_t> open_, absent_;
  std::vector<LaneState> lanes_;
  std::vector<ResourceState> resources_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::set<TaskId> free_;  // ready, on no lane
  std::set<LaneId> wake_;
  std::set<ResourceId> asked_;
  std::int64_t now_ = 0;
  std::size_t ended_ = 0;
};

}  // namespace

Timeline replay_by_events(const TaskGraph& graph) {
  return EventLoop(graph).run();
}

}  // namespace paceline::replay
