#include "paceline/schedule/compare.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>

#include "paceline/base/error.h"
#include "paceline/base/statistics.h"
#include "paceline/base/table.h"
#include "paceline/schedule/elastic.h"
#include "paceline/schedule/learned.h"
#include "paceline/schedule/rigid.h"
#include "paceline/schedule/slotted.h"
#include "paceline/schedule/workload.h"

namespace paceline::schedule {
namespace {

constexpr int kMostPsTasks = 16;
constexpr double kPsSlot = 1200;  // seconds, of DL2's traces

template <class Policy>
using Makers = std::vector<std::pair<std::string, std::function<std::unique_ptr<Policy>(const CompareOptions&)>>>;

const Makers<ElasticPolicy>& elastic_makers() {
  static const Makers<ElasticPolicy> makers{
      {"Tiresias", [](const CompareOptions&) { return make_tiresias(); }},
      {"Optimus", [](const CompareOptions&) { return make_elastic_optimus(); }},
      {"Pollux", [](const CompareOptions& options) { return make_pollux({.seed = options.seed}); }},
      {"Paceline", [](const CompareOptions&) { return make_shortest_goodput(); }}};
  return makers;
}

const Makers<SlottedPolicy>& slotted_makers() {
  using Options = const CompareOptions&;
  static const Makers<SlottedPolicy> makers{
      {"FIFO", [](Options) { return make_ps_fifo(MisfitRule::kStop); }},
      {"FIFO-repaired", [](Options) { return make_ps_fifo(MisfitRule::kGoOn); }},
      {"SRTF", [](Options) { return make_ps_srtf(MisfitRule::kStop); }},
      {"SRTF-repaired", [](Options) { return make_ps_srtf(MisfitRule::kGoOn); }},
      {"DRF", [](Options) { return make_ps_drf(MisfitRule::kStop); }},
      {"DRF-repaired", [](Options) { return make_ps_drf(MisfitRule::kGoOn); }},
      {"Optimus", [](Options) { return make_ps_optimus(MisfitRule::kStop); }},
      {"Optimus-repaired", [](Options) { return make_ps_optimus(MisfitRule::kGoOn); }},
      {"Optimus-search", [](Options) { return make_ps_optimus_search(); }},
      {"Shortest-step", [](Options) { return make_ps_shortest_step(); }},
      {"Learned", [](Options options) -> std::unique_ptr<SlottedPolicy> {
         if (options.learned.empty())
           throw Error(ErrorKind::kUsage, "--learned",
                       "the policy Learned needs a network; train one with schedule learn");
         return make_ps_learned(network_from_json(
             base::read_json_file(options.learned, "schedule-policy", 1).at("network"), options.learned.string()));
       }}};
  return makers;
}

template <class Policy>
std::unique_ptr<Policy> make(const Makers<Policy>& makers, const std::string& name, const CompareOptions& options) {
  std::vector<std::string> known;
  for (const auto& [policy, maker] : makers) {
    if (policy == name) return maker(options);
    known.push_back(policy);
  }
  throw Error(ErrorKind::kUsage, "--policy",
              fmt::format("'{}' is no policy of this workload's simulator; it knows {}", name, fmt::join(known, ", ")));
}

void summarise(PolicyResult& result) {
  std::vector<double> times;
  for (const auto& [job, time] : result.completion_times) times.push_back(time);
  if (times.empty()) return;
  result.average = base::mean(times);
  result.median = base::median(times);
  result.p90 = base::quantile(times, 0.9);
  result.p99 = base::quantile(times, 0.99);
}

std::vector<std::string> chosen(const CompareOptions& options, const std::string& simulator) {
  if (!options.policies.empty()) return options.policies;
  std::vector<std::string> names = policy_names(simulator);
  std::erase_if(names, [&](const std::string& name) { return name == "Learned" && options.learned.empty(); });
  return names;
}

double seconds(base::Nanos time) {
  return 1e-9 * static_cast<double>(time.count());
}

void run_elastic(const CompareOptions& options, const std::filesystem::path& path, const Applications& applications,
                 std::vector<PolicyResult>& results) {
  const Workload workload = read_pollux_workload(path);
  ElasticOptions elastic;
  if (options.nodes > 0) elastic.nodes = options.nodes;
  if (options.gpus_per_node > 0) elastic.gpus_per_node = options.gpus_per_node;
  if (options.slot_seconds > 0) elastic.slot = static_cast<std::int64_t>(options.slot_seconds);
  if (options.restart_seconds >= 0) elastic.restart_cost = static_cast<std::int64_t>(options.restart_seconds);
  elastic.interference = options.interference;
  for (const std::string& name : chosen(options, "elastic")) {
    const auto policy = make(elastic_makers(), name, options);
    const ElasticResult run = simulate_elastic(workload, applications, *policy, elastic);
    PolicyResult result{.workload = path.string(), .policy = name};
    result.problems = workload.problems;
    result.problems.insert(result.problems.end(), run.problems.begin(), run.problems.end());
    double restarts = 0;
    for (const JobOutcome& job : run.jobs) {
      restarts += job.restarts;
      if (job.completion)
        result.completion_times.push_back({job.name, static_cast<double>(*job.completion - job.submit)});
    }
    summarise(result);
    result.makespan = static_cast<double>(run.makespan);
    result.utilisation = run.utilisation;
    result.slot_seconds = static_cast<double>(elastic.slot);
    if (!run.jobs.empty()) result.restarts_per_job = restarts / static_cast<double>(run.jobs.size());
    if (options.timeline)
      for (const auto& change : run.timeline)
        result.timeline.push_back({static_cast<double>(change.time),
                                   run.jobs[change.job].name,
                                   {change.allocation.begin(), change.allocation.end()}});
    results.push_back(std::move(result));
  }
}

void run_slotted(const CompareOptions& options, const std::filesystem::path& path, const PsSpeedTable& speeds,
                 std::vector<PolicyResult>& results) {
  const PsTrace trace = read_ps_trace(path);
  SlottedOptions slotted;
  if (options.nodes > 0) slotted.nodes = options.nodes;
  if (options.slot_seconds > 0) {
    slotted.slot_seconds = options.slot_seconds;
    slotted.slots_per_arrival = std::max(1, static_cast<int>(kPsSlot / options.slot_seconds + 0.5));
  }
  if (options.restart_seconds >= 0) slotted.restart_seconds = options.restart_seconds;
  for (const std::string& name : chosen(options, "slotted")) {
    const auto policy = make(slotted_makers(), name, options);
    PolicyResult result{.workload = path.string(), .policy = name};
    result.problems = trace.problems;
    result.slot_seconds = slotted.slot_seconds;
    try {
      const SlottedResult run = simulate_slotted(trace, speeds, *policy, slotted);
      for (std::size_t i = 0; i < run.completion_times.size(); ++i)
        result.completion_times.push_back(
            {std::to_string(trace.jobs[i].id), run.completion_times[i] * slotted.slot_seconds});
      result.makespan = run.makespan * slotted.slot_seconds;
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kInfeasible) throw;
      result.problems.push_back({path.string(), name + ": " + error.what()});
    }
    summarise(result);
    results.push_back(std::move(result));
  }
}

void run_rigid(const CompareOptions& options, const std::filesystem::path& path, std::vector<PolicyResult>& results) {
  const Workload workload = read_workload(path);
  RigidOptions rigid;
  rigid.cluster.nodes = options.nodes > 0 ? options.nodes : 1;
  if (options.gpus_per_node > 0) rigid.cluster.gpus_per_node = options.gpus_per_node;
  if (options.nodes == 0)
    throw Error(ErrorKind::kUsage, "--nodes", "this workload names no cluster; say how many nodes it has");
  for (const std::string& name : chosen(options, "rigid")) {
    const auto rule = find_queue_rule(name);
    if (!rule)
      throw Error(ErrorKind::kUsage, "--policy",
                  fmt::format("'{}' is no policy of this workload's simulator; it knows {}", name,
                              fmt::join(policy_names("rigid"), ", ")));
    const base::Nanos begin = workload.jobs.empty() ? base::Nanos(0) : workload.jobs.front().submit;
    const RigidResult run = simulate_rigid(workload, *rule, rigid, {}, begin);
    PolicyResult result{.workload = path.string(), .policy = name};
    result.problems = workload.problems;
    result.problems.insert(result.problems.end(), run.problems.begin(), run.problems.end());
    for (std::size_t i = 0; i < run.runs.size(); ++i) {
      if (run.runs[i].start.count() < 0) continue;
      result.completion_times.push_back({workload.jobs[i].name, seconds(run.runs[i].end - workload.jobs[i].submit)});
      result.makespan = std::max(result.makespan, seconds(run.runs[i].end - begin));
    }
    summarise(result);
    result.average_wait = summarise_waits(workload, run.runs).mean;
    result.utilisation = run.utilisation;
    results.push_back(std::move(result));
  }
}

}  // namespace

