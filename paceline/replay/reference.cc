#include "paceline/replay/reference.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "paceline/base/error.h"

namespace paceline::replay {
namespace {

using base::kNone;
using taskgraph::CollectiveId;
using taskgraph::LaneId;
using taskgraph::LaneOrder;
using taskgraph::ResourceId;
using taskgraph::Service;
using taskgraph::TaskGraph;
using taskgraph::TaskId;

__extension__ using Units = __int128;

/// A task or a collective at work: for how long yet, in units that 1 to 16 divide, and at which resource.
struct Work {
  TaskId task;
  CollectiveId collective;
  ResourceId resource;
  std::int64_t asked;
  bool served = false;
  Units left;
};

constexpr std::int64_t kUnits = 720'720;

class Naive {
 public:
  explicit Naive(const TaskGraph& graph) : graph_(graph), state_(graph.size(), State::kWaiting), tail_(graph.size()) {
    timeline_.start.assign(graph.size(), 0);
    timeline_.end.assign(graph.size(), 0);
    timeline_.transfer_start.assign(graph.collectives().size(), -1);
  }

  Timeline run() {
    while (true) {
      // Rounds of this moment until nothing more happens in it.
      bool again = true;
      while (again) {
        again = end_what_is_done();
        again |= start_tasks();
        again |= serve_resources();
      }
      const std::optional<std::int64_t> next = next_moment();
      if (!next) break;
      pass_time(*next);
    }
    for (std::uint32_t i = 0; i < graph_.size(); ++i) {
      if (state_[i] != State::kDone)
        throw Error(ErrorKind::kBadInput, "task graph", "collectives wait for each other for ever");
    }
    timeline_.makespan = graph_.size() == 0 ? 0 : *std::max_element(timeline_.end.begin(), timeline_.end.end());
    return timeline_;
  }

 private:
  enum class State { kWaiting, kAtWork, kTail, kDone };

  bool can_run(TaskId task) const {
    if (state_[index(task)] != State::kWaiting) return false;
    return std::all_of(graph_.predecessors(task).begin(), graph_.predecessors(task).end(),
                       [&](TaskId p) { return state_[index(p)] == State::kDone; });
  }
  std::int64_t ready(TaskId task) const {
    std::int64_t time = 0;
    for (const TaskId p : graph_.predecessors(task)) time = std::max(time, timeline_.end[index(p)]);
    return time;
  }

  void finish(TaskId task) {
    state_[index(task)] = State::kDone;
    timeline_.end[index(task)] = now_;
  }

  bool end_what_is_done() {
    bool any = false;
    for (std::uint32_t i = 0; i < graph_.size(); ++i) {
      if (state_[i] == State::kTail && tail_[i] <= now_) finish(static_cast<TaskId>(i)), any = true;
    }
    for (const Work& work : work_) {
      if (!work.served || work.left > 0) continue;
      any = true;
      if (work.collective == kNone<CollectiveId>) {
        finish(work.task);
        continue;
      }
      for (const TaskId member : graph_.members(work.collective)) {
        if (graph_.duration(member) == 0) {
          finish(member);
        } else {
          state_[index(member)] = State::kTail;
          tail_[index(member)] = now_ + graph_.duration(member);
        }
      }
    }
    std::erase_if(work_, [](const Work& work) { return work.served && work.left <= 0; });
    return any;
  }

  void start(TaskId task) {
    state_[index(task)] = State::kAtWork;
    timeline_.start[index(task)] = now_;
    const CollectiveId collective = graph_.collective(task);
    if (collective == kNone<CollectiveId>) {
      work_.push_back(
          {task, collective, graph_.resource(task), now_, false, static_cast<Units>(graph_.duration(task)) * kUnits});
      return;
    }
    for (const TaskId member : graph_.members(collective)) {
      if (state_[index(member)] != State::kAtWork) return;
    }
    const auto& row = graph_.collective(collective);
    work_.push_back({graph_.members(collective).front(), collective, row.resource, now_, false,
                     static_cast<Units>(row.transfer) * kUnits});
  }

