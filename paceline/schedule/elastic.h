#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "paceline/schedule/goodput.h"
#include "paceline/schedule/profile.h"
#include "paceline/schedule/workload.h"

// The slotted simulator of elastic, all-reduce training jobs on nodes of GPUs, second for second the rules of Pollux's
// published simulator (osdi21-artifact), so that its published results are exact targets.

namespace paceline::schedule {

/// A job of the simulation. Times are whole seconds, as in the published simulator.
struct ElasticJob {
  const JobRequest* request = nullptr;
  const Application* application = nullptr;
  std::int64_t submit = 0;
  int target_batch = 0;  // total batch that the user fixed; 0 when the policy co-tunes it
  bool learns = false;   // fits its step model from what it sees
  std::optional<std::int64_t> completion;

  Allocation allocation;
  Placement placement;
  int atomic_batch = 0, accumulation = 0;
  std::int64_t restart_left = 0;  // seconds until it computes again
  int restarts = -1;              // -1: never started
  double progress = 0;            // steps at the initial batch
  int epoch = 0;
  std::int64_t attained_service = 0;  // GPU seconds
  int largest_profiled = 0;           // replicas

  std::vector<StepSample> samples;  // what it saw so far, one per configuration
  std::optional<StepModel> model;
  Application::GradientNoise noise;
};

/// What a policy sees between two slots.
struct ElasticView {
  std::int64_t now = 0;
  std::span<const int> node_gpus;
  std::span<const ElasticJob> jobs;
  std::span<const std::uint32_t> active;  // submitted and unfinished, in workload order
};

class ElasticPolicy {
 public:
  virtual ~ElasticPolicy() = default;
  virtual std::string name() const = 0;
  /// Whether jobs choose their own batch by goodput instead of the user's.
  virtual bool co_tunes_batch() const { return false; }
  /// `next[i]` is the allocation of `active[i]`; it comes in as the current one. Replicas on one node stand together.
  virtual void decide(const ElasticView& view, std::vector<Allocation>& next) = 0;
};

struct ElasticOptions {
  int nodes = 16;
  int gpus_per_node = 4;
  std::int64_t slot = 60;          // seconds
  std::int64_t restart_cost = 30;  // seconds without progress after each change of an allocation
  double interference = 0;         // slow-down of distributed jobs that share a node
  std::int64_t give_up = 10LL * 365 * 86400;
};

struct JobOutcome {
  std::string name;
  std::int64_t submit = 0;
  std::optional<std::int64_t> completion;
  int restarts = 0;
  std::int64_t gpu_seconds = 0;
};

struct ElasticResult {
  std::vector<JobOutcome> jobs;        // in workload order
  std::vector<Problem> problems;       // jobs left out: unknown application, never able to fit
  double average_completion_time = 0;  // seconds, over finished jobs
  std::int64_t makespan = 0;
  double utilisation = 0;  // GPU seconds allocated of those there were until the last job finished
  /// One entry for each change: time, job, GPUs per node run (empty: none).
  struct Change {
    std::int64_t time;
    std::uint32_t job;
    Allocation allocation;
  };
  std::vector<Change> timeline;
};

using Applications = std::map<std::string, std::unique_ptr<Application>, std::less<>>;

/// Runs until every job is done. Policies that oversubscribe a node are a bug (PL_CHECK).
ElasticResult simulate_elastic(const Workload& workload, const Applications& applications, ElasticPolicy& policy,
                               const ElasticOptions& options);

/// Tiresias (NSDI'19) as in Pollux's simulator: two queues by attained GPU time (demotion at 16 GPU hours), first come
/// first served inside a queue, jobs that do not fit are passed over.
std::unique_ptr<ElasticPolicy> make_tiresias();
/// Optimus (EuroSys'18) with oracle step times and remaining steps, as in Pollux's simulator.
std::unique_ptr<ElasticPolicy> make_elastic_optimus();

struct PolluxOptions {
  int population = 100;
  int generations = 30;  // a slot; the population lives on to the next slot
  std::uint64_t seed = 1;
};
/// Pollux (OSDI'21): co-tunes batches, fits step models, genetic search for the best power mean (p = -1) of speed-ups
/// over the fair share, with its restart penalty; at most one distributed job on a node.
std::unique_ptr<ElasticPolicy> make_pollux(PolluxOptions options = {});

struct ShortestGoodputOptions {
  double shortness = 0.5;       // weight of a job: remaining seconds on one GPU to the power -shortness
  double concavity = 1.0;       // value of a speed-up: to this power
  double change_penalty = 0.2;  // share of its value that a changed count loses
};
/// Ours: greedy by marginal value for a GPU, value = weight * speed-up over one GPU, from the applications' profiles
/// and the remaining epochs (what Optimus with its oracle knows, and recurring jobs tell); co-tunes batches.
std::unique_ptr<ElasticPolicy> make_shortest_goodput(ShortestGoodputOptions options = {});

}  // namespace paceline::schedule
