// Pollux (OSDI'21): a genetic search for the allocation with the best power mean of speed-ups.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <unordered_map>

#include "paceline/base/rng.h"
#include "paceline/schedule/elastic.h"

namespace paceline::schedule {
namespace {

constexpr int kMostNodesOfAJob = 16;  // nothing was measured beyond
constexpr int kMostReplicas = 64;
constexpr double kFloor = 1e-3;  // keeps the power mean of waiting jobs finite

using Genome = std::vector<std::uint8_t>;  // replicas by [job][node]

struct Individual {
  Genome genome;
  double fitness = 0;  // more is better
};

/// What the search knows of one job.
struct Candidate {
  const ElasticJob* job = nullptr;
  std::uint32_t id = 0;
  int most_replicas = 1;
  double restart_factor = 1;
  std::vector<double> speedup;  // by [nodes][replicas], -1 unknown
};

class PolluxSearch {
 public:
  PolluxSearch(std::vector<Candidate> jobs, std::span<const int> node_gpus, const Genome& base, base::Rng& rng)
      : jobs_(std::move(jobs)), node_gpus_(node_gpus), nodes_(node_gpus.size()), base_(base), rng_(rng) {
    const int gpus = std::accumulate(node_gpus.begin(), node_gpus.end(), 0);
    fair_replicas_ = (gpus + static_cast<int>(jobs_.size()) - 1) / static_cast<int>(jobs_.size());
    share_ = static_cast<double>(nodes_) / gpus;
    for (Candidate& job : jobs_) job.speedup.assign((kMostNodesOfAJob + 1) * (kMostReplicas + 1), -1.0);
  }

  void run(std::vector<Individual>& population, int size, int generations) {
    for (Individual& individual : population) repair(individual.genome), evaluate(individual);
    if (population.empty()) population.push_back({base_, 0}), evaluate(population.back());
    for (int generation = 0; generation < generations; ++generation) {
      const std::size_t parents = population.size();
      const auto pick = [&]() -> const Genome& {
        const std::size_t a = rng_.below(parents), b = rng_.below(parents);
        return population[population[a].fitness >= population[b].fitness ? a : b].genome;
      };
      std::vector<Individual> children;
      while (static_cast<int>(children.size()) < size) {
        Genome child = pick();
        const Genome& other = pick();
        const std::size_t point = rng_.below(jobs_.size()) * nodes_;
        std::copy(other.begin(), other.begin() + static_cast<std::ptrdiff_t>(point), child.begin());
        mutate(child);
        repair(child);
        children.push_back({std::move(child), 0});
        evaluate(children.back());
      }
      std::move(children.begin(), children.end(), std::back_inserter(population));
      std::stable_sort(population.begin(), population.end(),
                       [](const Individual& a, const Individual& b) { return a.fitness > b.fitness; });
      const auto same = [](const Individual& a, const Individual& b) {
        return a.fitness == b.fitness && a.genome == b.genome;
      };
      population.erase(std::unique(population.begin(), population.end(), same), population.end());
      if (static_cast<int>(population.size()) > size) population.resize(static_cast<std::size_t>(size));
    }
  }

 private:
  void mutate(Genome& genome) {
    std::vector<int> free(node_gpus_.begin(), node_gpus_.end());
    for (std::size_t j = 0; j < jobs_.size(); ++j) {
      std::uint8_t* row = genome.data() + j * nodes_;
      if (rng_.chance(0.1)) std::copy_n(base_.data() + j * nodes_, nodes_, row);
      if (rng_.chance(0.1))
        for (std::size_t n = 0; n < nodes_; ++n)
          if (row[n] && rng_.chance(0.1)) row[n] = 0;
      for (std::size_t n = 0; n < nodes_; ++n) free[n] -= row[n];
    }
    // On every node with room one job on average changes its count, and one of those already there.
    for (std::size_t n = 0; n < nodes_; ++n) {
      if (free[n] <= 0) continue;
      change(genome, rng_.below(jobs_.size()), n);
      std::uint64_t here = 0;
      for (std::size_t j = 0; j < jobs_.size(); ++j) here += genome[j * nodes_ + n] > 0;
      if (here == 0) continue;
      std::uint64_t chosen = rng_.below(here);
      for (std::size_t j = 0; j < jobs_.size(); ++j)
        if (genome[j * nodes_ + n] > 0 && chosen-- == 0) {
          change(genome, j, n);
          break;
        }
    }
  }

  void change(Genome& genome, std::size_t job, std::size_t node) {
    std::uint8_t& count = genome[job * nodes_ + node];
    count = static_cast<std::uint8_t>(rng_.between(count, node_gpus_[node]));
  }

  /// One distributed job a node (the first in job order), at most its replicas and nodes, no node beyond its GPUs.
  void repair(Genome& genome) {
    std::vector<int> free(node_gpus_.begin(), node_gpus_.end());
    std::vector<bool> taken(nodes_, false);
    std::vector<std::size_t> order(nodes_);
    for (std::size_t j = 0; j < jobs_.size(); ++j) {
      std::uint8_t* row = genome.data() + j * nodes_;
      const auto used = static_cast<std::size_t>(std::count_if(row, row + nodes_, [](int c) { return c > 0; }));
      if (used == 0) continue;
      const bool distributed = used > 1;
      // Which nodes are kept when there are too many is random.
      std::iota(order.begin(), order.end(), std::size_t{0});
      int total = 0;
      for (std::size_t n = 0; n < nodes_; ++n) total += row[n];
      if (total > jobs_[j].most_replicas) rng_.shuffle(std::span<std::size_t>(order));
      int left = jobs_[j].most_replicas;
      for (std::size_t n : order) {
        if (row[n] == 0) continue;
        int count = row[n];
        if (distributed) {
          if (taken[n]) count = 0;
          taken[n] = true;
        }
        count = std::min({count, left, free[n]});
        left -= count;
        free[n] -= count;
        row[n] = static_cast<std::uint8_t>(count);
      }
    }
  }