  bool start_tasks() {
    bool any = false;
    std::vector<TaskId> now;  // decided before anything starts, as all start at once
    for (std::uint32_t i = 0; i < graph_.size(); ++i) {
      const auto task = static_cast<TaskId>(i);
      if (graph_.lane(task) == kNone<LaneId> && can_run(task)) now.push_back(task);
    }
    for (std::uint32_t l = 0; l < graph_.lanes().size(); ++l) {
      const auto tasks = graph_.tasks_of(static_cast<LaneId>(l));
      const auto held = [&](TaskId t) {
        return state_[index(t)] == State::kAtWork || state_[index(t)] == State::kTail;
      };
      if (std::any_of(tasks.begin(), tasks.end(), held)) continue;
      const LaneOrder order = graph_.lanes()[l].order;
      if (order == LaneOrder::kRecorded) {
        const auto next =
            std::find_if(tasks.begin(), tasks.end(), [&](TaskId t) { return state_[index(t)] == State::kWaiting; });
        if (next != tasks.end() && can_run(*next)) now.push_back(*next);
        continue;
      }
      TaskId best = kNone<TaskId>;
      const auto key = [&](TaskId t) {
        return std::tuple(order == LaneOrder::kPriority ? graph_.priority(t) : 0, ready(t), t);
      };
      for (const TaskId t : tasks) {
        if (can_run(t) && (best == kNone<TaskId> || key(t) < key(best))) best = t;
      }
      if (best != kNone<TaskId>) now.push_back(best);
    }
    for (const TaskId task : now) start(task), any = true;
    return any;
  }

  bool serve_resources() {
    bool any = false;
    for (Work& work : work_) {
      if (work.served) continue;
      if (work.resource != kNone<ResourceId>) {
        const Service service = graph_.resources()[index(work.resource)].service;
        const auto key = [&](const Work& w) { return std::tuple(service == Service::kArrival ? w.asked : 0, w.task); };
        bool mine = true;
        for (const Work& other : work_) {
          if (&other == &work || other.resource != work.resource || service == Service::kFair) continue;
          if (other.served || key(other) < key(work)) mine = false;
        }
        if (!mine) continue;
      }
      work.served = any = true;
      if (work.collective != kNone<CollectiveId>) {
        timeline_.transfer_start[index(work.collective)] = now_;
      } else {
        timeline_.start[index(work.task)] = now_;
      }
    }
    return any;
  }

  /// Work in units that is done for `work` in 1 ns.
  std::int64_t rate(const Work& work) const {
    if (work.resource == kNone<ResourceId> || graph_.resources()[index(work.resource)].service != Service::kFair) {
      return kUnits;
    }
    return kUnits / std::count_if(work_.begin(), work_.end(),
                                  [&](const Work& w) { return w.served && w.resource == work.resource; });
  }

  std::optional<std::int64_t> next_moment() const {
    std::optional<std::int64_t> next;
    const auto take = [&](std::int64_t time) { next = next ? std::min(*next, time) : time; };
    for (std::uint32_t i = 0; i < graph_.size(); ++i) {
      if (state_[i] == State::kTail) take(tail_[i]);
    }
    for (const Work& work : work_) {
      if (work.served) take(now_ + static_cast<std::int64_t>((work.left + rate(work) - 1) / rate(work)));
    }
    return next;
  }

  void pass_time(std::int64_t to) {
    std::vector<std::int64_t> rates;
    for (const Work& work : work_) rates.push_back(rate(work));
    for (std::size_t i = 0; i < work_.size(); ++i) {
      if (work_[i].served) work_[i].left -= static_cast<Units>(to - now_) * rates[i];
    }
    now_ = to;
  }

  const TaskGraph& graph_;
  Timeline timeline_;
  std::vector<State> state_;
  std::vector<std::int64_t> tail_;
  std::vector<Work> work_;
  std::int64_t now_ = 0;
};

}  // namespace

Timeline naive_replay(const TaskGraph& graph) {
  return Naive(graph).run();
}

}  // namespace paceline::replay
