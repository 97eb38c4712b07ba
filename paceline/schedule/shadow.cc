#include "paceline/schedule/shadow.h"

#include <fmt/core.h>

#include <limits>

#include "paceline/base/error.h"

namespace paceline::schedule {
namespace {

class Shadowed final : public SlottedPolicy {
 public:
  Shadowed(std::unique_ptr<SlottedPolicy> incumbent, std::unique_ptr<SlottedPolicy> candidate,
           const PsSpeedTable& speeds, ShadowOptions options, std::vector<ShadowDecision>& log)
      : incumbent_(std::move(incumbent)),
        candidate_(std::move(candidate)),
        speeds_(&speeds),
        options_(options),
        log_(&log) {}

  std::string name() const override { return fmt::format("{} guarded by {}", candidate_->name(), incumbent_->name()); }

  void allocate(SlottedCluster& cluster) override {
    for (const std::uint32_t job : cluster.active())
      if (job >= seen_.size()) seen_.push_back({job, cluster.slot(), cluster.remaining(job)});
    if (cluster.slot() >= last_look_ + options_.every) look(cluster);
    (candidate_decides_ ? *candidate_ : *incumbent_).allocate(cluster);
  }

 private:
  struct Seen {
    std::uint32_t job;
    int slot;
    double remaining;  // epochs, then
  };

  void look(const SlottedCluster& cluster) {
    PsTrace past{"recent", {}, {}};
    for (const Seen& seen : seen_) {
      if (seen.remaining <= 0) continue;  // done before the last look
      PsJob job = cluster.job(seen.job);
      job.arrival = std::max(0, seen.slot - std::max(0, last_look_));
      job.epochs = seen.remaining;
      past.jobs.push_back(std::move(job));
    }
    if (!past.jobs.empty()) {
      ShadowDecision decision{cluster.slot(), static_cast<int>(past.jobs.size()),
                              replay(past, *incumbent_, cluster.options()),
                              replay(past, *candidate_, cluster.options()), false};
      decision.candidate_decides =
          !options_.only_watch && decision.candidate < decision.incumbent * (1 - options_.margin);
      candidate_decides_ = decision.candidate_decides;
      log_->push_back(decision);
    }
    last_look_ = cluster.slot();
    for (Seen& seen : seen_)
      seen = {seen.job, cluster.slot(), cluster.state(seen.job).completion_time ? 0 : cluster.remaining(seen.job)};
  }

  /// Infinite for a policy under which some job never ends.
  double replay(const PsTrace& past, SlottedPolicy& policy, SlottedOptions options) const {
    constexpr int kFar = 20000;  // slots
    options.slots_per_arrival = 1;
    options.give_up = kFar;
    try {
      return simulate_slotted(past, *speeds_, policy, options).average_completion_time;
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kInfeasible) throw;
      return std::numeric_limits<double>::infinity();
    }
  }

  std::unique_ptr<SlottedPolicy> incumbent_, candidate_;
  const PsSpeedTable* speeds_;
  ShadowOptions options_;
  std::vector<ShadowDecision>* log_;
  std::vector<Seen> seen_;  // by job: jobs are numbered in order of arrival
  int last_look_ = 0;
  bool candidate_decides_ = false;
};

}  // namespace

std::unique_ptr<SlottedPolicy> make_ps_shadowed(std::unique_ptr<SlottedPolicy> incumbent,
                                                std::unique_ptr<SlottedPolicy> candidate, const PsSpeedTable& speeds,
                                                ShadowOptions options, std::vector<ShadowDecision>& log) {
  return std::make_unique<Shadowed>(std::move(incumbent), std::move(candidate), speeds, options, log);
}

}  // namespace paceline::schedule
