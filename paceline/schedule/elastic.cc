#include "paceline/schedule/elastic.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "paceline/base/error.h"

namespace paceline::schedule {
namespace {

void choose_batch(ElasticJob& job) {
  const BatchLimits limits = batch_limits(*job.application);
  const int nodes = static_cast<int>(job.placement.size());
  const int replicas = std::accumulate(job.placement.begin(), job.placement.end(), 0);
  int batch = job.target_batch;
  if (batch == 0 && !job.model) batch = std::max(limits.initial, limits.smallest_local * replicas);
  BatchChoice choice;
  if (batch == 0) {
    choice = best_batch(*job.model, job.noise, nodes, replicas, limits);
    choice.atomic_batch = std::min(choice.atomic_batch, limits.largest / (replicas * (choice.accumulation + 1)));
  } else {
    choice = fixed_batch(batch, replicas, limits);
  }
  job.atomic_batch = choice.atomic_batch;
  job.accumulation = choice.accumulation;
}

void observe(ElasticJob& job, int replicas, const Application::StepTime& time, Application::GradientNoise noise) {
  job.noise = noise;
  const int nodes = static_cast<int>(job.placement.size());
  const bool known = std::any_of(job.samples.begin(), job.samples.end(), [&](const StepSample& s) {
    return s.nodes == nodes && s.replicas == replicas && s.local_batch == job.atomic_batch;
  });
  if (known) return;
  job.samples.push_back({nodes, replicas, job.atomic_batch, time.step, time.step - time.sync});
  job.largest_profiled = std::max(job.largest_profiled, replicas);
  job.model = fit_step_model(job.samples);
}

/// Advances a placed job by `seconds` that start at `now`.
void run_job(ElasticJob& job, std::int64_t now, std::int64_t seconds, double interference) {
  if (job.placement.empty()) return;
  const int replicas = std::accumulate(job.placement.begin(), job.placement.end(), 0);
  const std::int64_t delay = std::min(job.restart_left, seconds);
  job.attained_service += delay * replicas;
  job.restart_left -= delay;
  seconds -= delay;
  now += delay;
  while (seconds > 0 && !job.completion) {
    const int batch = replicas * job.atomic_batch * (job.accumulation + 1);
    const double scale = static_cast<double>(batch) / job.application->initial_batch();
    const Application::StepTime time = job.application->step_time(job.placement, job.atomic_batch);
    const Application::GradientNoise noise = job.application->gradient_noise(batch, job.epoch);
    const double gain = (noise.variance + noise.squared) / (noise.variance / scale + noise.squared);
    if (job.learns) observe(job, replicas, time, noise);
    const double total = time.step + (time.step - time.sync) * job.accumulation;
    const double goodput = gain / total * (1.0 - interference);
    const double next_progress = job.application->progress_at(job.epoch + 1);
    const double reached = job.progress + goodput * static_cast<double>(seconds);
    std::int64_t used = seconds;
    if (reached < next_progress) {
      job.progress = reached;
    } else {
      // The published simulator counts whole seconds, rounded half to even.
      used = static_cast<std::int64_t>(std::nearbyint((next_progress - job.progress) / goodput));
      ++job.epoch;
      if (job.epoch > job.application->completion_epoch()) job.completion = now + used;
      job.progress = next_progress;
    }
    now += used;
    job.attained_service += used * replicas;
    seconds -= used;
    if (job.target_batch == 0) choose_batch(job);
  }
}

void reallocate(ElasticJob& job, const Allocation& allocation, std::int64_t restart_cost) {
  job.allocation = allocation;
  job.placement = placement_of(allocation);
  if (allocation.empty()) {
    job.atomic_batch = 0;
    return;
  }
  choose_batch(job);
  job.restart_left = restart_cost;
  ++job.restarts;
}

/// Nodes that more than one distributed job uses.
std::vector<bool> contended_nodes(std::span<const ElasticJob> jobs, std::size_t nodes) {
  std::vector<int> distributed(nodes, 0);
  for (const ElasticJob& job : jobs) {
    if (job.completion || job.placement.size() < 2) continue;
    for (std::uint16_t node : std::set<std::uint16_t>(job.allocation.begin(), job.allocation.end()))
      ++distributed[node];
  }
  std::vector<bool> contended(nodes);
  for (std::size_t i = 0; i < nodes; ++i) contended[i] = distributed[i] > 1;
  return contended;
}

void check_capacity(std::span<const Allocation> next, std::span<const int> node_gpus) {
  std::vector<int> used(node_gpus.size(), 0);
  for (const Allocation& allocation : next)
    for (std::uint16_t node : allocation) ++used[node];
  for (std::size_t i = 0; i < used.size(); ++i) PL_CHECK(used[i] <= node_gpus[i]);
}

}  // namespace

ElasticResult simulate_elastic(const Workload& workload, const Applications& applications, ElasticPolicy& policy,
                               const ElasticOptions& options) {
  ElasticResult result;
  const std::vector<int> node_gpus(static_cast<std::size_t>(options.nodes), options.gpus_per_node);
  std::vector<ElasticJob> jobs;
  for (const JobRequest& request : workload.jobs) {
    const std::string where = fmt::format("{}:{}", workload.name, request.line);
    const auto application = applications.find(request.application);
    if (application == applications.end()) {
      result.problems.push_back(
          {where, fmt::format("job {} has unknown application '{}'", request.name, request.application)});
      continue;
    }
    if (!policy.co_tunes_batch() && request.gpus > options.nodes * options.gpus_per_node) {
      result.problems.push_back({where, fmt::format("job {} asks for {} GPUs, the cluster has {}", request.name,
                                                    request.gpus, options.nodes * options.gpus_per_node)});
      continue;
    }
    ElasticJob job;
    job.request = &request;
    job.application = application->second.get();
    job.submit = request.submit.count() / 1'000'000'000;
    job.learns = policy.co_tunes_batch();
    job.target_batch = policy.co_tunes_batch() ? 0 : request.batch;
    // The published simulator keeps this application at one batch and one replica.
    if (policy.co_tunes_batch() && request.application == "ncf") job.target_batch = 32768;
    jobs.push_back(std::move(job));
  }

  std::vector<std::uint32_t> active;
  std::vector<Allocation> next;
  std::size_t unfinished = jobs.size();
  std::int64_t now = 0, allocated_seconds = 0;
  while (unfinished > 0) {
    if (now > options.give_up)
      throw Error(ErrorKind::kInfeasible, workload.name, fmt::format("{} jobs never finish", unfinished));
    const auto contended =
        options.interference > 0 ? contended_nodes(jobs, node_gpus.size()) : std::vector<bool>(node_gpus.size());
    for (ElasticJob& job : jobs) {
      if (job.completion || job.placement.empty()) continue;
      const bool slowed = job.placement.size() > 1 && std::any_of(job.allocation.begin(), job.allocation.end(),
                                                                  [&](std::uint16_t node) { return contended[node]; });
      run_job(job, now, options.slot, slowed ? options.interference : 0.0);
      if (job.completion) {
        allocated_seconds += job.attained_service;
        result.makespan = std::max(result.makespan, *job.completion);
        --unfinished;
      }
    }
    now += options.slot;

    active.clear();
    for (std::uint32_t i = 0; i < jobs.size(); ++i)
      if (jobs[i].submit <= now && !jobs[i].completion) active.push_back(i);
    if (active.empty()) continue;
    next.assign(active.size(), {});
    for (std::size_t i = 0; i < active.size(); ++i) next[i] = jobs[active[i]].allocation;
    policy.decide({now, node_gpus, jobs, active}, next);
    check_capacity(next, node_gpus);
    for (std::size_t i = 0; i < active.size(); ++i) {
      ElasticJob& job = jobs[active[i]];
      if (next[i] == job.allocation) continue;
      reallocate(job, next[i], options.restart_cost);
      result.timeline.push_back({now, active[i], next[i]});
    }
  }

  double sum = 0;
  for (const ElasticJob& job : jobs) {
    result.jobs.push_back(
        {job.request->name, job.submit, job.completion, std::max(job.restarts, 0), job.attained_service});
    sum += static_cast<double>(*job.completion - job.submit);
  }
  if (!jobs.empty()) result.average_completion_time = sum / static_cast<double>(jobs.size());
  if (result.makespan > 0)
    result.utilisation = static_cast<double>(allocated_seconds) /
                         (static_cast<double>(result.makespan) * options.nodes * options.gpus_per_node);
  return result;
}

}  // namespace paceline::schedule
