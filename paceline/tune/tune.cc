#include "paceline/tune/tune.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "paceline/tune/strategies.h"

namespace paceline::tune {
namespace {

using taskgraph::Delta;
using trace::JobGraph;

std::int64_t step_with(const JobGraph& job, const Delta& delta) {
  return replay::mean_step(job, replay::replay(job.graph, delta).end);
}

}  // namespace

Tuned tune(const trace::LoadedGraph& loaded, const TuneOptions& options) {
  constexpr std::pair<const char*, Find> kFinders[] = {{"buckets", find_buckets},
                                                       {"op fusion", find_op_fusion},
                                                       {"graph launch", find_graph_launch},
                                                       {"mixed precision", find_precision},
                                                       {"prefetch", find_prefetch}};
  const JobGraph& job = loaded.job;
  Tuned tuned;
  Budget budget{.left = options.budget, .used = 0};
  for (const auto& [name, find] : kFinders) {
    std::string why;
    if (std::optional<Strategy> strategy = find(loaded, budget, why)) {
      tuned.strategies.push_back(std::move(*strategy));
    } else {
      tuned.passed_over.push_back(std::string(name) + ": " + why);
    }
  }
  replay::Forecaster forecaster(job, options.seed);
  const std::int64_t start = forecaster.before();
  const auto least = static_cast<std::int64_t>(options.least_gain * static_cast<double>(start));
  for (std::size_t s = 0; s < tuned.strategies.size(); ++s) {
    tuned.verdicts.push_back({.strategy = s, .alone = forecaster.forecast(tuned.strategies[s].delta)});
    budget.take();
  }
  std::stable_sort(tuned.verdicts.begin(), tuned.verdicts.end(),
                   [](const Verdict& a, const Verdict& b) { return a.alone.gain.value > b.alone.gain.value; });
  Delta joint;
  std::int64_t step = start;
  for (Verdict& verdict : tuned.verdicts) {
    verdict.step = step;
    if (verdict.alone.gain.value < least) continue;
    const Delta with = taskgraph::join(job.graph, joint, tuned.strategies[verdict.strategy].delta);
    budget.take();
    const std::int64_t joined = step_with(job, with);
    if (joined > step - least) continue;
    joint = with, step = joined;
    verdict.step = step;
    verdict.chosen = true;
  }
  tuned.joint = forecaster.forecast(joint);
  tuned.evaluations = budget.used;
  tuned.cut_short = budget.left == 0;
  return tuned;
}

base::Json to_json(const Tuned& tuned, const JobGraph& job) {
  base::Json json = base::make_result("tune", 1);
  json["joint"] = replay::to_json(tuned.joint, job, {});
  json["strategies"] = base::Json::array();
  for (const Verdict& verdict : tuned.verdicts) {
    const Strategy& strategy = tuned.strategies[verdict.strategy];
    base::Json row;
    row["name"] = strategy.name;
    row["what"] = strategy.what;
    row["assumes"] = strategy.assumes;
    row["chosen"] = verdict.chosen;
    row["gain_ns"] = verdict.alone.gain.value;
    if (verdict.alone.has_range)
      row["gain_low_ns"] = verdict.alone.gain.low, row["gain_high_ns"] = verdict.alone.gain.high;
    row["step_ns"] = verdict.alone.after.value;
    row["step_with_chosen_ns"] = verdict.step;
    for (const Strategy::File& file : strategy.files) row["files"].push_back(file.name);
    json["strategies"].push_back(std::move(row));
  }
  json["passed_over"] = tuned.passed_over;
  json["evaluations"] = tuned.evaluations;
  json["cut_short"] = tuned.cut_short;
  return json;
}

}  // namespace paceline::tune
