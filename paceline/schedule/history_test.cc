#include "paceline/schedule/history.h"

#include <gtest/gtest.h>

#include "paceline/base/error.h"
#include "paceline/base/rng.h"

namespace paceline::schedule {
namespace {

TEST(Backtest, ReplaysWhatTheIncumbentDid) {
  const Workload history = generate_history({.days = 5, .seed = 3});
  const std::vector<QueueRule> rules{QueueRule::kFifo, QueueRule::kShortestFirst};
  const Backtest result = backtest(history, QueueRule::kBackfill, rules, {{8, 8}});
  EXPECT_LT(result.median_error, 0.01);
  EXPECT_LT(result.p90_error, 0.01);
  ASSERT_EQ(result.rows.size(), 3u);
  EXPECT_EQ(result.rows[0].worse_off, 0);
  EXPECT_GT(result.rows[1].wait.mean, result.rows[0].wait.mean);  // strict FIFO waits longer than backfill
}

TEST(Eta, TheBandHoldsAboutAsOftenAsItSays) {
  const Workload history = generate_history({.days = 15, .load = 0.85, .seed = 5});
  base::Rng rng(9);
  int inside = 0, asked = 0;
  while (asked < 100) {
    const JobRequest& job = history.jobs[history.jobs.size() / 3 + rng.below(history.jobs.size() / 2)];
    const Snapshot snapshot = snapshot_at(history, {8, 8}, job.submit);
    const Eta eta = estimate_start(snapshot, job.name, limit_shares(history, job.submit),
                                   submitted_before(history, job.submit), {{{8, 8}}, 80, rng.next()});
    ++asked;
    inside += eta.end_low <= job.end && job.end <= eta.end_high;
  }
  // 80 of 100 within three standard errors; on fuller clusters the band is known to be too narrow (README).
  EXPECT_GT(inside, 0.68 * asked);
  EXPECT_LT(inside, 0.92 * asked);
}

TEST(Eta, RefusesAJobThatDoesNotWait) {
  EXPECT_THROW(estimate_start({}, "7", std::vector<LimitShare>{{base::Nanos(1), 0.5}}, {}, {}), Error);
}

}  // namespace
}  // namespace paceline::schedule
