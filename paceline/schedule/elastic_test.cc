#include "paceline/schedule/elastic.h"

#include <gtest/gtest.h>

#include "paceline/schedule/test_data.h"

namespace paceline::schedule {
namespace {

double average(const std::filesystem::path& data, const std::string& workload, ElasticPolicy& policy) {
  const Applications applications = read_pollux_applications(data / "pollux/traces");
  return simulate_elastic(read_pollux_workload(data / "pollux" / workload), applications, policy, {})
      .average_completion_time;
}

// Published: osdi21-artifact, results-jobload/*/summary.json.
TEST(ElasticSimulator, GivesThePublishedAveragesOfTiresias) {
  PACELINE_SCHEDULE_DATA(data);
  EXPECT_EQ(average(data, "workloads/workload-6.csv", *make_tiresias()), 3469.69375);
  EXPECT_EQ(average(data, "workloads/workload-1.csv", *make_tiresias()), 2473.65);
  EXPECT_EQ(average(data, "workloads/workload-3.csv", *make_tiresias()), 3876.25625);
  EXPECT_EQ(average(data, "workloads-2.0/workload-2.csv", *make_tiresias()), 8655.990625);
}

TEST(ElasticSimulator, GivesThePublishedAveragesOfOptimus) {
  PACELINE_SCHEDULE_DATA(data);
  EXPECT_NEAR(average(data, "workloads/workload-6.csv", *make_elastic_optimus()), 5301.875, 5.3);
  EXPECT_NEAR(average(data, "workloads/workload-1.csv", *make_elastic_optimus()), 4087.0625, 40.8);
}

TEST(ElasticSimulator, NamesTheLineOfAJobThatCanNeverRunAndRunsTheRest) {
  PACELINE_SCHEDULE_DATA(data);
  const Applications applications = read_pollux_applications(data / "pollux/traces");
  Workload workload{"w", {}, {}};
  workload.jobs.resize(3);
  workload.jobs[0] = {.name = "a", .application = "alexnet", .gpus = 1, .batch = 128, .line = 2};
  workload.jobs[1] = {.name = "b", .application = "cifar10", .gpus = 65, .batch = 128, .line = 3};
  workload.jobs[2] = {.name = "c", .application = "cifar10", .gpus = 1, .batch = 128, .line = 4};
  const ElasticResult result = simulate_elastic(workload, applications, *make_tiresias(), {});
  ASSERT_EQ(result.problems.size(), 2u);
  EXPECT_EQ(result.problems[0].where, "w:2");
  EXPECT_EQ(result.problems[1].where, "w:3");
  ASSERT_EQ(result.jobs.size(), 1u);
  EXPECT_TRUE(result.jobs[0].completion.has_value());
}

}  // namespace
}  // namespace paceline::schedule
