// Our elastic policy: GPUs go where they shorten the remaining time of jobs most, short jobs first.
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>

#include "paceline/base/error.h"
#include "paceline/schedule/elastic.h"

namespace paceline::schedule {
namespace {

/// Replica counts that the policy considers: parts of a node, then whole nodes.
std::vector<int> counts(int per_node, int most) {
  std::vector<int> result{0};
  for (int r = 1; r <= most; r += r < per_node ? 1 : per_node) result.push_back(r);
  return result;
}

/// Seconds that an application still needs from the start of each epoch with each of the counts, packed, with the best
/// batch in every epoch, by its profile.
class RemainingTime {
 public:
  RemainingTime(const Application& application, int fixed_batch_size, const std::vector<int>& counts, int per_node)
      : options_(counts.size()), epochs_(static_cast<std::size_t>(application.completion_epoch() + 1)) {
    suffix_.assign((epochs_ + 1) * options_, 0.0);
    for (std::size_t e = epochs_; e-- > 0;)
      for (std::size_t c = 0; c < options_; ++c) {
        const double work =
            application.progress_at(static_cast<int>(e) + 1) - application.progress_at(static_cast<int>(e));
        const double rate =
            counts[c] == 0 ? 0 : best_rate(application, fixed_batch_size, static_cast<int>(e), counts[c], per_node);
        suffix_[e * options_ + c] =
            rate > 0 ? suffix_[(e + 1) * options_ + c] + work / rate : std::numeric_limits<double>::infinity();
      }
  }

  /// `done`: share of the running epoch that is finished.
  double at(int epoch, double done, std::size_t option) const {
    const auto e = static_cast<std::size_t>(epoch);
    const double now = suffix_[e * options_ + option], next = suffix_[(e + 1) * options_ + option];
    return std::isinf(now) ? now : now - done * (now - next);
  }

 private:
  static double best_rate(const Application& application, int fixed_batch_size, int epoch, int replicas, int per_node) {
    const BatchLimits limits = batch_limits(application);
    const Placement placement = packed_placement(replicas, per_node);
    double best = 0;
    constexpr int kCandidates = 12;
    for (int i = 0; i < kCandidates; ++i) {
      const double smallest = std::max(limits.initial, limits.smallest_local * replicas);
      if (smallest > limits.largest) return 0;
      int batch = static_cast<int>(smallest * std::pow(limits.largest / smallest, i / (kCandidates - 1.0)));
      if (fixed_batch_size > 0) batch = fixed_batch_size;
      const BatchChoice choice = fixed_batch(batch, replicas, limits);
      if (choice.atomic_batch < limits.smallest_local || choice.atomic_batch > limits.largest_local) continue;
      const int total = replicas * choice.atomic_batch * (choice.accumulation + 1);
      if (total < limits.initial) continue;
      const Application::StepTime time = application.step_time(placement, choice.atomic_batch);
      const Application::GradientNoise noise = application.gradient_noise(total, epoch);
      const double scale = static_cast<double>(total) / limits.initial;
      const double gain = (noise.variance + noise.squared) / (noise.variance / scale + noise.squared);
      best = std::max(best, gain / (time.step + (time.step - time.sync) * choice.accumulation));
      if (fixed_batch_size > 0) break;
    }
    return best;
  }

  std::size_t options_, epochs_;
  std::vector<double> suffix_;  // by [epoch][count]
};

class ShortestGoodput final : public ElasticPolicy {
 public:
  explicit ShortestGoodput(ShortestGoodputOptions options) : options_(options) {}
  std::string name() const override { return "Paceline"; }
  bool co_tunes_batch() const override { return true; }

  void decide(const ElasticView& view, std::vector<Allocation>& next) override {
    per_node_ = *std::max_element(view.node_gpus.begin(), view.node_gpus.end());
    const int gpus = std::accumulate(view.node_gpus.begin(), view.node_gpus.end(), 0);
    if (counts_.empty()) counts_ = counts(per_node_, std::min(gpus, 64));
    const std::vector<std::size_t> chosen = choose(view, next, gpus);
    place(view, chosen, next);
  }

