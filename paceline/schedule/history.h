#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "paceline/base/json.h"
#include "paceline/schedule/rigid.h"

// What a recorded past tells: how faithfully a rule replays it, what other rules would have done, when a job will
// start.

namespace paceline::schedule {

/// A month of a cluster that never was: jobs come by day and night, run log-normally long, ask for 1 to 16 GPUs and for
/// a multiple of their run time as limit; started by EASY backfill. Submit, start and end are whole seconds.
struct HistoryGenerator {
  int days = 30;
  RigidCluster cluster{8, 8};
  double load = 0.85;  // GPU seconds asked for, of those there are
  std::uint64_t seed = 1;
};
Workload generate_history(const HistoryGenerator& generator);

struct BacktestRow {
  std::string policy;
  WaitSummary wait{};
  double average_completion = 0;  // seconds
  double utilisation = 0;
  double worse_off = 0;  // share of jobs that end later than under the replayed incumbent, by more than a second
};
struct Backtest {
  std::string incumbent;
  WaitSummary recorded{};
  double recorded_utilisation = 0;
  double median_error = 0, p90_error = 0;  // replayed incumbent against the record, shares (of at least a minute)
  std::vector<BacktestRow> rows{};         // the incumbent first
  std::vector<Problem> problems{};
};
/// Replays the jobs of `history` (which must hold starts and ends) under the incumbent and the other rules.
Backtest backtest(const Workload& history, QueueRule incumbent, std::span<const QueueRule> rules,
                  const RigidOptions& options);
base::Json to_json(const Backtest& result);
std::string to_text(const Backtest& result);

/// The moment of a cluster: what runs and what waits, in the order of the queue.
struct Snapshot {
  base::Nanos now{0};
  std::vector<JobRequest> running;       // start and limit are set
  std::vector<NodeParts> running_nodes;  // where they are, empty: not known
  std::vector<JobRequest> waiting;
};
/// Placements are those of replay_placements().
Snapshot snapshot_at(const Workload& history, const RigidCluster& cluster, base::Nanos now);

/// How long jobs ran of what they asked for, by time limit: of those that ended before `until`. Long limits are used
/// up less, so a job is compared with jobs of about its own limit.
struct LimitShare {
  base::Nanos limit{0};
  double share = 0;  // run time / time limit
};
std::vector<LimitShare> limit_shares(const Workload& history, base::Nanos until);

struct Eta {
  base::Nanos start_low{0}, start_median{0}, start_high{0};  // 10 %, 50 %, 90 %
  base::Nanos end_low{0}, end_median{0}, end_high{0};
};
struct EtaOptions {
  RigidOptions rigid;
  int draws = 200;
  std::uint64_t seed = 1;
};
/// Simulates the queue on from the snapshot, `draws` times, with run times drawn from `shares` (for running jobs among
/// those longer than they have run) and with the jobs that will come after: those that came after the same time of day
/// on a random day of `past` (none when it is empty). Throws Error(kBadInput) when the job does not
/// wait or never fits.
Eta estimate_start(const Snapshot& snapshot, const std::string& job, std::span<const LimitShare> shares,
                   std::span<const JobRequest> past, const EtaOptions& options);
/// The jobs of `history` (in order of submission) that came before `now`.
std::span<const JobRequest> submitted_before(const Workload& history, base::Nanos now);

/// An estimate beside what happened, when the history holds it.
struct EtaRow {
  std::string job;
  base::Nanos now{0};
  Eta eta;
  base::Nanos start{-1}, end{-1};  // what happened after `now`
};
/// `at`: a timestamp; empty: the moment when the job was submitted. Only what ended before is learned from.
EtaRow eta_from_history(const Workload& history, const std::string& job, const std::string& at,
                        const EtaOptions& options);
base::Json to_json(const std::vector<EtaRow>& rows);
std::string to_text(const std::vector<EtaRow>& rows);

}  // namespace paceline::schedule
