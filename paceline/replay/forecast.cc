#include "paceline/replay/forecast.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "paceline/base/rng.h"
#include "paceline/base/statistics.h"
#include "paceline/replay/critical_path.h"

namespace paceline::replay {
namespace {

using base::kNone;
using taskgraph::NameId;
using taskgraph::TaskKind;
using trace::JobGraph;
using trace::StepTasks;

constexpr std::size_t kReplays = 8;
using Replays = std::array<std::int64_t, kReplays>;
/// Of the relative error of a class's mean: a class seen in two wildly different steps is not known any worse.
constexpr double kLargestError = 0.5;

/// Tasks of one name in one place vary together. Transfers stand under their name and group.
using Class = std::pair<NameId, NameId>;

/// By how much the mean of each class's time in a step is off, as a share: standard deviation over the steps divided by
/// the mean and by the root of their number.
std::map<Class, double> class_errors(const JobGraph& job, std::size_t steps) {
  std::map<Class, std::vector<double>> times;
  const auto count = [&](Class of, std::int32_t step, std::int64_t ns) {
    if (step < 0 || static_cast<std::size_t>(step) >= steps) return;
    std::vector<double>& row = times.try_emplace(of, steps, 0.0).first->second;
    row[static_cast<std::size_t>(step)] += static_cast<double>(ns);
  };
  const TaskGraph& graph = job.graph;
  for (std::uint32_t i = 0; i < graph.size(); ++i) {
    const auto task = static_cast<TaskId>(i);
    count({graph.name(task), graph.scope(task)}, graph.step(task), graph.duration(task));
  }
  for (std::uint32_t c = 0; c < graph.collectives().size(); ++c) {
    const auto id = static_cast<CollectiveId>(c);
    if (graph.members(id).empty()) continue;
    const taskgraph::Collective& collective = graph.collective(id);
    count({collective.name, collective.group}, graph.step(graph.members(id).front()), collective.transfer);
  }
  std::map<Class, double> errors;
  for (const auto& [of, row] : times) {
    const double mean = base::mean(row);
    if (mean <= 0) continue;
    errors[of] = std::min(kLargestError, base::standard_deviation(row) / mean / std::sqrt(static_cast<double>(steps)));
  }
  return errors;
}

/// The factor of a class in a replay: the same whatever else is in the graph, so that two graphs can be compared. The
/// first replay leaves all as it is.
class Factors {
 public:
  Factors() = default;  // all 1
  Factors(std::map<Class, double> errors, std::uint64_t seed) : errors_(std::move(errors)), seed_(seed) {}
  const std::array<double, kReplays>& of(Class of) {
    const auto [found, added] = factors_.try_emplace(of);
    if (added) {
      base::Rng rng = base::Rng(seed_).fork((std::uint64_t{index(of.first)} << 32) | index(of.second));
      const auto error = errors_.find(of);
      for (std::size_t k = 0; k < kReplays; ++k) {
        const double deviation = error == errors_.end() || k == 0 ? 0 : error->second;
        found->second[k] = std::max(0.1, 1 + deviation * rng.normal());
      }
    }
    return found->second;
  }

 private:
  std::map<Class, double> errors_;
  std::map<Class, std::array<double, kReplays>> factors_;
  std::uint64_t seed_ = 0;
};

Variants variants_of(const TaskGraph& graph, Factors& factors) {
  Variants variants = Variants::of(graph, kReplays);
  const auto scale = [](std::int64_t& ns, double factor) { ns = std::llround(static_cast<double>(ns) * factor); };
  for (std::uint32_t i = 0; i < graph.size(); ++i) {
    const auto task = static_cast<TaskId>(i);
    const auto& factor = factors.of({graph.name(task), graph.scope(task)});
    for (std::size_t k = 1; k < kReplays; ++k) scale(variants.durations[i * kReplays + k], factor[k]);
  }
  for (std::uint32_t c = 0; c < graph.collectives().size(); ++c) {
    const taskgraph::Collective& collective = graph.collectives()[c];
    const auto& factor = factors.of({collective.name, collective.group});
    for (std::size_t k = 1; k < kReplays; ++k) scale(variants.transfers[c * kReplays + k], factor[k]);
  }
  return variants;
}

std::vector<std::int64_t> path_by_kind(const TaskGraph& graph, const Timeline& timeline, std::int64_t steps) {
  std::vector<std::int64_t> time(taskgraph::kTaskKinds, 0);
  for (const PathStep& step : critical_path(graph, timeline)) {
    time[static_cast<std::size_t>(graph.kind(step.task))] += step.end - step.begin;
  }
  for (std::int64_t& ns : time) ns /= steps;
  return time;
}

Range range_of(const Replays& values) {
  return {values[0], *std::min_element(values.begin(), values.end()), *std::max_element(values.begin(), values.end())};
}

}  // namespace

std::vector<std::int64_t> step_times(const JobGraph& job, std::span<const std::int64_t> ends, std::size_t stride,
                                     std::size_t offset) {
  const auto end_of = [&](TaskId task) { return task == kNone<TaskId> ? 0 : ends[index(task) * stride + offset]; };
  std::vector<std::int64_t> over;
  std::int64_t begin = INT64_MAX;
  std::size_t s = 0;
  for (std::size_t i = 0; i < job.steps.size(); ++i) {
    const StepTasks& step = job.steps[i];
    s = i > 0 && job.steps[i - 1].rank == step.rank ? s + 1 : 0;
    if (s == 0) begin = std::min(begin, end_of(step.begin));
    if (s == over.size()) over.push_back(0);
    over[s] = std::max({over[s], end_of(step.host_end), end_of(step.device_end)});
  }
  std::vector<std::int64_t> times;
  for (std::size_t i = 0; i < over.size(); ++i) times.push_back(over[i] - (i == 0 ? begin : over[i - 1]));
  return times;
}

std::int64_t mean_step(const JobGraph& job, std::span<const std::int64_t> ends, std::size_t stride,
                       std::size_t offset) {
  const std::vector<std::int64_t> times = step_times(job, ends, stride, offset);
  std::int64_t sum = 0;
  for (const std::int64_t time : times) sum += time;
  return times.empty() ? 0 : sum / static_cast<std::int64_t>(times.size());
}

struct Forecaster::Impl {
  Impl(const JobGraph& recorded, std::uint64_t seed) : job(recorded) {
    std::set<std::uint32_t> seen;
    std::int64_t begin = INT64_MAX, end = 0;
    for (const StepTasks& step : job.steps) {
      seen.insert(step.rank);
      begin = std::min(begin, step.recorded_begin), end = std::max(end, step.recorded_end);
    }
    ranks = seen.size();
    const Timeline timeline = replay(job.graph);
    unchanged.steps = step_times(job, timeline.end).size();
    if (unchanged.steps == 0) return;
    steps = static_cast<std::int64_t>(unchanged.steps);
    unchanged.recorded = (end - begin) / steps;
    unchanged.has_range = unchanged.steps > 1;
    if (unchanged.has_range) factors = Factors(class_errors(job, unchanged.steps), seed);
    before = steps_with(job.graph);
    unchanged.before = range_of(before);
    unchanged.by_kind_before = path_by_kind(job.graph, timeline, steps);
  }

