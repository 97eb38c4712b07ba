#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <queue>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "paceline/schedule/ps_speed.h"
#include "paceline/schedule/workload.h"

// The slotted simulator of elastic parameter-server jobs: the rules of DL2's simulator. Every slot starts from nothing;
// the policy hands out workers and servers one increment at a time; then every job that got both trains one slot.

namespace paceline::schedule {

/// A task's demand or a node's capacity.
struct PsDemand {
  int cpu = 0, gpu_slots = 0;
  PsDemand operator+(const PsDemand& other) const { return {cpu + other.cpu, gpu_slots + other.gpu_slots}; }
  int sum() const { return cpu + gpu_slots; }
};

struct PsJob {
  int id = 0;
  int arrival = 0;  // slot
  int type = 0;     // 1..; same number, same model
  std::string model;
  double epochs = 0;         // to train in all
  double epoch_batches = 0;  // batches in one epoch
  PsDemand worker, server;
  int line = 0;
};

struct PsTrace {
  std::string name;
  std::vector<PsJob> jobs;
  std::vector<Problem> problems;
};
/// job,arrival_slot,type,model,num_epochs,epoch_size_batches,...,worker_cpu,worker_gpu_slots,ps_cpu,ps_gpu_slots
PsTrace read_ps_trace(const std::filesystem::path& path);

/// Epochs a slot of every model for every (servers, workers) up to the most a job may have.
class PsSpeedTable {
 public:
  PsSpeedTable(const std::map<std::string, PsSpeed>& speeds, int most_tasks);
  /// Batches per second.
  double at(std::size_t model, int servers, int workers) const {
    return table_[(model * side_ + static_cast<std::size_t>(servers)) * side_ + static_cast<std::size_t>(workers)];
  }
  std::optional<std::size_t> find(const std::string& model) const;
  int most_tasks() const { return most_tasks_; }

 private:
  std::vector<std::string> names_;
  std::vector<double> table_;
  int most_tasks_;
  std::size_t side_;
};

struct SlottedOptions {
  int nodes = 96;
  PsDemand node{8, 8};
  double slot_seconds = 1200;
  double restart_seconds = 0;  // lost by a job whose (servers, workers) changed since the slot before
  int slots_per_arrival = 1;   // arrivals of the trace are multiplied by this (20 for 60-s slots)
  int give_up = 100'000;       // slots; some rules never finish some jobs (speeds of zero were measured)
};

/// What is granted in one call.
enum class Grant : std::uint8_t { kWorker, kServer, kBundle };
/// Which nodes a grant may use: only the least used one (DL2's rule), or the first in that order where it fits.
enum class NodeChoice : std::uint8_t { kLeastUsedOnly, kAnyThatFits };

class SlottedCluster {
 public:
  struct JobState {
    double progress = 0;                    // epochs
    std::optional<double> completion_time;  // slots
    int workers = 0, servers = 0;           // of this slot
    int last_workers = 0, last_servers = 0;
    double share = 0;  // dominant share of what is granted in this slot
  };

  SlottedCluster(const PsTrace& trace, const PsSpeedTable& speeds, SlottedOptions options);

  /// Clears all allocations and takes in the jobs that arrive. False when every job is done.
  bool begin_slot();
  /// The unfinished jobs of this slot by arrival and id: indices.
  std::span<const std::uint32_t> active() const { return active_; }
  /// Grants one increment on one node; false, and nothing changed, when it does not fit.
  bool grant(std::uint32_t job, Grant grant, NodeChoice choice);
  /// Called before every grant that succeeds, with the state as it was: how a learner watches any policy.
  void on_grant(std::function<void(std::uint32_t job, Grant grant)> watch) { watch_ = std::move(watch); }
  /// Takes back the last grant of this slot.
  void undo();
  /// Everything that was granted trains. Returns the slot's reward: sum of trained epochs / epochs of the job.
  double finish_slot();

  int slot() const { return slot_; }
  const PsJob& job(std::uint32_t i) const { return jobs_[i]; }
  const JobState& state(std::uint32_t i) const { return states_[i]; }
  std::size_t size() const { return jobs_.size(); }
  const SlottedOptions& options() const { return options_; }
  int most_tasks() const { return speeds_->most_tasks(); }
  double remaining(std::uint32_t i) const { return jobs_[i].epochs - states_[i].progress; }
  /// Epochs in a slot without restart; 0 without a worker or without a server.
  double speed(std::uint32_t i, int servers, int workers) const {
    if (servers == 0 || workers == 0) return 0;
    return speeds_->at(model_[i], servers, workers) * options_.slot_seconds / jobs_[i].epoch_batches;
  }
  /// Unused CPUs and GPU slots of the whole cluster.
  PsDemand free() const { return free_; }
  PsDemand capacity() const { return capacity_; }
  double dominant_share(const PsDemand& demand) const;

  double average_completion_time() const;  // slots
  double makespan() const { return makespan_; }
  double mean_reward() const { return reward_sum_ / (slot_ + 1); }

 private:
  PsDemand demand_of(std::uint32_t job, Grant grant) const;
  void book(std::uint32_t job, Grant grant, int node, int sign);

  std::vector<PsJob> jobs_;
  const PsSpeedTable* speeds_;
  SlottedOptions options_;
  std::vector<std::size_t> model_;
  std::vector<JobState> states_;
  std::vector<std::uint32_t> active_;
  std::vector<PsDemand> used_;            // by node
  std::set<std::pair<int, int>> by_use_;  // (used sum, node)
  PsDemand free_, capacity_;
  struct Granted {
    std::uint32_t job;
    Grant grant;
    int node;
  };
  std::function<void(std::uint32_t, Grant)> watch_;
  std::vector<Granted> granted_;  // of this slot, in order
  std::size_t next_arrival_ = 0, unfinished_ = 0;
  int slot_ = -1;
  double makespan_ = 0, reward_sum_ = 0;
};

class SlottedPolicy {
 public:
  virtual ~SlottedPolicy() = default;
  virtual std::string name() const = 0;
  virtual void allocate(SlottedCluster& cluster) = 0;
};

struct SlottedResult {
  double average_completion_time = 0;  // slots
  double makespan = 0;                 // slots
  double mean_reward = 0;
  std::vector<double> completion_times;  // slots, by job of the trace
};

SlottedResult simulate_slotted(const PsTrace& trace, const PsSpeedTable& speeds, SlottedPolicy& policy,
                               const SlottedOptions& options);

/// The rules as published stop a slot at the first grant that fails on the least used node. Repaired, they try other
/// nodes, then go on with the other jobs.
enum class MisfitRule : std::uint8_t { kStop, kGoOn };

std::unique_ptr<SlottedPolicy> make_ps_fifo(MisfitRule rule);
std::unique_ptr<SlottedPolicy> make_ps_srtf(MisfitRule rule);
std::unique_ptr<SlottedPolicy> make_ps_drf(MisfitRule rule);
std::unique_ptr<SlottedPolicy> make_ps_optimus(MisfitRule rule);
/// Optimus whose next step may be any larger (servers, workers) of the job's grid: the one with most saved time for
/// its dominant share, so that it does not stop at a local optimum.
std::unique_ptr<SlottedPolicy> make_ps_optimus_search();

}  // namespace paceline::schedule
