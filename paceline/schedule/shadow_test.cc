#include "paceline/schedule/shadow.h"

#include <gtest/gtest.h>

#include "paceline/schedule/learned.h"
#include "paceline/schedule/test_data.h"

namespace paceline::schedule {
namespace {

/// Grants nothing but one pair to the job that came last: as bad as a policy can be that still ends.
class Harmful final : public SlottedPolicy {
 public:
  std::string name() const override { return "harmful"; }
  void allocate(SlottedCluster& cluster) override {
    cluster.grant(cluster.active().back(), Grant::kBundle, NodeChoice::kAnyThatFits);
  }
};

SlottedOptions small_cluster() {
  SlottedOptions options;
  options.nodes = 24;
  return options;
}

TEST(Shadow, AHarmfulPolicyNeverGetsTheCluster) {
  PACELINE_SCHEDULE_DATA(data);
  const PsSpeedTable speeds(read_ps_speeds(data / "dl2/config_speed.txt.gz"), 16);
  const PsTrace trace = read_ps_trace(data / "dl2/traces/trace-01.csv");
  std::vector<ShadowDecision> log;
  const auto guarded = make_ps_shadowed(make_ps_drf(MisfitRule::kGoOn), std::make_unique<Harmful>(), speeds, {}, log);
  const double alone =
      simulate_slotted(trace, speeds, *make_ps_drf(MisfitRule::kGoOn), small_cluster()).average_completion_time;
  EXPECT_EQ(simulate_slotted(trace, speeds, *guarded, small_cluster()).average_completion_time, alone);
  ASSERT_FALSE(log.empty());
  for (const ShadowDecision& decision : log) EXPECT_FALSE(decision.candidate_decides);
}

TEST(Shadow, ABetterPolicyTakesOverAndShadowModeOnlyWatches) {
  PACELINE_SCHEDULE_DATA(data);
  const PsSpeedTable speeds(read_ps_speeds(data / "dl2/config_speed.txt.gz"), 16);
  const PsTrace trace = read_ps_trace(data / "dl2/traces/trace-01.csv");
  const auto run = [&](ShadowOptions options, std::vector<ShadowDecision>& log) {
    const auto policy = make_ps_shadowed(make_ps_drf(MisfitRule::kGoOn), make_ps_shortest_step(), speeds, options, log);
    return simulate_slotted(trace, speeds, *policy, small_cluster()).average_completion_time;
  };
  const double incumbent =
      simulate_slotted(trace, speeds, *make_ps_drf(MisfitRule::kGoOn), small_cluster()).average_completion_time;
  std::vector<ShadowDecision> log, watched;
  EXPECT_LT(run({}, log), 0.85 * incumbent);
  EXPECT_TRUE(log.front().candidate_decides);
  EXPECT_EQ(run({.only_watch = true}, watched), incumbent);
  EXPECT_LT(watched.front().candidate, watched.front().incumbent);
}

}  // namespace
}  // namespace paceline::schedule
