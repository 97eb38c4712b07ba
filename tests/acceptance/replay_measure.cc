// replay_measure job TRACES...      one JSON object: how the task graph of a job replays, in every mode
// replay_measure random COUNT       both engines against the naive simulator on random graphs
// replay_measure edits COUNT        edits of random graphs: incremental, applied, both engines
// replay_measure speed              CPU time of replays, variants and edits of a 1.7 M-task graph
#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>

#include "paceline/base/error.h"
#include "paceline/base/rng.h"
#include "paceline/base/statistics.h"
#include "paceline/replay/critical_path.h"
#include "paceline/replay/evaluator.h"
#include "paceline/replay/forecast.h"
#include "paceline/replay/random_graph.h"
#include "paceline/replay/reference.h"
#include "paceline/replay/replay.h"

namespace {

using namespace paceline;
using namespace paceline::replay;
using namespace paceline::taskgraph;
using base::kNone;
using Json = nlohmann::ordered_json;

double cpu_seconds() {
  return static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
}

double error_of(std::int64_t value, std::int64_t truth) {
  return truth == 0 ? 0 : std::abs(static_cast<double>(value - truth)) / static_cast<double>(truth);
}

std::vector<std::int64_t> recorded_steps(const trace::JobGraph& job) {
  std::vector<std::int64_t> over;
  std::int64_t begin = INT64_MAX;
  std::size_t s = 0;
  for (std::size_t i = 0; i < job.steps.size(); ++i) {
    s = i > 0 && job.steps[i - 1].rank == job.steps[i].rank ? s + 1 : 0;
    if (s == 0) begin = std::min(begin, job.steps[i].recorded_begin);
    if (s == over.size()) over.push_back(0);
    over[s] = std::max(over[s], job.steps[i].recorded_end);
  }
  for (std::size_t i = over.size(); i-- > 1;) over[i] -= over[i - 1];
  if (!over.empty()) over[0] -= begin;
  return over;
}

/// The same work in every step: its lane, its name and place, and the how-manieth of these in its step; for gaps those
/// of the task behind.
using Key = std::tuple<std::uint32_t, NameId, NameId, std::uint32_t, bool>;

struct StepWork {
  std::vector<Key> key;                                      // per task
  std::map<Key, std::map<std::int32_t, std::int64_t>> time;  // per step
};

StepWork work_by_step(const TaskGraph& graph) {
  StepWork work;
  work.key.resize(graph.size());
  std::map<std::tuple<std::uint32_t, NameId, NameId, std::int32_t>, std::uint32_t> seen;
  const auto is_gap = [&](TaskId t) {
    return graph.kind(t) == TaskKind::kGap || graph.kind(t) == TaskKind::kDelay || graph.kind(t) == TaskKind::kHostGap;
  };
  for (std::uint32_t i = graph.size(); i-- > 0;) {
    const auto task = static_cast<TaskId>(i);
    const bool gap = is_gap(task);
    TaskId named = task;
    if (gap && graph.after(task) != kNone<TaskId>) named = graph.after(task);
    if (gap && graph.lane(task) == kNone<LaneId> && !graph.successors(task).empty())
      named = graph.successors(task).front();
    const std::uint32_t lane = graph.lane(named) == kNone<LaneId> ? 0xFFFFFFFF : index(graph.lane(named));
    std::uint32_t& count = seen[{lane, graph.name(named), graph.scope(named), graph.step(task)}];
    if (!gap) ++count;
    work.key[i] = {lane, graph.name(named), graph.scope(named), count, gap};
    work.time[work.key[i]][graph.step(task)] += graph.duration(task);
  }
  return work;
}

/// The job with the structure of step `i` and the durations of step `j` in it; gaps as long as their median over all
/// steps but `j`.
std::int64_t predict(const trace::JobGraph& job, const StepWork& work, std::int32_t i, std::int32_t j) {
  Delta delta;
  const TaskGraph& graph = job.graph;
  for (std::uint32_t t = 0; t < graph.size(); ++t) {
    const auto task = static_cast<TaskId>(t);
    if (graph.step(task) != i) continue;
    const auto& times = work.time.at(work.key[t]);
    if (std::get<bool>(work.key[t])) {
      std::vector<double> gaps;
      for (const auto& [step, ns] : times) {
        if (step != j) gaps.push_back(static_cast<double>(ns));
      }
      if (!gaps.empty()) delta.durations.emplace_back(task, static_cast<std::int64_t>(base::median(gaps)));
    } else if (const auto found = times.find(j); found != times.end()) {
      delta.durations.emplace_back(task, found->second);
    }
  }
  std::map<std::pair<NameId, NameId>, std::vector<std::pair<CollectiveId, std::int32_t>>> collectives;
  for (std::uint32_t c = 0; c < graph.collectives().size(); ++c) {
    const auto id = static_cast<CollectiveId>(c);
    if (graph.members(id).empty()) continue;
    collectives[{graph.collective(id).name, graph.collective(id).group}].emplace_back(
        id, graph.step(graph.members(id).front()));
  }
  for (const auto& [of, list] : collectives) {
    std::vector<CollectiveId> mine, theirs;
    for (const auto& [id, step] : list) {
      if (step == i) mine.push_back(id);
      if (step == j) theirs.push_back(id);
    }
    for (std::size_t k = 0; k < std::min(mine.size(), theirs.size()); ++k) {
      delta.transfers.emplace_back(mine[k], graph.collective(theirs[k]).transfer);
    }
  }
  const std::vector<std::int64_t> times = step_times(job, replay::replay(graph, delta).end);
  return times[static_cast<std::size_t>(i)];
}

Json describe(const std::vector<std::string>& traces, trace::GraphModel model, bool steps) {
  trace::JobOptions options;
  options.load.show_progress = false;
  const trace::LoadedGraph loaded = trace::load_graph(traces, options, {.model = model});
  const trace::JobGraph& job = loaded.job;
  const TaskGraph& graph = job.graph;
  const Timeline timeline = replay::replay(graph);
  Json json;
  json["ranks"] = loaded.trace.ranks.size();
  json["device"] = !loaded.trace.ranks.empty() && loaded.trace.ranks.front().has_device;
  json["tasks"] = graph.size();
  const std::vector<std::int64_t> recorded = recorded_steps(job), replayed = step_times(job, timeline.end);
  for (std::size_t s = 0; s < recorded.size(); ++s) json["step_errors"].push_back(error_of(replayed[s], recorded[s]));
  std::vector<double> starts;
  for (std::uint32_t i = 0; i < graph.size(); ++i) {
    if (job.source[i].row != trace::kNoRow)
      starts.push_back(std::abs(static_cast<double>(timeline.start[i] - job.recorded_start[i])));
  }
  json["median_start_error_us"] = starts.empty() ? 0 : base::median(starts) / 1e3;
  std::int64_t sum = 0, unexplained = 0;
  for (const PathStep& step : critical_path(graph, timeline)) {
    sum += step.end - step.begin;
    if (graph.kind(step.task) == TaskKind::kGap) unexplained += step.end - step.begin;
  }
  json["makespan_ns"] = timeline.makespan;
  json["path_ns"] = sum;
  json["unexplained_on_path"] =
      timeline.makespan == 0 ? 0.0 : static_cast<double>(unexplained) / static_cast<double>(timeline.makespan);
  json["inferred"] = job.quality.inferred;
  json["contradicted"] = job.quality.contradicted;
  json["joined"] = job.quality.joined;
  json["apart"] = job.quality.apart;
  const bool agree = replay_by_events(graph).end == timeline.end;
  json["engines_agree"] = agree;
  if (steps && recorded.size() > 2) {
    // The first step warms up and the last is cut short in some recordings: neither stands for the others.
    const StepWork work = work_by_step(graph);
    for (std::size_t i = 1; i < recorded.size(); ++i) {
      for (std::size_t j = 1; j < recorded.size(); ++j) {
        if (i == j) continue;
        const std::int64_t predicted = predict(job, work, static_cast<std::int32_t>(i), static_cast<std::int32_t>(j));
        json["cross_errors"].push_back(error_of(predicted, recorded[j]));
        json["naive_errors"].push_back(error_of(recorded[i], recorded[j]));
      }
    }
  }
  return json;
}

Json job(const std::vector<std::string>& traces) {
  Json json = describe(traces, trace::GraphModel::kFull, true);
  json["dpro"] = describe(traces, trace::GraphModel::kDpro, false);
  json["daydream"] = describe(traces, trace::GraphModel::kDaydream, false);
  return json;
}

Json random_graphs(std::uint64_t count) {
  std::uint64_t wrong = 0, stuck = 0;
  for (std::uint64_t seed = 1; seed <= count; ++seed) {
    base::Rng rng(seed);
    const TaskGraph graph = random_graph(rng, {.only_static = seed % 2 == 0});
    Timeline naive;
    try {
      naive = naive_replay(graph);
    } catch (const Error&) {
      ++stuck;
      continue;
    }
    const Timeline events = replay_by_events(graph);
    const auto same = [&](const Timeline& t) {
      return t.start == naive.start && t.end == naive.end && t.transfer_start == naive.transfer_start;
    };
    wrong += !same(events) || (graph.is_static() && !same(replay::replay(graph)));
  }
  return {{"graphs", count}, {"wrong", wrong}, {"stuck", stuck}};
}

Json random_edits(std::uint64_t count) {
  std::uint64_t wrong = 0, circles = 0;
  for (std::uint64_t seed = 1; seed <= count; ++seed) {
    base::Rng rng(seed);
    const TaskGraph graph = random_graph(rng, {.only_static = true});
    const Delta delta = random_edit(rng, graph);
    Timeline whole;
    try {
      whole = replay::replay(apply(graph, delta));
    } catch (const Error&) {
      ++circles;
      continue;
    }
    Evaluator evaluator(graph);
    bool same = evaluator.makespan(delta) == whole.makespan && replay::replay(graph, delta).end == whole.end;
    for (std::uint32_t t = 0; t < whole.end.size(); ++t) same &= evaluator.end(static_cast<TaskId>(t)) == whole.end[t];
    wrong += !same;
  }
  return {{"edits", count}, {"wrong", wrong}, {"circles", circles}};
}

Json speed() {
  const TaskGraph graph = large_graph(1'700'000);
  const auto least = [](int runs, auto&& work) {
    double best = 1e9;
    for (int i = 0; i < runs; ++i) {
      const double begin = cpu_seconds();
      work();
      best = std::min(best, cpu_seconds() - begin);
    }
    return best * 1e3;
  };
  Json json;
  json["tasks"] = graph.size();
  std::int64_t sum = 0;
  json["whole_ms"] = least(5, [&] { sum += replay::replay(graph).makespan; });
  const Variants one = Variants::of(graph, 1), eight = Variants::of(graph, 8);
  VariantEnds ends;
  json["one_variant_ms"] = least(5, [&] { replay_variants(graph, one, ends); });
  json["eight_variants_ms"] = least(5, [&] { replay_variants(graph, eight, ends); });
  Evaluator evaluator(graph);
  base::Rng rng(2);
  std::vector<double> edits;
  for (int i = 0; i < 301; ++i) {
    const auto task = static_cast<TaskId>(rng.below(graph.size()));
    Delta delta;
    delta.durations.emplace_back(task, graph.duration(task) * 9 / 10);
    const double begin = cpu_seconds();
    sum += evaluator.makespan(delta);
    edits.push_back((cpu_seconds() - begin) * 1e3);
  }
  json["edit_ms"] = base::median(edits);
  json["sum"] = sum;
  return json;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  try {
    const auto number = [&] { return static_cast<std::uint64_t>(std::strtoull(arguments.at(1).c_str(), nullptr, 10)); };
    Json json;
    if (!arguments.empty() && arguments[0] == "job")
      json = job({arguments.begin() + 1, arguments.end()});
    else if (arguments.size() == 2 && arguments[0] == "random")
      json = random_graphs(number());
    else if (arguments.size() == 2 && arguments[0] == "edits")
      json = random_edits(number());
    else if (arguments.size() == 1 && arguments[0] == "speed")
      json = speed();
    else
      return fmt::print(stderr, "usage: replay_measure job TRACES... | random COUNT | edits COUNT | speed\n"), 2;
    fmt::print("{}\n", json.dump());
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "replay_measure: {}\n", error.what());
    return 3;
  }
}
