#include "paceline/schedule/learned.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "paceline/base/error.h"
#include "paceline/base/rng.h"

namespace paceline::schedule {
namespace {

// Places of the features that rules use by name; the others are in step_features().
constexpr std::size_t kLogRemaining = 0, kLogDensity = 1;

float log_of(double x) {
  return static_cast<float>(std::log(std::max(x, 1e-6)));
}

}  // namespace

std::vector<PsConfiguration> efficient_configurations(const SlottedCluster& cluster, std::uint32_t job) {
  const int most = cluster.most_tasks();
  std::vector<PsConfiguration> best(static_cast<std::size_t>(2 * most) + 1);  // by number of tasks
  for (int servers = 1; servers <= most; ++servers)
    for (int workers = 1; workers <= most; ++workers) {
      PsConfiguration& known = best[static_cast<std::size_t>(servers + workers)];
      if (known.tasks() == 0 || cluster.speed(job, servers, workers) > cluster.speed(job, known.servers, known.workers))
        known = {servers, workers};
    }
  std::vector<PsConfiguration> hull{{}};
  const auto speed = [&](const PsConfiguration& c) { return cluster.speed(job, c.servers, c.workers); };
  for (const PsConfiguration& next : best) {
    if (next.tasks() == 0 || speed(next) <= speed(hull.back())) continue;
    const auto slope = [&](const PsConfiguration& a, const PsConfiguration& b) {
      return (speed(b) - speed(a)) / (b.tasks() - a.tasks());
    };
    while (hull.size() >= 2 && slope(hull[hull.size() - 2], hull.back()) <= slope(hull.back(), next)) hull.pop_back();
    hull.push_back(next);
  }
  return hull;
}

const std::vector<PsConfiguration>& StepPolicy::configurations(const SlottedCluster& cluster, std::uint32_t job) {
  auto& known = memo_[{cluster.job(job).model, cluster.job(job).worker.gpu_slots}];
  if (known.empty()) known = efficient_configurations(cluster, job);
  return known;
}

void StepPolicy::allocate(SlottedCluster& cluster) {
  const auto active = cluster.active();
  std::vector<Candidate> candidates(active.size());
  // Sums over all jobs: how much is wanted, and how much shorter jobs want.
  std::vector<double> remaining(active.size());
  std::vector<std::size_t> by_length(active.size());
  std::iota(by_length.begin(), by_length.end(), std::size_t{0});
  double wanted = 0;
  for (std::size_t i = 0; i < active.size(); ++i) {
    candidates[i].job = active[i];
    candidates[i].configurations = &configurations(cluster, active[i]);
    const PsConfiguration& best = candidates[i].configurations->back();
    remaining[i] = cluster.remaining(active[i]) / cluster.speed(active[i], best.servers, best.workers);
    wanted += best.tasks();
  }
  std::stable_sort(by_length.begin(), by_length.end(),
                   [&](std::size_t a, std::size_t b) { return remaining[a] < remaining[b]; });
  const double capacity = cluster.capacity().cpu / 2.0;  // tasks of two CPUs
  std::vector<double> shorter(active.size());
  double sum = 0;
  for (std::size_t i : by_length) shorter[i] = sum, sum += candidates[i].configurations->back().tasks();

  const double restart = cluster.options().restart_seconds / cluster.options().slot_seconds;
  const auto refresh = [&](std::size_t i) {
    Candidate& c = candidates[i];
    if (c.now + 1 >= c.configurations->size()) return;
    const auto& all = *c.configurations;
    const PsConfiguration &now = all[c.now], &next = all[c.now + 1], &best = all.back();
    const double top = cluster.speed(c.job, best.servers, best.workers);
    const double speed_now = cluster.speed(c.job, now.servers, now.workers) / top;
    const double speed_next = cluster.speed(c.job, next.servers, next.workers) / top;
    const auto& state = cluster.state(c.job);
    const int last = state.last_servers + state.last_workers;
    const double waited = cluster.slot() - cluster.job(c.job).arrival;
    const double slot_hours = cluster.options().slot_seconds / 1200.0;
    c.features = {log_of(remaining[i] * slot_hours),
                  log_of((speed_next - speed_now) / (next.tasks() - now.tasks())),
                  static_cast<float>(speed_now),
                  static_cast<float>(speed_next),
                  static_cast<float>(next.tasks()) / 16.0f,
                  log_of(wanted / capacity),
                  log_of(static_cast<double>(active.size())) / 3.0f,
                  c.now == 0 ? 1.0f : 0.0f,
                  log_of(1 + waited * slot_hours) / 3.0f,
                  static_cast<float>(cluster.remaining(c.job) / cluster.job(c.job).epochs),
                  next.tasks() <= last ? 1.0f : 0.0f,
                  next.tasks() == last ? static_cast<float>(restart) : 0.0f,
                  next.tasks() <= last ? static_cast<float>(restart) : 0.0f,
                  log_of(1 + shorter[i] / capacity),
                  static_cast<float>(speed_now > 0 ? std::log(speed_next / speed_now) : 2.0),
                  cluster.job(c.job).worker.gpu_slots > 0 ? 1.0f : 0.0f};
    c.score = score(c.features);
  };
  for (std::size_t i = 0; i < candidates.size(); ++i) refresh(i);

  PsDemand free = cluster.free();
  const auto extra = [&](const Candidate& c) {
    const PsConfiguration &now = (*c.configurations)[c.now], &next = (*c.configurations)[c.now + 1];
    const PsJob& job = cluster.job(c.job);
    const int workers = next.workers - now.workers, servers = next.servers - now.servers;
    return PsDemand{workers * job.worker.cpu + servers * job.server.cpu,
                    workers * job.worker.gpu_slots + servers * job.server.gpu_slots};
  };
  const auto fits = [&](const PsDemand& demand) {
    return demand.cpu <= free.cpu && demand.gpu_slots <= free.gpu_slots;
  };
  while (true) {
    std::size_t best = candidates.size();
    for (std::size_t i = 0; i < candidates.size(); ++i) {
      const Candidate& c = candidates[i];
      if (c.now + 1 >= c.configurations->size() || (best < candidates.size() && c.score <= candidates[best].score))
        continue;
      if (fits(extra(c))) best = i;
    }
    if (best == candidates.size()) break;
    if (choices_) {
      Choice choice;
      for (std::size_t i = 0; i < candidates.size(); ++i) {
        const Candidate& c = candidates[i];
        if (c.now + 1 >= c.configurations->size() || !fits(extra(c))) continue;
        if (i == best) choice.taken = choice.offered.size();
        choice.offered.push_back(c.features);
      }
      choices_->push_back(std::move(choice));
    }
    const PsDemand taken = extra(candidates[best]);
    free = {free.cpu - taken.cpu, free.gpu_slots - taken.gpu_slots};
    ++candidates[best].now;
    refresh(best);
  }
  place(cluster, candidates);
}

void StepPolicy::place(SlottedCluster& cluster, std::span<const Candidate> candidates) const {
  const auto wanted = [](const Candidate& c) { return (*c.configurations)[c.now]; };
  for (const bool with_gpus : {true, false})
    for (const Candidate& c : candidates) {
      const PsJob& job = cluster.job(c.job);
      if ((job.worker.gpu_slots > 0) == with_gpus)
        for (int i = 0; i < wanted(c).workers; ++i)
          if (!cluster.grant(c.job, Grant::kWorker, NodeChoice::kAnyThatFits)) break;
    }
  for (const Candidate& c : candidates)
    for (int i = 0; i < wanted(c).servers; ++i)
      if (!cluster.grant(c.job, Grant::kServer, NodeChoice::kAnyThatFits)) break;
}

namespace {

class ShortestStep final : public StepPolicy {
 public:
  explicit ShortestStep(double shortness) : shortness_(shortness) {}
  std::string name() const override { return "Shortest-step"; }