std::vector<std::string> policy_names(const std::string& simulator) {
  std::vector<std::string> names;
  if (simulator == "elastic")
    for (const auto& [name, maker] : elastic_makers()) names.push_back(name);
  else if (simulator == "slotted")
    for (const auto& [name, maker] : slotted_makers()) names.push_back(name);
  else
    for (const QueueRule rule : {QueueRule::kFifo, QueueRule::kFirstFit, QueueRule::kBackfill,
                                 QueueRule::kShortestFirst, QueueRule::kFairShare})
      names.push_back(name_of(rule));
  return names;
}

std::vector<PolicyResult> compare_policies(const CompareOptions& options) {
  std::vector<PolicyResult> results;
  std::optional<Applications> applications;
  std::optional<PsSpeedTable> speeds;
  const auto need_profiles = [&](const char* what) {
    if (options.profiles.empty())
      throw Error(ErrorKind::kUsage, "--profiles", fmt::format("this workload needs {}", what));
  };
  for (const auto& path : options.workloads) {
    switch (sniff_workload(path)) {
      case WorkloadFormat::kPollux:
        if (!applications) {
          need_profiles("the folder with one profile folder for each application");
          applications = read_pollux_applications(options.profiles);
        }
        run_elastic(options, path, *applications, results);
        break;
      case WorkloadFormat::kPsTrace:
        if (!speeds) {
          need_profiles("the table of measured speeds (config_speed.txt)");
          speeds.emplace(read_ps_speeds(options.profiles), kMostPsTasks);
        }
        run_slotted(options, path, *speeds, results);
        break;
      default:
        run_rigid(options, path, results);
    }
  }
  return results;
}

