// What the ranks of a modern_job do: groups, kernels, and the program of one rank for each topology.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/job_engine.h"
#include "tests/support/modern_job.h"

namespace paceline::test_support {

/// The mesh of the ranks: rank = ((pipeline * replicas + replica) * shards + shard) * tensors + tensor.
struct Mesh {
  int pipeline = 1, replicas = 1, shards = 1, tensors = 1;
  int gpus_per_host = 8;
};

Mesh mesh_of(const ModernJob& job);

class JobModel {
 public:
  /// `with_fault` false: the same job as it would have been.
  JobModel(const ModernJob& job, Engine& engine, bool with_fault);

  Program program(Machine& machine);

  const Mesh& mesh() const { return mesh_; }
  const ModernJob& job() const { return job_; }
  int fault_rank() const { return fault_rank_; }
  int fault_host() const { return fault_rank_ / mesh_.gpus_per_host; }
  int rail() const { return rail_; }
  const std::vector<int>& slow_groups() const { return slow_groups_; }
  double factor() const { return factor_; }
  std::int64_t injected() const { return injected_; }
  bool by_input() const { return by_input_; }  // whole host: slow input rather than slow clocks
  /// Begin and end of the steps of rank 0.
  const std::vector<std::pair<std::int64_t, std::int64_t>>& steps() const { return steps_; }

 private:
  struct Comm;
  class Rank;
  void make_groups();
  void choose_fault();
  int group_of(int rank, int dimension) const {
    return group_of_[static_cast<std::size_t>(dimension)][static_cast<std::size_t>(rank)];
  }
  /// How strong the fault is on `rank` in the step: 0 = none, 1 = as planned, more when one step has it all.
  double intensity(int rank, int step) const;
  double group_slowness(int group, int step) const;

  ModernJob job_;
  Engine& engine_;
  bool with_fault_;
  Mesh mesh_;
  std::array<std::vector<int>, 5> group_of_;
  int fault_rank_ = 0, rail_ = -1, outlier_step_ = 0, stride_ = 1;
  std::vector<int> slow_groups_;
  double factor_ = 1;
  std::int64_t injected_ = 0;
  bool by_input_ = false;
  std::vector<std::pair<std::int64_t, std::int64_t>> steps_;
};

}  // namespace paceline::test_support
