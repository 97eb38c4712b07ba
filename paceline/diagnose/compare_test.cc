#include "paceline/diagnose/compare.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "paceline/base/error.h"
#include "paceline/base/file.h"
#include "paceline/diagnose/path.h"
#include "tests/support/synthetic_job.h"

namespace paceline::diagnose {
namespace {

trace::Trace traced(const test_support::JobPlan& plan) {
  std::vector<trace::RankSummary> ranks;
  for (const std::string& text : test_support::make_job(plan).texts) {
    ranks.push_back(trace::reduce(test_support::read_trace(text)));
  }
  return trace::assemble(std::move(ranks));
}

std::int64_t sum_of_groups(const Comparison& comparison) {
  std::int64_t sum = comparison.not_explained;
  for (const Change& group : comparison.groups) sum += group.change;
  return sum;
}

TEST(CriticalPath, TilesTheTimeFromTheFirstStepToTheLast) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    test_support::JobPlan plan;
    plan.seed = seed;
    plan.end_noise = 0;
    const trace::Trace trace = traced(plan);
    const CriticalPath path = critical_path(trace);
    std::int64_t sum = path.clock_error + path.late_start;
    for (const PathSegment& segment : path.segments) {
      EXPECT_LT(segment.begin, segment.end);
      sum += segment.end - segment.begin;
    }
    EXPECT_EQ(sum, path.length) << "seed " << seed;
    // One clock and ends that agree: nothing is lost at the jumps but what profilers round.
    EXPECT_LE(std::abs(path.clock_error), 10'000) << "seed " << seed;
  }
}

TEST(Compare, ARunWithItselfIsAllZero) {
  const Profile profile = profile_of(traced({}), "A");
  const Comparison comparison = compare(profile, profile);
  EXPECT_EQ(comparison.change, 0);
  EXPECT_EQ(comparison.not_explained, 0);
  for (const Change& change : comparison.changes) EXPECT_EQ(change.change, 0) << change.what;
}

TEST(Compare, ChargesALateRankToWhatMadeItLate) {
  test_support::JobPlan plan;
  plan.jitter = 1'000;
  const Profile before = profile_of(traced(plan), "A");
  plan.late_rank = 3;
  plan.late_by = 5'000'000;
  const Profile after = profile_of(traced(plan), "B");
  const Comparison comparison = compare(before, after);
  EXPECT_NEAR(static_cast<double>(comparison.change), 5e6, 0.25e6);
  EXPECT_EQ(sum_of_groups(comparison), comparison.change);
  ASSERT_FALSE(comparison.groups.empty());
  EXPECT_EQ(comparison.groups[0].group, "input");  // the job's late name is load_batch
  EXPECT_GE(static_cast<double>(comparison.groups[0].change), 0.95 * static_cast<double>(comparison.change));
  EXPECT_EQ(comparison.changes[0].rank, 3);
}

TEST(Compare, ARankThatBeganLaterIsChargedForIt) {
  test_support::JobPlan plan;
  plan.jitter = 1'000;
  const Profile before = profile_of(traced(plan), "A");
  plan.late_rank = 3;
  plan.late_by = 6'000'000;
  plan.lateness = test_support::Lateness::kLateStart;
  const Comparison comparison = compare(before, profile_of(traced(plan), "B"));
  EXPECT_NEAR(static_cast<double>(comparison.change), 6e6 / plan.steps, 0.1e6);
  EXPECT_EQ(sum_of_groups(comparison), comparison.change);
  EXPECT_EQ(comparison.changes[0].what, "before the first step: it began later");
  EXPECT_EQ(comparison.changes[0].rank, 3);
}

TEST(Compare, NamesTheRankOfNewTimeBesideTimeThatWasThereBefore) {
  Profile before;
  before.ranks = 2;
  before.steps = 1;
  before.charges = {{"host", "", "no operator", 3, 1, {1, 2}}};
  before.length = 3;
  Profile after = before;
  after.charges = {{"host", "", "no operator", 23, 1, {3, 20}}};
  after.length = 23;
  EXPECT_EQ(compare(before, after).changes[0].rank, 1);
  after.charges = {{"host", "", "no operator", 23, 1, {8, 15}}};
  EXPECT_EQ(compare(before, after).changes[0].rank, -1);
}

TEST(Compare, TellsAddedWorkFromSlowerWork) {
  Profile before;
  before.ranks = 1;
  before.steps = 1;
  before.names = {"aten::add", "aten::mm", "aten::old"};
  before.charges = {{"kernels", "aten::mm", "aten::mm [[2]]", 100, 1, {100}},
                    {"kernels", "aten::old", "aten::old", 30, 1, {30}}};
  before.length = 130;
  Profile after = before;
  after.names = {"aten::add", "aten::mm", "aten::new"};
  // aten::add ran before, if not on the path; aten::mm has another shape.
  after.charges = {{"kernels", "aten::add", "aten::add", 7, 1, {7}},
                   {"kernels", "aten::mm", "aten::mm [[3]]", 150, 1, {150}},
                   {"kernels", "aten::new", "aten::new", 20, 1, {20}}};
  after.length = 177;
  const Comparison comparison = compare(before, after);
  std::map<std::string, std::int64_t> groups;
  for (const Change& group : comparison.groups) groups[group.group] = group.change;
  EXPECT_EQ(groups, (std::map<std::string, std::int64_t>{{"added work", 20}, {"kernels", 57}, {"removed work", -30}}));
  EXPECT_EQ(comparison.not_explained, 0);
  EXPECT_EQ(comparison.change, 47);
}

TEST(Compare, ASavedProfileIsReadAsItWas) {
  const Profile profile = profile_of(traced({}), "A");
  const auto path = std::filesystem::temp_directory_path() / ("paceline_compare_test_" + std::to_string(::getpid()));
  base::write_text_file(path, to_json(profile).dump());
  const Profile read = read_profile(path.string());
  std::filesystem::remove(path);
  EXPECT_EQ(to_json(read), to_json(profile));
  const Comparison comparison = compare(profile, read);
  EXPECT_EQ(comparison.change, 0);
}

TEST(Compare, AProfileWithoutItsFieldsIsNamed) {
  const auto path = std::filesystem::temp_directory_path() / ("paceline_compare_bad_" + std::to_string(::getpid()));
  base::write_text_file(path, R"({"schema": "paceline/baseline/1", "source": "x"})");
  EXPECT_THROW(read_profile(path.string()), Error);
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace paceline::diagnose
