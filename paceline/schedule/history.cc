#include "paceline/schedule/history.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numbers>
#include <numeric>

#include "paceline/base/error.h"
#include "paceline/base/rng.h"
#include "paceline/base/statistics.h"
#include "paceline/base/table.h"

namespace paceline::schedule {
namespace {

using base::Nanos;

constexpr std::int64_t kSecond = 1'000'000'000;

Nanos whole_seconds(double seconds) {
  return Nanos(static_cast<std::int64_t>(seconds) * kSecond);
}

double seconds(Nanos time) {
  return 1e-9 * static_cast<double>(time.count());
}

Nanos limit_of(const JobRequest& job) {
  return job.limit.count() > 0 ? job.limit : job.duration;
}

/// A run time for a job with this limit that has run for `elapsed`: the share of one of the jobs with the nearest
/// limits that ran longer than that.
Nanos draw_run_time(std::span<const LimitShare> shares, Nanos limit, Nanos elapsed, base::Rng& rng) {
  constexpr std::ptrdiff_t kNeighbours = 100;  // on each side
  const double least =
      static_cast<double>(elapsed.count()) / static_cast<double>(std::max<std::int64_t>(1, limit.count()));
  const auto middle = std::lower_bound(shares.begin(), shares.end(), limit,
                                       [](const LimitShare& share, Nanos value) { return share.limit < value; });
  const auto from = middle - std::min<std::ptrdiff_t>(kNeighbours, middle - shares.begin());
  const auto to = middle + std::min<std::ptrdiff_t>(kNeighbours, shares.end() - middle);
  std::vector<double> longer;
  for (auto share = from; share != to; ++share)
    if (share->share > least) longer.push_back(share->share);
  const double share = longer.empty() ? std::max(1.0, least) : longer[rng.below(longer.size())];
  return Nanos(static_cast<std::int64_t>(share * static_cast<double>(limit.count())));
}

}  // namespace

Workload generate_history(const HistoryGenerator& generator) {
  base::Rng rng(generator.seed);
  Workload workload{fmt::format("generated-{}", generator.seed), {}, {}};
  const Nanos begin = *parse_timestamp("2025-01-01T00:00:00");
  constexpr std::array<int, 10> kGpus{1, 1, 1, 1, 2, 2, 4, 4, 8, 16};
  constexpr double kMeanLog = 7.6, kSpread = 1.3;  // log seconds: median 33 min, mean 78 min
  const double mean_gpus = std::accumulate(kGpus.begin(), kGpus.end(), 0.0) / kGpus.size();
  const double mean_seconds = std::exp(kMeanLog + kSpread * kSpread / 2);
  const double gap = mean_gpus * mean_seconds / (generator.load * generator.cluster.gpus());
  double now = 0;
  while (now < generator.days * 86400.0) {
    // Days are busier than nights: thinning against a sine of one day.
    now += rng.exponential(gap / 1.6);
    if (!rng.chance((1 + 0.6 * std::sin(2 * std::numbers::pi * now / 86400.0)) / 1.6)) continue;
    JobRequest job;
    job.name = std::to_string(workload.jobs.size() + 1);
    job.application = "train";
    job.queue = "gpu";
    job.submit = begin + whole_seconds(now);
    job.gpus = std::min(kGpus[rng.below(kGpus.size())], generator.cluster.gpus());
    const double run = std::clamp(std::exp(rng.normal(kMeanLog, kSpread)), 10.0, 3 * 86400.0);
    job.duration = whole_seconds(run);
    job.limit = whole_seconds(std::ceil(run * (1 + 3 * rng.uniform()) / 60) * 60);
    job.line = static_cast<int>(workload.jobs.size()) + 2;
    workload.jobs.push_back(std::move(job));
  }
  const RigidResult run = simulate_rigid(workload, QueueRule::kBackfill, {generator.cluster}, {}, begin);
  for (std::size_t i = 0; i < workload.jobs.size(); ++i)
    workload.jobs[i].start = run.runs[i].start, workload.jobs[i].end = run.runs[i].end;
  return workload;
}

Backtest backtest(const Workload& history, QueueRule incumbent, std::span<const QueueRule> rules,
                  const RigidOptions& options) {
  if (history.jobs.empty()) throw Error(ErrorKind::kBadInput, history.name, "holds no job that started and ended");
  Backtest result{.incumbent = name_of(incumbent), .problems = history.problems};
  const Nanos begin = history.jobs.front().submit;
  std::vector<RigidRun> recorded(history.jobs.size());
  double used = 0;
  Nanos last = begin;
  for (std::size_t i = 0; i < recorded.size(); ++i) {
    const JobRequest& job = history.jobs[i];
    if (job.start.count() < 0)
      throw Error(ErrorKind::kBadInput, fmt::format("{}:{}", history.name, job.line),
                  "has no start: a backtest needs what really happened");
    recorded[i].start = job.start, recorded[i].end = job.end;
    used += job.gpus * seconds(job.duration);
    last = std::max(last, job.end);
  }
  result.recorded = summarise_waits(history, recorded);
  result.recorded_utilisation = used / std::max(1.0, seconds(last - begin) * options.cluster.gpus());
  std::vector<QueueRule> all{incumbent};
  for (const QueueRule rule : rules)
    if (rule != incumbent) all.push_back(rule);
  std::vector<RigidRun> base_runs;
  for (const QueueRule rule : all) {
    const RigidResult run = simulate_rigid(history, rule, options, {}, begin);
    BacktestRow row{
        .policy = name_of(rule), .wait = summarise_waits(history, run.runs), .utilisation = run.utilisation};
    if (base_runs.empty()) {
      base_runs = run.runs;
      result.problems.insert(result.problems.end(), run.problems.begin(), run.problems.end());
    }
    double worse = 0, count = 0;
    for (std::size_t i = 0; i < run.runs.size(); ++i) {
      if (run.runs[i].start.count() < 0) continue;
      ++count;
      row.average_completion += seconds(run.runs[i].end - history.jobs[i].submit);
      worse += run.runs[i].end > base_runs[i].end + Nanos(kSecond);
    }
    if (count > 0) row.average_completion /= count, row.worse_off = worse / count;
    result.rows.push_back(row);
  }
  constexpr double kMinute = 60;
  const WaitSummary& replayed = result.rows.front().wait;
  result.median_error = std::abs(replayed.median - result.recorded.median) / std::max(kMinute, result.recorded.median);
  result.p90_error = std::abs(replayed.p90 - result.recorded.p90) / std::max(kMinute, result.recorded.p90);
  return result;
}

base::Json to_json(const Backtest& result) {
  base::Json json = base::make_result("schedule-backtest", 1);
  const auto wait = [](const WaitSummary& w) {
    return base::Json{{"mean_s", w.mean}, {"median_s", w.median}, {"p90_s", w.p90}};
  };
  json["incumbent"] = result.incumbent;
  json["recorded"] = {{"wait", wait(result.recorded)}, {"utilisation", result.recorded_utilisation}};
  json["replay_error"] = {{"median_wait", result.median_error}, {"p90_wait", result.p90_error}};
  for (const BacktestRow& row : result.rows)
    json["policies"].push_back({{"policy", row.policy},
                                {"wait", wait(row.wait)},
                                {"average_completion_s", row.average_completion},
                                {"utilisation", row.utilisation},
                                {"worse_off", row.worse_off}});
  for (const Problem& problem : result.problems)
    json["problems"].push_back({{"where", problem.where}, {"what", problem.what}});
  return json;
}

std::string to_text(const Backtest& result) {
  std::string text =
      fmt::format("The incumbent ({}) replayed against the record: median wait off by {:.1f} %, p90 by {:.1f} %.\n",
                  result.incumbent, 100 * result.median_error, 100 * result.p90_error);
  if (result.p90_error > 0.2 || result.median_error > 0.2)
    text += "That is far off: the other rows say little about this cluster.\n";
  base::Table table;
  table.add_column("policy", base::Table::Align::kLeft);
  for (const char* title : {"mean wait s", "median s", "p90 s", "average JCT s", "used", "worse off"})
    table.add_column(title);
  table.add_row({"(recorded)", fmt::format("{:.0f}", result.recorded.mean),
                 fmt::format("{:.0f}", result.recorded.median), fmt::format("{:.0f}", result.recorded.p90), "",
                 fmt::format("{:.1f} %", 100 * result.recorded_utilisation), ""});
  for (const BacktestRow& row : result.rows)
    table.add_row({row.policy, fmt::format("{:.0f}", row.wait.mean), fmt::format("{:.0f}", row.wait.median),
                   fmt::format("{:.0f}", row.wait.p90), fmt::format("{:.0f}", row.average_completion),
                   fmt::format("{:.1f} %", 100 * row.utilisation), fmt::format("{:.1f} %", 100 * row.worse_off)});
  text += table.to_string();
  for (const Problem& problem : result.problems)
    text += fmt::format("  left out: {}: {}\n", problem.where, problem.what);
  return text;
}

Snapshot snapshot_at(const Workload& history, const RigidCluster& cluster, Nanos now) {
  Snapshot snapshot{now, {}, {}, {}};
  const std::vector<NodeParts> placed = replay_placements(history.jobs, cluster, now);
  for (std::size_t i = 0; i < history.jobs.size(); ++i) {
    const JobRequest& job = history.jobs[i];
    if (job.start.count() < 0 || job.submit > now || job.end <= now) continue;
    // A job that starts at this very moment still waits: nobody has decided yet.
    if (job.start >= now) {
      snapshot.waiting.push_back(job);
    } else {
      snapshot.running.push_back(job);
      snapshot.running_nodes.push_back(placed[i]);
    }
  }
  return snapshot;
}

std::vector<LimitShare> limit_shares(const Workload& history, Nanos until) {
  std::vector<LimitShare> shares;
  for (const JobRequest& job : history.jobs)
    if (job.start.count() >= 0 && job.end <= until && job.limit.count() > 0)
      shares.push_back({job.limit, static_cast<double>(job.duration.count()) / static_cast<double>(job.limit.count())});
  std::stable_sort(shares.begin(), shares.end(),
                   [](const LimitShare& a, const LimitShare& b) { return a.limit < b.limit; });
  return shares;
}

std::span<const JobRequest> submitted_before(const Workload& history, Nanos now) {
  const auto end = std::partition_point(history.jobs.begin(), history.jobs.end(),
                                        [&](const JobRequest& job) { return job.submit < now; });
  return {history.jobs.data(), static_cast<std::size_t>(end - history.jobs.begin())};
}

Eta estimate_start(const Snapshot& snapshot, const std::string& job, std::span<const LimitShare> shares,
                   std::span<const JobRequest> past, const EtaOptions& options) {
  const auto at = std::find_if(snapshot.waiting.begin(), snapshot.waiting.end(),
                               [&](const JobRequest& request) { return request.name == job; });
  if (at == snapshot.waiting.end()) throw Error(ErrorKind::kBadInput, job, "does not wait in this snapshot");
  if (shares.empty()) throw Error(ErrorKind::kBadInput, job, "no ended job with a time limit tells how long jobs run");
  const auto index = static_cast<std::size_t>(at - snapshot.waiting.begin());
  base::Rng rng(options.seed);
  std::vector<double> starts, ends;
  Workload waiting{"queue", snapshot.waiting, {}};
  for (JobRequest& request : waiting.jobs) request.submit = snapshot.now;
  constexpr Nanos kDay(86400 * kSecond);
  constexpr std::size_t kMostArrivals = 150;
  const std::int64_t days = past.empty() ? 0 : (snapshot.now - past.front().submit) / kDay;
  for (int draw = 0; draw < options.draws; ++draw) {
    Workload queue = waiting;
    if (days > 0) {
      const Nanos shift = kDay * rng.between(1, days);
      const auto from = std::partition_point(
          past.begin(), past.end(), [&](const JobRequest& request) { return request.submit <= snapshot.now - shift; });
      for (auto next = from; next != past.end() && queue.jobs.size() < waiting.jobs.size() + kMostArrivals; ++next) {
        queue.jobs.push_back(*next);
        queue.jobs.back().submit += shift;
      }
    }
    std::vector<RunningJob> running;
    for (std::size_t i = 0; i < snapshot.running.size(); ++i) {
      const JobRequest& request = snapshot.running[i];
      const Nanos limit = limit_of(request), elapsed = snapshot.now - request.start;
      const Nanos run = draw_run_time(shares, limit, elapsed, rng);
      running.push_back({request.gpus, i < snapshot.running_nodes.size() ? snapshot.running_nodes[i] : NodeParts{},
                         request.start + run, request.start + limit});
    }
    for (JobRequest& request : queue.jobs) request.duration = draw_run_time(shares, limit_of(request), Nanos(0), rng);
    // Those whose nodes are not known come last and fill what is left.
    std::stable_sort(running.begin(), running.end(),
                     [](const auto& a, const auto& b) { return !a.nodes.empty() && b.nodes.empty(); });
    const RigidResult result = simulate_rigid(queue, QueueRule::kBackfill, options.rigid, running, snapshot.now);
    if (result.runs[index].start.count() < 0) throw Error(ErrorKind::kBadInput, job, result.problems.front().what);
    starts.push_back(static_cast<double>((result.runs[index].start - snapshot.now).count()));
    ends.push_back(static_cast<double>((result.runs[index].end - snapshot.now).count()));
  }
  const auto quantile = [&](std::span<const double> values, double q) {
    return snapshot.now + Nanos(static_cast<std::int64_t>(base::quantile(values, q)));
  };
  return {quantile(starts, 0.1), quantile(starts, 0.5), quantile(starts, 0.9),
          quantile(ends, 0.1),   quantile(ends, 0.5),   quantile(ends, 0.9)};
}

EtaRow eta_from_history(const Workload& history, const std::string& job, const std::string& at,
                        const EtaOptions& options) {
  const auto found = std::find_if(history.jobs.begin(), history.jobs.end(),
                                  [&](const JobRequest& request) { return request.name == job; });
  if (found == history.jobs.end()) throw Error(ErrorKind::kBadInput, history.name, fmt::format("has no job {}", job));
  EtaRow row{job, found->submit, {}, found->start, found->end};
  if (!at.empty()) {
    const auto time = parse_timestamp(at);
    if (!time) throw Error(ErrorKind::kUsage, "--at", fmt::format("'{}' is not a time like 2025-01-31T12:00:00", at));
    row.now = *time;
  }
  row.eta = estimate_start(snapshot_at(history, options.rigid.cluster, row.now), job, limit_shares(history, row.now),
                           submitted_before(history, row.now), options);
  return row;
}

base::Json to_json(const std::vector<EtaRow>& rows) {
  base::Json json = base::make_result("schedule-eta", 1);
  for (const EtaRow& row : rows) {
    base::Json one;
    one["job"] = row.job;
    one["now"] = format_timestamp(row.now);
    const auto after = [&](Nanos time) { return seconds(time - row.now); };
    one["start_s"] = {after(row.eta.start_low), after(row.eta.start_median), after(row.eta.start_high)};
    one["end_s"] = {after(row.eta.end_low), after(row.eta.end_median), after(row.eta.end_high)};
    if (row.start.count() >= 0) one["happened_s"] = {after(row.start), after(row.end)};
    json["jobs"].push_back(std::move(one));
  }
  return json;
}

std::string to_text(const std::vector<EtaRow>& rows) {
  std::string text;
  for (const EtaRow& row : rows)
    text += fmt::format("{}: starts {} (80 %: {} to {}), ends {} (80 %: {} to {}), UTC\n", row.job,
                        format_timestamp(row.eta.start_median), format_timestamp(row.eta.start_low),
                        format_timestamp(row.eta.start_high), format_timestamp(row.eta.end_median),
                        format_timestamp(row.eta.end_low), format_timestamp(row.eta.end_high));
  return text;
}

}  // namespace paceline::schedule
