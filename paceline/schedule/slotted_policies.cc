// Rules on the slotted simulator: FIFO, SRTF, DRF, Optimus, each as published and repaired, and Optimus with search.
#include <algorithm>
#include <limits>
#include <queue>
#include <set>
#include <tuple>

#include "paceline/schedule/slotted.h"

namespace paceline::schedule {
namespace {

NodeChoice nodes_of(MisfitRule rule) {
  return rule == MisfitRule::kStop ? NodeChoice::kLeastUsedOnly : NodeChoice::kAnyThatFits;
}

std::string named(const char* name, MisfitRule rule) {
  return rule == MisfitRule::kStop ? name : std::string(name) + "-repaired";
}

/// The first job takes as many bundles as it may, then the next.
class InOrder : public SlottedPolicy {
 public:
  explicit InOrder(MisfitRule rule) : rule_(rule) {}

  void allocate(SlottedCluster& cluster) override {
    std::vector<std::uint32_t> order(cluster.active().begin(), cluster.active().end());
    sort(cluster, order);
    for (std::uint32_t job : order)
      for (int pair = 0; pair < cluster.most_tasks(); ++pair)
        if (!cluster.grant(job, Grant::kBundle, nodes_of(rule_))) {
          if (rule_ == MisfitRule::kStop) return;
          break;
        }
  }

 protected:
  virtual void sort(const SlottedCluster& cluster, std::vector<std::uint32_t>& order) const = 0;
  MisfitRule rule_;
};

class PsFifo final : public InOrder {
 public:
  using InOrder::InOrder;
  std::string name() const override { return named("FIFO", rule_); }
  void sort(const SlottedCluster&, std::vector<std::uint32_t>&) const override {}  // active jobs come by arrival
};

class PsSrtf final : public InOrder {
 public:
  using InOrder::InOrder;
  std::string name() const override { return named("SRTF", rule_); }
  void sort(const SlottedCluster& cluster, std::vector<std::uint32_t>& order) const override {
    std::stable_sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
      return 1 - cluster.state(a).progress / cluster.job(a).epochs <
             1 - cluster.state(b).progress / cluster.job(b).epochs;
    });
  }
};

class PsDrf final : public SlottedPolicy {
 public:
  explicit PsDrf(MisfitRule rule) : rule_(rule) {}
  std::string name() const override { return named("DRF", rule_); }

  void allocate(SlottedCluster& cluster) override {
    std::set<std::pair<double, std::uint32_t>> queue;  // jobs are numbered by (arrival, id)
    for (std::uint32_t job : cluster.active()) queue.insert({0.0, job});
    while (!queue.empty()) {
      const std::uint32_t job = queue.begin()->second;
      queue.erase(queue.begin());
      if (cluster.grant(job, Grant::kBundle, nodes_of(rule_))) {
        const auto& state = cluster.state(job);
        if (state.workers < cluster.most_tasks() && state.servers < cluster.most_tasks())
          queue.insert({state.share, job});
      } else if (rule_ == MisfitRule::kStop) {
        return;
      }
    }
  }

 private:
  MisfitRule rule_;
};

class PsOptimus final : public SlottedPolicy {
 public:
  explicit PsOptimus(MisfitRule rule) : rule_(rule) {}
  std::string name() const override { return named("Optimus", rule_); }

  void allocate(SlottedCluster& cluster) override {
    using Entry = std::tuple<double, int, std::uint32_t, Grant>;  // (-utility, id, job, what)
    std::set<Entry> queue;
    const auto enter = [&](std::uint32_t job) {
      const auto [utility, grant] = best_grant(cluster, job);
      queue.insert({-utility, cluster.job(job).id, job, grant});
    };
    for (std::uint32_t job : cluster.active()) enter(job);
    while (!queue.empty()) {
      const auto [negative, id, job, grant] = *queue.begin();
      queue.erase(queue.begin());
      if (-negative <= 0) return;
      const auto& state = cluster.state(job);
      if ((grant == Grant::kWorker ? state.workers : state.servers) >= cluster.most_tasks()) continue;
      if (cluster.grant(job, grant, nodes_of(rule_)))
        enter(job);
      else if (rule_ == MisfitRule::kStop)
        return;
    }
  }