 protected:
  double score(const StepFeatures& features) override {
    return static_cast<double>(features[kLogDensity]) - shortness_ * static_cast<double>(features[kLogRemaining]);
  }

 private:
  double shortness_;
};

class Learned final : public StepPolicy {
 public:
  explicit Learned(Network network) : network_(std::move(network)) {
    if (network_.sizes.front() != kStepFeatures || network_.sizes.back() != 1)
      throw Error(ErrorKind::kBadInput, "policy", "its network has other inputs or outputs than this program's");
  }
  std::string name() const override { return "Learned"; }

 protected:
  double score(const StepFeatures& features) override {
    float output = 0;
    network_.run(features, {&output, 1}, scratch_);
    return static_cast<double>(output);
  }

 private:
  Network network_;
  std::vector<float> scratch_;
};

}  // namespace

std::unique_ptr<StepPolicy> make_ps_shortest_step(double shortness) {
  return std::make_unique<ShortestStep>(shortness);
}

std::unique_ptr<StepPolicy> make_ps_learned(Network network) {
  return std::make_unique<Learned>(std::move(network));
}

Network initial_step_network(double shortness, int hidden, std::uint64_t seed) {
  Network network;
  network.sizes = {kStepFeatures, hidden, 1};
  network.skip = true;
  network.parameters.assign(Network::parameter_count(network.sizes, true), 0.0f);
  base::Rng rng(seed);
  const auto inputs = static_cast<std::size_t>(kStepFeatures), units = static_cast<std::size_t>(hidden);
  for (std::size_t i = 0; i < inputs * units; ++i)
    network.parameters[i] = static_cast<float>(rng.normal(0.0, 1.0 / std::sqrt(kStepFeatures)));
  float* skip = network.parameters.data() + network.parameters.size() - inputs;
  skip[kLogDensity] = 1.0f;
  skip[kLogRemaining] = static_cast<float>(-shortness);
  return network;
}

}  // namespace paceline::schedule
