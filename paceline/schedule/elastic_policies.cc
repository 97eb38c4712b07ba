// Tiresias and Optimus on the elastic simulator.
#include <fmt/core.h>

#include <algorithm>
#include <numeric>
#include <unordered_map>

#include "paceline/base/error.h"
#include "paceline/schedule/elastic.h"

namespace paceline::schedule {
namespace {

/// Free GPUs per node when the given allocations hold theirs.
std::vector<int> free_gpus(std::span<const int> node_gpus, std::span<const Allocation> allocations) {
  std::vector<int> free(node_gpus.begin(), node_gpus.end());
  for (const Allocation& allocation : allocations)
    for (std::uint16_t node : allocation) --free[node];
  return free;
}

/// Takes `count` GPUs, always from the node with most free ones (the first of equals).
Allocation take_most_free(std::vector<int>& free, int count) {
  Allocation allocation;
  while (count > 0) {
    const auto node = std::max_element(free.begin(), free.end());
    const int taken = std::min(*node, count);
    PL_CHECK(taken > 0);
    allocation.insert(allocation.end(), static_cast<std::size_t>(taken),
                      static_cast<std::uint16_t>(node - free.begin()));
    *node -= taken;
    count -= taken;
  }
  return allocation;
}

class Tiresias final : public ElasticPolicy {
 public:
  std::string name() const override { return "Tiresias"; }

  void decide(const ElasticView& view, std::vector<Allocation>& next) override {
    state_.resize(view.jobs.size());
    const auto done = [&](std::uint32_t job) { return view.jobs[job].completion.has_value(); };
    for (auto& queue : queues_) std::erase_if(queue, done);
    for (std::uint32_t job : view.active) {
      State& state = state_[job];
      if (!state.known) {
        state.known = true;
        queues_[0].push_back(job);
      } else if (state.running) {
        state.executed += view.now - state.last_check;
        if (!state.demoted && state.executed * view.jobs[job].request->gpus >= kDemotion) {
          state.demoted = true;
          std::erase(queues_[0], job);
          queues_[1].push_back(job);
        }
      }
      state.last_check = view.now;
    }
    std::unordered_map<std::uint32_t, std::size_t> slot;
    for (std::size_t i = 0; i < view.active.size(); ++i) slot[view.active[i]] = i;
    int gpus = std::accumulate(view.node_gpus.begin(), view.node_gpus.end(), 0);
    for (const auto& queue : queues_)
      for (std::uint32_t job : queue) {
        const int wanted = view.jobs[job].request->gpus;
        state_[job].running = wanted <= gpus;
        if (state_[job].running)
          gpus -= wanted;
        else
          next[slot[job]].clear();
      }
    std::vector<int> free = free_gpus(view.node_gpus, next);
    for (const auto& queue : queues_)
      for (std::uint32_t job : queue)
        if (state_[job].running && next[slot[job]].empty())
          next[slot[job]] = take_most_free(free, view.jobs[job].request->gpus);
  }

 private:
  static constexpr std::int64_t kDemotion = 3600 * 16;  // GPU seconds
  struct State {
    bool known = false, running = false, demoted = false;
    std::int64_t executed = 0, last_check = 0;  // seconds
  };
  std::vector<State> state_;
  std::array<std::vector<std::uint32_t>, 2> queues_;
};

class ElasticOptimus final : public ElasticPolicy {
 public:
  std::string name() const override { return "Optimus"; }

  void decide(const ElasticView& view, std::vector<Allocation>& next) override {
    const std::size_t count = view.active.size();
    int gpus = std::accumulate(view.node_gpus.begin(), view.node_gpus.end(), 0);
    std::vector<int> replicas(count, 0);
    std::vector<double> gain(count, 0.0), remaining(count, 1.0);
    const auto update_gain = [&](std::size_t i, int left) {
      const ElasticJob& job = view.jobs[view.active[i]];
      if (replicas[i] + 1 > most_replicas(job) || left < 1)
        gain[i] = 0;
      else
        gain[i] = (step_time(job, replicas[i]) - step_time(job, replicas[i] + 1)) * remaining[i];
    };
    for (std::size_t i = 0; i < count; ++i) {
      const ElasticJob& job = view.jobs[view.active[i]];
      const int last = job.application->completion_epoch();
      if (last > job.epoch)
        remaining[i] = job.application->iterations(job.target_batch, last) -
                       job.application->iterations(job.target_batch, job.epoch);
      if (gpus < 1) continue;
      replicas[i] = 1;
      --gpus;
      update_gain(i, gpus);
    }
    while (gpus > 0) {
      const auto best = std::max_element(gain.begin(), gain.end());
      if (*best <= 0) break;
      const auto i = static_cast<std::size_t>(best - gain.begin());
      ++replicas[i];
      // As published: the gain is computed before the GPU is taken off.
      update_gain(i, gpus);
      --gpus;
    }
    for (std::size_t i = 0; i < count; ++i)
      if (static_cast<int>(next[i].size()) != replicas[i]) next[i].clear();
    std::vector<int> free = free_gpus(view.node_gpus, next);
    std::vector<std::size_t> order(count);
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return replicas[a] < replicas[b]; });
    for (std::size_t i : order)
      if (replicas[i] > 0 && next[i].empty()) next[i] = take_most_free(free, replicas[i]);
  }

 private:
  static int most_replicas(const ElasticJob& job) {
    if (job.application->name() == "ncf") return 1;
    return job.target_batch / job.application->min_local_batch();
  }

  /// True seconds of a step with `replicas` packed onto nodes of four.
  double step_time(const ElasticJob& job, int replicas) {
    const std::uint64_t key = (static_cast<std::uint64_t>(job.target_batch) << 16) + static_cast<unsigned>(replicas);
    auto& memo = memo_[job.application];
    const auto found = memo.find(key);
    if (found != memo.end()) return found->second;
    BatchLimits limits = batch_limits(*job.application);
    // As published: one replica always accumulates at least once.
    if (replicas == 1) limits.initial = 0;
    const BatchChoice batch = fixed_batch(job.target_batch, replicas, limits);
    const Application::StepTime time = job.application->step_time(packed_placement(replicas, 4), batch.atomic_batch);
    return memo[key] = time.step + (time.step - time.sync) * batch.accumulation;
  }

  std::unordered_map<const Application*, std::unordered_map<std::uint64_t, double>> memo_;
};

}  // namespace

std::unique_ptr<ElasticPolicy> make_tiresias() {
  return std::make_unique<Tiresias>();
}

std::unique_ptr<ElasticPolicy> make_elastic_optimus() {
  return std::make_unique<ElasticOptimus>();
}

}  // namespace paceline::schedule