 private:
  /// Slots saved by one more worker or one more server.
  static std::pair<double, Grant> best_grant(const SlottedCluster& cluster, std::uint32_t job) {
    constexpr double kFirst = std::numeric_limits<double>::max();
    const auto& state = cluster.state(job);
    if (state.workers == 0) return {kFirst, Grant::kWorker};
    if (state.servers == 0) return {kFirst, Grant::kServer};
    const double remaining = cluster.remaining(job);
    const double now = remaining / cluster.speed(job, state.servers, state.workers);
    const double worker = now - remaining / cluster.speed(job, state.servers, state.workers + 1);
    const double server = now - remaining / cluster.speed(job, state.servers + 1, state.workers);
    return server >= worker ? std::pair{server, Grant::kServer} : std::pair{worker, Grant::kWorker};
  }

  MisfitRule rule_;
};

class PsOptimusSearch final : public SlottedPolicy {
 public:
  std::string name() const override { return "Optimus-search"; }

  void allocate(SlottedCluster& cluster) override {
    const auto order = cluster.active();
    // Everybody gets the first pair, the shortest first, as long as they fit.
    std::vector<std::uint32_t> jobs(order.begin(), order.end());
    std::stable_sort(jobs.begin(), jobs.end(), [&](std::uint32_t a, std::uint32_t b) {
      return cluster.remaining(a) / cluster.speed(a, 1, 1) < cluster.remaining(b) / cluster.speed(b, 1, 1);
    });
    std::erase_if(jobs,
                  [&](std::uint32_t job) { return !cluster.grant(job, Grant::kBundle, NodeChoice::kAnyThatFits); });
    std::vector<Step> steps(jobs.size());
    for (std::size_t i = 0; i < jobs.size(); ++i) steps[i] = best_step(cluster, jobs[i]);
    while (true) {
      std::size_t best = jobs.size();
      for (std::size_t i = 0; i < jobs.size(); ++i)
        if (steps[i].value > 0 && (best == jobs.size() || steps[i].value > steps[best].value)) best = i;
      if (best == jobs.size()) return;
      const Step step = steps[best];
      const std::uint32_t job = jobs[best];
      bool fits = true;
      int granted = 0;
      while (fits && (cluster.state(job).workers < step.workers || cluster.state(job).servers < step.servers)) {
        const bool worker = cluster.state(job).workers < step.workers;
        fits = cluster.grant(job, worker ? Grant::kWorker : Grant::kServer, NodeChoice::kAnyThatFits);
        granted += fits;
      }
      // Half a step may be slower than none.
      for (; !fits && granted > 0; --granted) cluster.undo();
      steps[best] = fits ? best_step(cluster, job) : Step{};
    }
  }

 private:
  struct Step {
    double value = 0;
    int servers = 0, workers = 0;
  };

  static Step best_step(const SlottedCluster& cluster, std::uint32_t job) {
    const auto& state = cluster.state(job);
    const PsDemand free = cluster.free();
    const double remaining = cluster.remaining(job);
    const double now = remaining / cluster.speed(job, state.servers, state.workers);
    Step best;
    for (int servers = state.servers; servers <= cluster.most_tasks(); ++servers)
      for (int workers = state.workers; workers <= cluster.most_tasks(); ++workers) {
        const int more_servers = servers - state.servers, more_workers = workers - state.workers;
        if (more_servers + more_workers == 0) continue;
        const PsJob& j = cluster.job(job);
        const PsDemand demand{more_servers * j.server.cpu + more_workers * j.worker.cpu,
                              more_servers * j.server.gpu_slots + more_workers * j.worker.gpu_slots};
        if (demand.cpu > free.cpu || demand.gpu_slots > free.gpu_slots) continue;
        const double saved = now - remaining / cluster.speed(job, servers, workers);
        const double value = saved / cluster.dominant_share(demand);
        if (value > best.value) best = {value, servers, workers};
      }
    return best;
  }
};

}  // namespace

std::unique_ptr<SlottedPolicy> make_ps_fifo(MisfitRule rule) {
  return std::make_unique<PsFifo>(rule);
}
std::unique_ptr<SlottedPolicy> make_ps_srtf(MisfitRule rule) {
  return std::make_unique<PsSrtf>(rule);
}
std::unique_ptr<SlottedPolicy> make_ps_drf(MisfitRule rule) {
  return std::make_unique<PsDrf>(rule);
}
std::unique_ptr<SlottedPolicy> make_ps_optimus(MisfitRule rule) {
  return std::make_unique<PsOptimus>(rule);
}
std::unique_ptr<SlottedPolicy> make_ps_optimus_search() {
  return std::make_unique<PsOptimusSearch>();
}

}  // namespace paceline::schedule