  Replays steps_with(const TaskGraph& graph) {
    replay_variants(graph, variants_of(graph, factors), ends);
    Replays mean = {};
    for (std::size_t k = 0; k < kReplays; ++k) mean[k] = mean_step(job, ends.end, kReplays, k);
    return mean;
  }

  Forecast forecast(const Delta& delta) {
    Forecast result = unchanged;
    if (result.steps == 0) return result;
    const TaskGraph edited = taskgraph::apply(job.graph, delta);
    const Replays after = steps_with(edited);
    Replays gain = {};
    for (std::size_t k = 0; k < kReplays; ++k) gain[k] = before[k] - after[k];
    result.after = range_of(after), result.gain = range_of(gain);
    result.by_kind_after = path_by_kind(edited, replay(edited), steps);
    if (result.before.value > 0) {
      result.device_hours_per_day = 24.0 * static_cast<double>(ranks) * static_cast<double>(result.gain.value) /
                                    static_cast<double>(result.before.value);
    }
    return result;
  }

  const JobGraph& job;
  std::size_t ranks = 0;
  std::int64_t steps = 0;
  Factors factors;
  VariantEnds ends;
  Replays before = {};
  Forecast unchanged;  // what is alike in all
};

Forecaster::Forecaster(const JobGraph& job, std::uint64_t seed) : impl_(std::make_unique<Impl>(job, seed)) {}
Forecaster::~Forecaster() = default;
std::int64_t Forecaster::before() const {
  return impl_->unchanged.before.value;
}
Forecast Forecaster::forecast(const Delta& delta) {
  return impl_->forecast(delta);
}

Forecast forecast(const JobGraph& job, const Delta& delta, std::uint64_t seed) {
  return Forecaster(job, seed).forecast(delta);
}

base::Json to_json(const Forecast& forecast, const JobGraph& job, const std::vector<std::string>& edits) {
  base::Json json = base::make_result("forecast", 1);
  const auto range = [&](const Range& r) {
    base::Json row;
    row["ns"] = r.value;
    if (forecast.has_range) row["low_ns"] = r.low, row["high_ns"] = r.high;
    return row;
  };
  json["edits"] = edits;
  json["steps"] = forecast.steps;
  json["recorded_step_ns"] = forecast.recorded;
  json["before"] = range(forecast.before);
  json["after"] = range(forecast.after);
  json["gain"] = range(forecast.gain);
  json["device_hours_per_day"] = forecast.device_hours_per_day;
  for (std::size_t k = 0; k < forecast.by_kind_before.size(); ++k) {
    json["critical_path"].push_back({{"kind", taskgraph::kind_name(static_cast<TaskKind>(k))},
                                     {"before_ns", forecast.by_kind_before[k]},
                                     {"after_ns", forecast.by_kind_after[k]}});
  }
  const trace::GraphQuality& quality = job.quality;
  json["graph"] = {{"tasks", job.graph.size()},
                   {"edges", job.graph.edge_count()},
                   {"launches", quality.launches},
                   {"synchronised", quality.synchronised},
                   {"handed_over", quality.handed_over},
                   {"inferred", quality.inferred},
                   {"contradicted", quality.contradicted},
                   {"joined_collectives", quality.joined},
                   {"collectives_apart", quality.apart},
                   {"unexplained_ns", quality.unexplained}};
  return json;
}

}  // namespace paceline::replay
