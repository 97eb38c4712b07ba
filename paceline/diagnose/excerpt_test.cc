#include "paceline/diagnose/excerpt.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "paceline/trace/understand/launches.h"
#include "tests/support/synthetic_job.h"

namespace paceline::diagnose {
namespace {

using test_support::JobPlan;

struct Job {
  explicit Job(const JobPlan& plan)
      : texts(test_support::make_job(plan).texts), trace(test_support::load_texts(texts)), diagnosis(diagnose(trace)) {}
  const Finding& late() const {
    for (const Finding& finding : diagnosis.findings) {
      if (finding.kind == "late_rank") return finding;
    }
    throw std::runtime_error("the job has no late rank");
  }
  std::vector<std::string> texts;
  trace::Trace trace;
  Diagnosis diagnosis;
};

JobPlan late_plan() {
  JobPlan plan;
  plan.ranks = 12;
  plan.steps = 9;
  plan.late_rank = 7;
  plan.late_by = 3'000'000;
  return plan;
}

std::size_t steps_in(const Selection& selection, std::size_t all) {
  return selection.steps ? static_cast<std::size_t>(selection.steps->second - selection.steps->first + 1) : all;
}

TEST(Excerpt, IsTheSmallestPartThatIsAskedFor) {
  const Job job(late_plan());
  // Shows where rank 7 is with at least three others and at least four steps.
  int asked = 0;
  const auto shows = [&](const Selection& part) {
    ++asked;
    return std::find(part.ranks.begin(), part.ranks.end(), 7u) != part.ranks.end() && part.ranks.size() >= 4 &&
           steps_in(part, 9) >= 4;
  };
  const auto part = smallest_selection(job.trace, job.diagnosis, job.late(), shows);
  ASSERT_TRUE(part);
  EXPECT_EQ(part->ranks.size(), 4u);
  EXPECT_EQ(steps_in(*part, 9), 5u);  // lengths are 1, 2, 3, 5, 8
  EXPECT_TRUE(std::is_sorted(part->ranks.begin(), part->ranks.end()));
  EXPECT_LE(asked, 32);
}

TEST(Excerpt, NeedsTheWholeJobOrNothingAtAll) {
  const Job job(late_plan());
  const auto whole = [](const Selection& part) { return part.ranks.size() == 12 && !part.steps; };
  const auto part = smallest_selection(job.trace, job.diagnosis, job.late(), whole);
  ASSERT_TRUE(part);
  EXPECT_EQ(part->ranks.size(), 12u);
  EXPECT_FALSE(part->steps);
  EXPECT_FALSE(smallest_selection(job.trace, job.diagnosis, job.late(), [](const Selection&) { return false; }));
}

TEST(Excerpt, FindingsAreTheSameWhenTheySayTheSameAtALikeCost) {
  const Job job(late_plan());
  const Finding late = job.late();
  EXPECT_EQ(same_finding(job.diagnosis, late, true), &job.late());
  Finding other = late;
  other.rank = 6;
  EXPECT_EQ(same_finding(job.diagnosis, other, false), nullptr);
  other = late;
  other.cost = 3 * late.cost;
  EXPECT_EQ(same_finding(job.diagnosis, other, false), nullptr);
  other = late;
  other.fault = Fault::kClock;
  EXPECT_EQ(same_finding(job.diagnosis, other, false), nullptr);
}

TEST(Excerpt, FewerRowsKeepAllWorkOfTheDevice) {
  const Job job(late_plan());
  trace::Row before = 0;
  for (const HostRows level :
       {HostRows::kLaunches, HostRows::kOutermost, HostRows::kOperators, HostRows::kEverything}) {
    trace::RankTrace rank = test_support::read_trace(job.texts[7]);
    const auto device_time = [&] {
      std::int64_t time = 0;
      for (trace::Row row = 0; row < rank.slices.size(); ++row) {
        time += trace::is_device_work(rank.slices.category[row]) ? rank.slices.duration[row] : 0;
      }
      return time;
    };
    const std::int64_t time = device_time();
    drop_rows(rank, level);
    EXPECT_EQ(device_time(), time);
    const std::vector<trace::Row> launcher = trace::link_launches(rank);
    for (trace::Row row = 0; row < rank.slices.size(); ++row) {
      EXPECT_TRUE(!trace::is_device_work(rank.slices.category[row]) || launcher[row] != trace::kNoRow);
    }
    EXPECT_GE(rank.slices.size(), before);
    before = rank.slices.size();
  }
}

}  // namespace
}  // namespace paceline::diagnose
