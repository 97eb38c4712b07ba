#include "paceline/schedule/rigid.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <map>
#include <queue>
#include <set>
#include <tuple>

#include "paceline/base/error.h"
#include "paceline/base/statistics.h"

namespace paceline::schedule {
namespace {

using base::Nanos;

/// Free GPUs of every node and how many nodes have how many free. Of equal nodes the first is taken.
class FreeNodes {
 public:
  using Parts = NodeParts;

  explicit FreeNodes(const RigidCluster& cluster)
      : per_node_(cluster.gpus_per_node),
        free_(static_cast<std::size_t>(cluster.nodes), per_node_),
        nodes_with_(static_cast<std::size_t>(per_node_) + 1, 0),
        total_(cluster.gpus()) {
    nodes_with_[static_cast<std::size_t>(per_node_)] = cluster.nodes;
  }

  int total() const { return total_; }

  bool fits(int gpus) const {
    if (gpus > total_) return false;
    const int whole = gpus / per_node_, part = gpus % per_node_;
    if (whole > nodes_with_.back()) return false;
    if (part == 0 || nodes_with_.back() > whole) return true;
    for (int f = part; f < per_node_; ++f)
      if (nodes_with_[static_cast<std::size_t>(f)] > 0) return true;
    return false;
  }

  /// fits(gpus) must hold.
  Parts take(int gpus) {
    Parts taken;
    int from = 0;
    for (; gpus >= per_node_; gpus -= per_node_) {
      from = find(per_node_, from);
      taken.push_back({from, per_node_});
      change(taken.back(), -1);
    }
    if (gpus > 0) {
      int room = gpus;
      while (room < per_node_ && nodes_with_[static_cast<std::size_t>(room)] == 0) ++room;
      taken.push_back({find(room, 0), gpus});
      change(taken.back(), -1);
    }
    return taken;
  }

  /// Takes these very parts, or nothing when one of them is not free.
  bool take_exactly(const Parts& parts) {
    for (const auto& [node, gpus] : parts)
      if (free_[static_cast<std::size_t>(node)] < gpus) return false;
    for (const auto& part : parts) change(part, -1);
    return true;
  }

  void give_back(const Parts& taken) {
    for (const auto& part : taken) change(part, +1);
  }

 private:
  int find(int room, int from) const {
    while (free_[static_cast<std::size_t>(from)] != room) ++from;
    return from;
  }

  void change(const std::pair<int, int>& part, int sign) {
    int& free = free_[static_cast<std::size_t>(part.first)];
    --nodes_with_[static_cast<std::size_t>(free)];
    free += sign * part.second;
    PL_CHECK(free >= 0 && free <= per_node_);
    ++nodes_with_[static_cast<std::size_t>(free)];
    total_ += sign * part.second;
  }

  int per_node_;
  std::vector<int> free_;        // by node
  std::vector<int> nodes_with_;  // by free GPUs
  int total_;
};

struct Run {
  Nanos end, limit_end;
  FreeNodes::Parts nodes;
  std::uint32_t job;  // kSnapshot for jobs that ran before
};
constexpr std::uint32_t kSnapshot = 0xFFFFFFFFu;

class Simulation {
 public:
  Simulation(const Workload& workload, QueueRule rule, const RigidOptions& options)
      : jobs_(workload.jobs), rule_(rule), options_(options), free_(options.cluster) {}

