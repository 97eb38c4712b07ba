// Forecasts against simulated jobs whose step without the fault is known (tests/support/modern_job.h).
#include "paceline/replay/forecast.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include "paceline/base/test_files.h"
#include "paceline/replay/critical_path.h"
#include "paceline/replay/what_if.h"
#include "tests/support/modern_job.h"

namespace paceline::replay {
namespace {

using test_support::Fault;
using test_support::JobTruth;
using test_support::ModernJob;
using test_support::Topology;

struct Recorded {
  JobTruth truth;
  trace::LoadedGraph loaded;
};

Recorded record(const ModernJob& plan) {
  const base::test::TempFolder folder;
  Recorded recorded;
  recorded.truth = test_support::write_job(plan, folder.path());
  trace::JobOptions options;
  options.load.show_progress = false;
  recorded.loaded = trace::load_graph({folder.path().string()}, options);
  return recorded;
}

class EveryTopology : public testing::TestWithParam<Topology> {};
INSTANTIATE_TEST_SUITE_P(Jobs, EveryTopology,
                         testing::Values(Topology::kDdp, Topology::kFsdp1, Topology::kFsdp2, Topology::kHsdp,
                                         Topology::kTpFsdp, Topology::kPipeline),
                         [](const auto& topology) { return std::string(test_support::name_of(topology.param)); });

TEST_P(EveryTopology, UnchangedReplayGivesTheRecordedTimes) {
  const Recorded job = record({.topology = GetParam(), .steps = 3, .layers = 4, .seed = 5});
  const trace::JobGraph& graph = job.loaded.job;
  const Timeline timeline = replay(graph.graph);
  std::int64_t worst = 0;
  for (std::uint32_t i = 0; i < graph.graph.size(); ++i) {
    if (graph.source[i].row == trace::kNoRow) continue;
    worst = std::max(worst, std::abs(timeline.start[i] - graph.recorded_start[i]));
  }
  EXPECT_LE(worst, 10'000);  // ns: clocks of the hosts are aligned to a few microseconds
  std::int64_t length = 0;
  for (const PathStep& step : critical_path(graph.graph, timeline)) length += step.end - step.begin;
  EXPECT_EQ(length, timeline.makespan);
}

TEST_P(EveryTopology, RepairingASlowRankGivesTheStepOfTheHealthyJob) {
  const Recorded job = record({.topology = GetParam(), .steps = 4, .layers = 4, .seed = 3, .fault = Fault::kClock});
  const Edit repair = parse_edit(fmt::format("kernel:*@{}=x{}", job.truth.rank, 1 / job.truth.factor));
  const Forecast result = forecast(job.loaded.job, delta_of(job.loaded.job.graph, repair));
  const auto clean = static_cast<double>(job.truth.clean_step_ns);
  ASSERT_GT(static_cast<double>(job.truth.step_ns), 1.03 * clean);  // the fault costs something
  // Kernels of the fault that are bound by memory are slowed less than the factor says.
  EXPECT_NEAR(static_cast<double>(result.after.value), clean, 0.01 * clean);
  EXPECT_LE(result.after.low, result.after.value);
  EXPECT_GE(result.after.high, result.after.value);
}

TEST(Forecast, TheSameSeedGivesTheSameRange) {
  const Recorded job = record({.steps = 3, .layers = 2});
  const taskgraph::Delta delta = delta_of(job.loaded.job.graph, parse_edit("link:*=x2"));
  const Forecast first = forecast(job.loaded.job, delta, 7), second = forecast(job.loaded.job, delta, 7);
  EXPECT_EQ(first.after.low, second.after.low);
  EXPECT_EQ(first.gain.high, second.gain.high);
}

TEST(Forecast, NoEditGainsNothing) {
  const Recorded job = record({.steps = 3, .layers = 2});
  const Forecast result = forecast(job.loaded.job, {});
  EXPECT_EQ(result.gain.value, 0);
  EXPECT_EQ(result.gain.low, 0);
  EXPECT_EQ(result.gain.high, 0);
}

}  // namespace
}  // namespace paceline::replay
