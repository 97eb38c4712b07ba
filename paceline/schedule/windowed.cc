#include "paceline/schedule/windowed.h"

#include <algorithm>
#include <cmath>

#include "paceline/base/error.h"
#include "paceline/base/rng.h"

namespace paceline::schedule {
namespace {

constexpr int kRows = 6;

class Windowed final : public SlottedPolicy {
 public:
  Windowed(Network network, int window, bool sample, std::uint64_t seed)
      : network_(std::move(network)), window_(window), sample_(sample), rng_(seed) {
    if (network_.sizes.front() != kRows * window || network_.sizes.back() != 3 * window + 1)
      throw Error(ErrorKind::kBadInput, "policy", "its network was made for another window");
  }
  std::string name() const override { return "DL2"; }

  void allocate(SlottedCluster& cluster) override {
    for (const std::uint32_t job : cluster.active())
      if (!cluster.grant(job, Grant::kBundle, NodeChoice::kLeastUsedOnly)) return;
    const auto close = static_cast<std::size_t>(3 * window_);
    while (true) {
      const auto jobs = window_jobs(cluster, window_);
      if (jobs.empty()) return;
      const std::size_t action = choose(window_state(cluster, jobs, window_), window_mask(cluster, jobs, window_));
      if (action == close) return;
      if (!cluster.grant(jobs[action / 3], static_cast<Grant>(action % 3), NodeChoice::kLeastUsedOnly)) return;
    }
  }

 private:
  std::size_t choose(const std::vector<float>& state, const std::vector<bool>& open) {
    std::vector<float> logits(open.size());
    network_.run(state, logits, scratch_);
    float top = -1e30f;
    std::size_t best = open.size() - 1;
    for (std::size_t a = 0; a < open.size(); ++a)
      if (open[a] && logits[a] > top) top = logits[a], best = a;
    if (!sample_) return best;
    double sum = 0;
    for (std::size_t a = 0; a < open.size(); ++a)
      if (open[a]) sum += std::exp(static_cast<double>(logits[a] - top));
    double draw = rng_.uniform() * sum;
    for (std::size_t a = 0; a < open.size(); ++a) {
      if (!open[a]) continue;
      draw -= std::exp(static_cast<double>(logits[a] - top));
      if (draw < 0) return a;
    }
    return best;
  }

  Network network_;
  int window_;
  bool sample_;
  base::Rng rng_;
  std::vector<float> scratch_;
};

}  // namespace

std::vector<std::uint32_t> window_jobs(const SlottedCluster& cluster, int window) {
  std::vector<std::uint32_t> jobs;
  for (const std::uint32_t job : cluster.active()) {
    const auto& state = cluster.state(job);
    if (state.workers >= cluster.most_tasks() && state.servers >= cluster.most_tasks()) continue;
    jobs.push_back(job);
    if (static_cast<int>(jobs.size()) == window) break;
  }
  return jobs;
}

std::vector<float> window_state(const SlottedCluster& cluster, std::span<const std::uint32_t> jobs, int window) {
  const auto columns = static_cast<std::size_t>(window);
  std::vector<float> matrix(kRows * columns, 0.0f);
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    const auto& state = cluster.state(jobs[i]);
    const PsJob& job = cluster.job(jobs[i]);
    const std::array<double, kRows> column{
        static_cast<double>(job.type),           static_cast<double>(cluster.slot() - job.arrival),
        cluster.remaining(jobs[i]) / job.epochs, state.share,
        static_cast<double>(state.workers),      static_cast<double>(state.servers)};
    for (std::size_t row = 0; row < kRows; ++row) matrix[row * columns + i] = static_cast<float>(column[row]);
  }
  return matrix;
}

std::optional<int> window_action(std::span<const std::uint32_t> jobs, std::uint32_t job, Grant grant) {
  const auto at = std::find(jobs.begin(), jobs.end(), job);
  if (at == jobs.end()) return std::nullopt;
  return 3 * static_cast<int>(at - jobs.begin()) + static_cast<int>(grant);
}

std::vector<bool> window_mask(const SlottedCluster& cluster, std::span<const std::uint32_t> jobs, int window) {
  std::vector<bool> open(static_cast<std::size_t>(3 * window) + 1, false);
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    const auto& state = cluster.state(jobs[i]);
    const bool worker = state.workers < cluster.most_tasks(), server = state.servers < cluster.most_tasks();
    open[3 * i] = worker, open[3 * i + 1] = server, open[3 * i + 2] = worker && server;
  }
  open.back() = true;
  return open;
}

std::unique_ptr<SlottedPolicy> make_ps_windowed(Network network, int window, bool sample, std::uint64_t seed) {
  return std::make_unique<Windowed>(std::move(network), window, sample, seed);
}

}  // namespace paceline::schedule
