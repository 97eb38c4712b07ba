#include "paceline/schedule/slotted.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "paceline/base/error.h"
#include "paceline/schedule/test_data.h"

namespace paceline::schedule {
namespace {

using Policies = std::map<std::string, std::unique_ptr<SlottedPolicy>>;

Policies all_rules() {
  Policies policies;
  for (const MisfitRule rule : {MisfitRule::kStop, MisfitRule::kGoOn})
    for (const auto make : {make_ps_fifo, make_ps_srtf, make_ps_drf, make_ps_optimus}) {
      auto policy = make(rule);
      const std::string name = policy->name();
      policies[name] = std::move(policy);
    }
  return policies;
}

TEST(PsSpeed, PassesThroughEveryMeasuredPoint) {
  PACELINE_SCHEDULE_DATA(data);
  int points = 0;
  for (const auto& [model, speed] : read_ps_speeds(data / "dl2/config_speed.txt.gz"))
    for (const PsSpeed::Sample& sample : speed.samples()) {
      EXPECT_NEAR(speed.at(sample.servers, sample.workers), sample.speed, 1e-6 * sample.speed + 1e-9) << model;
      ++points;
    }
  EXPECT_EQ(points, 804);
}

// results.csv: DL2's own simulator on the same traces, averages with four decimals.
TEST(SlottedSimulator, GivesTheAveragesOfDl2sSimulator) {
  PACELINE_SCHEDULE_DATA(data);
  const PsSpeedTable speeds(read_ps_speeds(data / "dl2/config_speed.txt.gz"), 16);
  const Policies policies = all_rules();
  const Csv results = Csv::from_file(data / "dl2/traces/results.csv");
  for (const Csv::Row& row : results.rows()) {
    SlottedOptions options;
    options.nodes = static_cast<int>(*parse_integer(row.cells[0]));
    const PsTrace trace = read_ps_trace(data / fmt::format("dl2/traces/trace-{:02}.csv", *parse_integer(row.cells[1])));
    const SlottedResult result = simulate_slotted(trace, speeds, *policies.at(std::string(row.cells[2])), options);
    const std::string what = fmt::format("{} nodes, trace {}, {}", row.cells[0], row.cells[1], row.cells[2]);
    EXPECT_NEAR(result.average_completion_time, *parse_number(row.cells[3]), 1e-3) << what;
    EXPECT_NEAR(result.makespan, *parse_number(row.cells[4]), 1e-3) << what;
    EXPECT_NEAR(result.mean_reward, *parse_number(row.cells[5]), 1e-5) << what;
  }
}

TEST(SlottedSimulator, SearchingTheWholeGridReachesTheBoundWithoutContention) {
  PACELINE_SCHEDULE_DATA(data);
  const PsSpeedTable speeds(read_ps_speeds(data / "dl2/config_speed.txt.gz"), 16);
  const PsTrace trace = read_ps_trace(data / "dl2/traces/trace-01.csv");
  // Every job alone at its best (servers, workers): 18.6 slots on the first trace, from dl2.md's source run.
  const SlottedResult result = simulate_slotted(trace, speeds, *make_ps_optimus_search(), {});
  EXPECT_LT(result.average_completion_time, 0.6 * 44.8642);
}

PsTrace small_trace(std::vector<PsJob> jobs) {
  return {"small", std::move(jobs), {}};
}

PsSpeedTable linear_speeds() {
  std::vector<PsSpeed::Sample> samples;
  for (int servers = 1; servers <= 4; ++servers)
    for (int workers = 1; workers <= 4; ++workers)
      samples.push_back({servers * 1.0, workers * 1.0, std::min(servers, workers) * 1.0});
  std::map<std::string, PsSpeed> speeds;
  speeds.emplace("linear", PsSpeed(samples));
  return PsSpeedTable(speeds, 4);
}

// Two nodes of 8 CPUs and 8 GPU slots; a pair takes 4 and 4. The first job wants a pair that fits on no node, because
// servers of another one hold the CPUs: the published rule gives nothing to the jobs behind it, the repaired one does.
TEST(SlottedSimulator, OneMisfitBlocksTheOthersOnlyUnderThePublishedRule) {
  const PsSpeedTable speeds = linear_speeds();
  SlottedOptions options;
  options.nodes = 1;
  const PsTrace trace = small_trace({{1, 0, 1, "linear", 100, 1, {2, 4}, {2, 0}, 0},
                                     {2, 0, 1, "linear", 100, 1, {6, 8}, {2, 0}, 0},
                                     {3, 0, 1, "linear", 100, 1, {2, 4}, {2, 0}, 0}});
  SlottedCluster stop(trace, speeds, options), go_on(trace, speeds, options);
  ASSERT_TRUE(stop.begin_slot() && go_on.begin_slot());
  make_ps_drf(MisfitRule::kStop)->allocate(stop);
  make_ps_drf(MisfitRule::kGoOn)->allocate(go_on);
  EXPECT_EQ(stop.state(0).workers, 1);
  EXPECT_EQ(stop.state(2).workers, 0);
  EXPECT_EQ(go_on.state(2).workers, 1);
}

TEST(SlottedSimulator, AJobThatFitsOnNoNodeIsNamedWithItsLine) {
  const PsSpeedTable speeds = linear_speeds();
  const PsTrace trace = small_trace({{1, 0, 1, "linear", 100, 1, {9, 4}, {2, 0}, 7}});
  try {
    SlottedCluster cluster(trace, speeds, {});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.where(), "small:7");
  }
}

TEST(SlottedSimulator, TakingBackAGrantRestoresTheSlot) {
  const PsSpeedTable speeds = linear_speeds();
  const PsTrace trace = small_trace({{1, 0, 1, "linear", 100, 1, {2, 4}, {2, 0}, 0}});
  SlottedCluster cluster(trace, speeds, {});
  ASSERT_TRUE(cluster.begin_slot());
  const PsDemand before = cluster.free();
  ASSERT_TRUE(cluster.grant(0, Grant::kBundle, NodeChoice::kAnyThatFits));
  cluster.undo();
  EXPECT_EQ(cluster.state(0).workers, 0);
  EXPECT_EQ(cluster.free().cpu, before.cpu);
  EXPECT_EQ(cluster.state(0).share, 0);
}

TEST(SlottedSimulator, ARestartCostsItsSecondsOnlyWhenTheAllocationChanges) {
  const PsSpeedTable speeds = linear_speeds();
  SlottedOptions options;
  options.slot_seconds = 60, options.restart_seconds = 30, options.nodes = 1;
  // One pair: 60 batches a slot, the first slot half: 150 batches take 0.5 + 2 slots of work.
  const PsTrace trace = small_trace({{1, 0, 1, "linear", 150, 1, {8, 4}, {0, 4}, 0}});
  const SlottedResult result = simulate_slotted(trace, speeds, *make_ps_fifo(MisfitRule::kGoOn), options);
  EXPECT_NEAR(result.average_completion_time, 3.0, 1e-9);
}

}  // namespace
}  // namespace paceline::schedule