  double speedup(Candidate& candidate, int nodes, int replicas) {
    if (replicas == 0) return 0;
    double& known = candidate.speedup[static_cast<std::size_t>(nodes * (kMostReplicas + 1) + replicas)];
    if (known >= 0) return known;
    const ElasticJob& job = *candidate.job;
    if (!job.model) return known = static_cast<double>(replicas) / fair_replicas_;
    const BatchLimits limits = batch_limits(*job.application);
    const auto goodput = [&](int n, int r) { return best_batch(*job.model, job.noise, n, r, limits).goodput; };
    return known = goodput(nodes, replicas) / goodput(1, fair_replicas_);
  }

  void evaluate(Individual& individual) {
    double sum = 0;
    for (std::size_t j = 0; j < jobs_.size(); ++j) {
      const std::uint8_t* row = individual.genome.data() + j * nodes_;
      int nodes = 0, replicas = 0;
      for (std::size_t n = 0; n < nodes_; ++n) nodes += row[n] > 0, replicas += row[n];
      double value = speedup(jobs_[j], nodes, replicas) * share_;
      if (!std::equal(row, row + nodes_, base_.data() + j * nodes_)) value *= jobs_[j].restart_factor;
      sum += 1.0 / (value + kFloor);
    }
    individual.fitness = static_cast<double>(jobs_.size()) / sum;
  }

  std::vector<Candidate> jobs_;
  std::span<const int> node_gpus_;
  std::size_t nodes_;
  const Genome& base_;
  base::Rng& rng_;
  int fair_replicas_ = 1;
  double share_ = 1;
};

class Pollux final : public ElasticPolicy {
 public:
  explicit Pollux(PolluxOptions options) : options_(options), rng_(options.seed) {}
  std::string name() const override { return "Pollux"; }
  bool co_tunes_batch() const override { return true; }

  void decide(const ElasticView& view, std::vector<Allocation>& next) override {
    const std::size_t nodes = view.node_gpus.size();
    // Jobs with least service first: they win conflicts in the repair.
    std::vector<std::size_t> order(view.active.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      const ElasticJob &x = view.jobs[view.active[a]], &y = view.jobs[view.active[b]];
      return std::tie(x.attained_service, x.submit) < std::tie(y.attained_service, y.submit);
    });
    std::vector<Candidate> candidates;
    Genome base(order.size() * nodes, 0);
    for (std::size_t j = 0; j < order.size(); ++j) {
      const std::uint32_t id = view.active[order[j]];
      candidates.push_back(candidate(view, id));
      for (std::uint16_t node : next[order[j]]) ++base[j * nodes + node];
    }
    // The last population, its rows moved to where the jobs are now.
    std::unordered_map<std::uint32_t, std::size_t> before;
    for (std::size_t j = 0; j < ids_.size(); ++j) before[ids_[j]] = j;
    for (Individual& individual : population_) {
      Genome moved(order.size() * nodes, 0);
      for (std::size_t j = 0; j < order.size(); ++j)
        if (const auto at = before.find(candidates[j].id); at != before.end())
          std::copy_n(individual.genome.data() + at->second * nodes, nodes, moved.data() + j * nodes);
      individual.genome = std::move(moved);
    }
    population_.push_back({base, 0});
    ids_.clear();
    for (const Candidate& c : candidates) ids_.push_back(c.id);
    PolluxSearch(std::move(candidates), view.node_gpus, base, rng_)
        .run(population_, options_.population, options_.generations);
    const Genome& best = population_.front().genome;
    for (std::size_t j = 0; j < order.size(); ++j) {
      const std::uint8_t* row = best.data() + j * nodes;
      // An allocation that stays the same must stay in the same order, else it would restart.
      if (std::equal(row, row + nodes, base.data() + j * nodes)) continue;
      Allocation& allocation = next[order[j]];
      allocation.clear();
      for (std::size_t n = 0; n < nodes; ++n)
        allocation.insert(allocation.end(), row[n], static_cast<std::uint16_t>(n));
    }
  }

 private:
  static Candidate candidate(const ElasticView& view, std::uint32_t id) {
    const ElasticJob& job = view.jobs[id];
    Candidate c;
    c.job = &job;
    c.id = id;
    c.most_replicas = std::min({std::max(2 * job.largest_profiled, 1), kMostReplicas,
                                job.application->max_batch() / job.application->min_local_batch()});
    if (job.target_batch > 0) c.most_replicas = 1;
    const double age = static_cast<double>(view.now - job.submit);
    c.restart_factor = std::max(age - 30.0 * std::max(job.restarts, 0), 0.0) / (age + 30.0);
    return c;
  }

  PolluxOptions options_;
  base::Rng rng_;
  std::vector<Individual> population_;
  std::vector<std::uint32_t> ids_;
};

}  // namespace

std::unique_ptr<ElasticPolicy> make_pollux(PolluxOptions options) {
  return std::make_unique<Pollux>(options);
}

}  // namespace paceline::schedule
