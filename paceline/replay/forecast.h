#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "paceline/base/json.h"
#include "paceline/replay/replay.h"
#include "paceline/trace/graph/job_graph.h"

namespace paceline::replay {

/// A time with its range: where 8 replays lie in which every class of work is longer or shorter by as much as it varied
/// from step to step, all tasks of a class together.
struct Range {
  std::int64_t value = 0, low = 0, high = 0;  // ns
};

/// How long a step takes before and after an edit.
struct Forecast {
  Range before, after;  // mean step of the job
  Range gain;           // of before over after, replay by replay: narrower than their difference
  std::int64_t recorded = 0;
  std::size_t steps = 0;                                    // of the job
  bool has_range = false;                                   // false: one step alone does not tell how much work varies
  std::vector<std::int64_t> by_kind_before, by_kind_after;  // ns a step of the critical path, by taskgraph::TaskKind
  double device_hours_per_day = 0;  // saved when the job runs all day on the ranks that were recorded
};

/// Times of the job's steps in a replay whose ends are ends[task * stride + offset]: a step is over when the last rank
/// has ended it, and lasts from the end of the one before; the first begins with the first rank's. O(steps).
std::vector<std::int64_t> step_times(const trace::JobGraph& job, std::span<const std::int64_t> ends,
                                     std::size_t stride = 1, std::size_t offset = 0);
std::int64_t mean_step(const trace::JobGraph& job, std::span<const std::int64_t> ends, std::size_t stride = 1,
                       std::size_t offset = 0);

/// Forecasts of edits of one job, which must outlive it; the job itself is replayed once. Deterministic in `seed`.
class Forecaster {
 public:
  /// O(8 (tasks + edges)).
  explicit Forecaster(const trace::JobGraph& job, std::uint64_t seed = 1);
  ~Forecaster();

  /// ns: the mean step as it was.
  std::int64_t before() const;
  /// O(8 (tasks + edges)).
  Forecast forecast(const taskgraph::Delta& delta);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Of one edit alone.
Forecast forecast(const trace::JobGraph& job, const taskgraph::Delta& delta, std::uint64_t seed = 1);

base::Json to_json(const Forecast& forecast, const trace::JobGraph& job, const std::vector<std::string>& edits);

}  // namespace paceline::replay