  RigidResult run(const std::string& name, std::span<const RunningJob> running, Nanos begin) {
    RigidResult result;
    result.runs.resize(jobs_.size());
    runs_ = &result.runs;
    now_ = begin;
    for (const RunningJob& job : running) {
      NodeParts nodes = job.nodes;
      if (nodes.empty() || !free_.take_exactly(nodes)) {
        if (!free_.fits(job.gpus)) continue;  // a record that the cluster cannot have held
        nodes = free_.take(job.gpus);
      }
      add_run({std::max(job.end, begin), job.limit_end, std::move(nodes), kSnapshot});
    }
    double used = 0;
    Nanos last = begin;
    std::size_t next = 0;
    while (next < jobs_.size() || !ends_.empty() || !waiting_.empty()) {
      if (next == jobs_.size() && ends_.empty() && !waiting_.empty()) PL_CHECK(false);  // everything fits when empty
      const Nanos arrival = next < jobs_.size() ? std::max(jobs_[next].submit, begin) : Nanos::max();
      const Nanos end = ends_.empty() ? Nanos::max() : ends_.begin()->first;
      now_ = std::min(arrival, end);
      while (!ends_.empty() && ends_.begin()->first <= now_) {
        free_.give_back(active_[ends_.begin()->second].nodes);
        active_.erase(ends_.begin()->second);
        ends_.erase(ends_.begin());
      }
      for (; next < jobs_.size() && std::max(jobs_[next].submit, begin) <= now_; ++next) {
        const auto id = static_cast<std::uint32_t>(next);
        if (const std::string bad = why_never(jobs_[next]); !bad.empty())
          result.problems.push_back({fmt::format("{}:{}", name, jobs_[next].line), bad});
        else
          enqueue(id);
      }
      start_jobs();
    }
    for (std::size_t i = 0; i < jobs_.size(); ++i) {
      if (result.runs[i].start.count() < 0) continue;
      used += static_cast<double>(jobs_[i].gpus) * 1e-9 * static_cast<double>(jobs_[i].duration.count());
      last = std::max(last, result.runs[i].end);
    }
    const double whole = 1e-9 * static_cast<double>((last - begin).count()) * options_.cluster.gpus();
    if (whole > 0) result.utilisation = used / whole;
    return result;
  }

 private:
  std::string why_never(const JobRequest& job) const {
    if (job.gpus < 1) return fmt::format("job {} asks for {} GPUs", job.name, job.gpus);
    if (job.duration.count() < 0) return fmt::format("job {} has a negative run time", job.name);
    if (job.gpus > options_.cluster.gpus())
      return fmt::format("job {} asks for {} GPUs, the cluster has {} nodes of {}", job.name, job.gpus,
                         options_.cluster.nodes, options_.cluster.gpus_per_node);
    return {};
  }

  static Nanos limit_of(const JobRequest& job) { return job.limit.count() > 0 ? job.limit : job.duration; }

  void enqueue(std::uint32_t id) {
    if (rule_ == QueueRule::kShortestFirst)
      waiting_.insert(
          std::upper_bound(waiting_.begin(), waiting_.end(), id,
                           [&](std::uint32_t a, std::uint32_t b) { return limit_of(jobs_[a]) < limit_of(jobs_[b]); }),
          id);
    else
      waiting_.push_back(id);
  }

  void add_run(Run run) {
    const std::uint64_t key = next_run_++;
    ends_.insert({run.end, key});
    active_.emplace(key, std::move(run));
  }

  void start(std::uint32_t id, bool backfilled) {
    const JobRequest& job = jobs_[id];
    RigidRun& run = (*runs_)[id];
    run.start = now_;
    run.end = now_ + job.duration;
    run.backfilled = backfilled;
    if (!job.queue.empty())
      service_[job.queue] += static_cast<double>(job.gpus) * static_cast<double>(job.duration.count());
    add_run({run.end, now_ + std::max(limit_of(job), job.duration), free_.take(job.gpus), id});
  }