 private:
  /// Value of every count for a job: the rate at which it approaches its end, to the power that says how much short
  /// jobs are preferred; a change of the count costs the restart spread over the time until the next change.
  std::vector<double> values(const ElasticView& view, std::uint32_t id, int current) {
    const ElasticJob& job = view.jobs[id];
    auto& remaining = remaining_[{job.application, job.target_batch}];
    if (!remaining) remaining.emplace(*job.application, job.target_batch, counts_, per_node_);
    const double from = job.application->progress_at(job.epoch), to = job.application->progress_at(job.epoch + 1);
    const double done = std::clamp((job.progress - from) / (to - from), 0.0, 1.0);
    std::vector<double> value(counts_.size(), 0.0);
    const double alone = remaining->at(job.epoch, done, 1);
    const double weight = std::pow(alone, -options_.shortness);
    for (std::size_t c = 1; c < counts_.size(); ++c) {
      if (job.target_batch > 0 && counts_[c] > 1) break;
      const double time = remaining->at(job.epoch, done, c);
      if (std::isinf(time)) break;
      value[c] = weight * std::pow(alone / time, options_.concavity);
      if (counts_[c] != current) value[c] *= current == 0 ? 1.0 : 1 - options_.change_penalty;
    }
    return value;
  }

  std::vector<std::size_t> choose(const ElasticView& view, const std::vector<Allocation>& current, int gpus) {
    const std::size_t jobs = view.active.size();
    std::vector<std::vector<double>> value(jobs);
    for (std::size_t i = 0; i < jobs; ++i) value[i] = values(view, view.active[i], static_cast<int>(current[i].size()));
    std::vector<std::size_t> chosen(jobs, 0);
    while (gpus > 0) {
      double best = 0;
      std::size_t best_job = 0, best_count = 0;
      for (std::size_t i = 0; i < jobs; ++i)
        for (std::size_t c = chosen[i] + 1; c < counts_.size(); ++c) {
          const int more = counts_[c] - counts_[chosen[i]];
          if (more > gpus || value[i][c] <= 0) break;
          const double density = (value[i][c] - value[i][chosen[i]]) / more;
          if (density > best) best = density, best_job = i, best_count = c;
        }
      if (best <= 0) break;
      gpus -= counts_[best_count] - counts_[chosen[best_job]];
      chosen[best_job] = best_count;
    }
    return chosen;
  }

  void place(const ElasticView& view, const std::vector<std::size_t>& chosen, std::vector<Allocation>& next) const {
    std::vector<int> free(view.node_gpus.begin(), view.node_gpus.end());
    std::vector<std::size_t> order;
    for (std::size_t i = 0; i < next.size(); ++i) {
      if (static_cast<int>(next[i].size()) == counts_[chosen[i]]) {
        for (std::uint16_t node : next[i]) --free[node];
        continue;
      }
      next[i].clear();
      if (chosen[i] > 0) order.push_back(i);
    }
    // Whole nodes first, then the parts into the fullest node that has room.
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return chosen[a] > chosen[b]; });
    for (std::size_t i : order) {
      int left = counts_[chosen[i]];
      while (left > 0) {
        const auto fits = [&](int room) { return room >= std::min(left, per_node_); };
        auto best = free.end();
        for (auto node = free.begin(); node != free.end(); ++node)
          if (fits(*node) && (best == free.end() || *node < *best)) best = node;
        if (best == free.end()) best = std::max_element(free.begin(), free.end());
        const int taken = std::min(*best, left);
        PL_CHECK(taken > 0);
        next[i].insert(next[i].end(), static_cast<std::size_t>(taken), static_cast<std::uint16_t>(best - free.begin()));
        *best -= taken;
        left -= taken;
      }
    }
  }

  ShortestGoodputOptions options_;
  int per_node_ = 1;
  std::vector<int> counts_;
  std::map<std::pair<const Application*, int>, std::optional<RemainingTime>> remaining_;
};

}  // namespace

std::unique_ptr<ElasticPolicy> make_shortest_goodput(ShortestGoodputOptions options) {
  return std::make_unique<ShortestGoodput>(options);
}

}  // namespace paceline::schedule