base::Json to_json(const std::vector<PolicyResult>& results) {
  base::Json json = base::make_result("schedule-simulation", 1);
  std::map<std::string, std::vector<double>> averages;
  for (const PolicyResult& result : results) averages[result.policy].push_back(result.average);
  for (const auto& [policy, values] : averages) json["mean_completion_s"][policy] = base::mean(values);
  for (const PolicyResult& result : results) {
    base::Json one;
    one["workload"] = result.workload;
    one["policy"] = result.policy;
    one["jobs"] = result.completion_times.size();
    one["average_completion_s"] = result.average;
    one["median_completion_s"] = result.median;
    one["p90_completion_s"] = result.p90;
    one["p99_completion_s"] = result.p99;
    one["average_wait_s"] = result.average_wait;
    one["makespan_s"] = result.makespan;
    one["utilisation"] = result.utilisation;
    one["restarts_per_job"] = result.restarts_per_job;
    if (result.slot_seconds > 0) one["slot_s"] = result.slot_seconds;
    for (const Problem& problem : result.problems)
      one["problems"].push_back({{"where", problem.where}, {"what", problem.what}});
    for (const auto& change : result.timeline)
      one["timeline"].push_back({{"time_s", change.time}, {"job", change.job}, {"nodes", change.nodes}});
    json["results"].push_back(std::move(one));
  }
  return json;
}

std::string to_text(const std::vector<PolicyResult>& results) {
  struct Mean {
    std::vector<double> average, p90, p99, makespan, utilisation, restarts;
  };
  std::map<std::string, Mean> means;
  for (const PolicyResult& result : results) {
    if (result.completion_times.empty()) continue;
    Mean& mean = means[result.policy];
    mean.average.push_back(result.average), mean.p90.push_back(result.p90), mean.p99.push_back(result.p99);
    mean.makespan.push_back(result.makespan), mean.utilisation.push_back(result.utilisation);
    mean.restarts.push_back(result.restarts_per_job);
  }
  std::vector<std::pair<std::string, Mean>> order(means.begin(), means.end());
  std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
    return base::mean(a.second.average) < base::mean(b.second.average);
  });
  base::Table table;
  table.add_column("policy", base::Table::Align::kLeft);
  for (const char* title : {"workloads", "average JCT s", "p90 s", "p99 s", "makespan s", "used", "restarts/job"})
    table.add_column(title);
  for (const auto& [policy, mean] : order)
    table.add_row({policy, std::to_string(mean.average.size()), fmt::format("{:.2f}", base::mean(mean.average)),
                   fmt::format("{:.0f}", base::mean(mean.p90)), fmt::format("{:.0f}", base::mean(mean.p99)),
                   fmt::format("{:.0f}", base::mean(mean.makespan)),
                   base::mean(mean.utilisation) > 0 ? fmt::format("{:.1f} %", 100 * base::mean(mean.utilisation)) : "-",
                   fmt::format("{:.2f}", base::mean(mean.restarts))});
  std::string text = table.to_string();
  std::vector<std::string> seen;
  for (const PolicyResult& result : results)
    for (const Problem& problem : result.problems) {
      std::string line = fmt::format("  left out: {}: {}\n", problem.where, problem.what);
      if (std::find(seen.begin(), seen.end(), line) == seen.end()) text += line, seen.push_back(std::move(line));
    }
  return text;
}

}  // namespace paceline::schedule