  void start_jobs() {
    if (rule_ == QueueRule::kFairShare)
      std::stable_sort(waiting_.begin(), waiting_.end(), [&](std::uint32_t a, std::uint32_t b) {
        return service_[jobs_[a].queue] < service_[jobs_[b].queue];
      });
    std::size_t head = 0;
    while (head < waiting_.size() && free_.fits(jobs_[waiting_[head]].gpus)) start(waiting_[head++], false);
    waiting_.erase(waiting_.begin(), waiting_.begin() + static_cast<std::ptrdiff_t>(head));
    if (waiting_.size() < 2 && rule_ != QueueRule::kBackfill) return;
    if (waiting_.empty() || rule_ == QueueRule::kFifo) return;
    Nanos shadow = Nanos::max();
    std::optional<FreeNodes> at_shadow;
    if (rule_ == QueueRule::kBackfill || rule_ == QueueRule::kFairShare) {
      at_shadow = reserve(jobs_[waiting_.front()].gpus, shadow);
      RigidRun& run = (*runs_)[waiting_.front()];
      if (run.reserved.count() < 0) run.reserved = shadow;
    }
    int looked = 0;
    for (std::size_t i = 1; i < waiting_.size() && looked < options_.backfill_depth && free_.total() > 0; ++looked) {
      const JobRequest& job = jobs_[waiting_[i]];
      bool may = free_.fits(job.gpus);
      if (may && at_shadow && now_ + limit_of(job) > shadow) {
        // It would still run when the head starts: only with GPUs that the head leaves over, wherever it is put.
        may = stays_possible(job, *at_shadow);
      }
      if (!may) {
        ++i;
        continue;
      }
      start(waiting_[i], true);
      waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }

  /// When the head can start if every running job takes its whole limit, and the free nodes then without the head's.
  FreeNodes reserve(int gpus, Nanos& shadow) const {
    std::vector<const Run*> by_limit;
    for (const auto& [key, run] : active_) by_limit.push_back(&run);
    std::sort(by_limit.begin(), by_limit.end(), [](const Run* a, const Run* b) { return a->limit_end < b->limit_end; });
    FreeNodes then = free_;
    shadow = now_;
    for (const Run* run : by_limit) {
      if (then.fits(gpus)) break;
      then.give_back(run->nodes);
      shadow = std::max(now_, run->limit_end);
    }
    then.take(gpus);
    return then;
  }

  /// Takes the nodes that `job` would get out of `then` when they are free there beside the head's.
  bool stays_possible(const JobRequest& job, FreeNodes& then) {
    if (!then.fits(job.gpus)) return false;
    FreeNodes now = free_;
    const auto nodes = now.take(job.gpus);
    return then.take_exactly(nodes);
  }

  std::span<const JobRequest> jobs_;
  QueueRule rule_;
  const RigidOptions& options_;
  FreeNodes free_;
  Nanos now_{0};
  std::vector<std::uint32_t> waiting_;
  std::map<std::uint64_t, Run> active_;
  std::set<std::pair<Nanos, std::uint64_t>> ends_;
  std::uint64_t next_run_ = 0;
  std::map<std::string, double> service_;
  std::vector<RigidRun>* runs_ = nullptr;
};

constexpr std::array<std::pair<QueueRule, const char*>, 5> kRules{{{QueueRule::kFifo, "FIFO"},
                                                                   {QueueRule::kFirstFit, "first-fit"},
                                                                   {QueueRule::kBackfill, "backfill"},
                                                                   {QueueRule::kShortestFirst, "shortest-first"},
                                                                   {QueueRule::kFairShare, "fair-share"}}};

}  // namespace

std::string name_of(QueueRule rule) {
  for (const auto& [known, name] : kRules)
    if (known == rule) return name;
  return {};
}

std::optional<QueueRule> find_queue_rule(const std::string& name) {
  for (const auto& [rule, known] : kRules)
    if (name == known) return rule;
  return std::nullopt;
}

RigidResult simulate_rigid(const Workload& workload, QueueRule rule, const RigidOptions& options,
                           std::span<const RunningJob> running, base::Nanos begin) {
  return Simulation(workload, rule, options).run(workload.name, running, begin);
}

std::vector<NodeParts> replay_placements(std::span<const JobRequest> jobs, const RigidCluster& cluster,
                                         base::Nanos now) {
  struct Event {
    Nanos time;
    bool start;
    std::size_t job;
  };
  std::vector<Event> events;
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    if (jobs[i].start.count() < 0 || jobs[i].start >= now || jobs[i].end == jobs[i].start) continue;
    events.push_back({jobs[i].start, true, i});
    if (jobs[i].end <= now) events.push_back({jobs[i].end, false, i});
  }
  std::sort(events.begin(), events.end(), [](const Event& a, const Event& b) {
    return std::tie(a.time, a.start, a.job) < std::tie(b.time, b.start, b.job);
  });
  FreeNodes free(cluster);
  std::vector<NodeParts> parts(jobs.size());
  for (const Event& event : events) {
    NodeParts& nodes = parts[event.job];
    if (event.start) {
      if (free.fits(jobs[event.job].gpus)) nodes = free.take(jobs[event.job].gpus);
    } else {
      free.give_back(nodes);
      nodes.clear();
    }
  }
  return parts;
}

WaitSummary summarise_waits(const Workload& workload, std::span<const RigidRun> runs) {
  std::vector<double> waits;
  for (std::size_t i = 0; i < runs.size(); ++i)
    if (runs[i].start.count() >= 0)
      waits.push_back(1e-9 * static_cast<double>((runs[i].start - workload.jobs[i].submit).count()));
  if (waits.empty()) return {};
  return {base::mean(waits), base::median(waits), base::quantile(waits, 0.9)};
}

}  // namespace paceline::schedule
