#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "paceline/gnn/cache.h"
#include "paceline/gnn/dataset.h"
#include "paceline/gnn/order.h"

namespace paceline::gnn {

/// What `gnn plan` is asked: how to feed a trainer from this graph within this memory.
struct DataPlanRequest {
  std::vector<int> fanout;
  std::size_t batch = 1024;
  std::uint64_t feature_row_bytes = 512;
  std::uint64_t memory_bytes = 0;       // for cached feature rows
  double disk_rows_per_s = 40'000;      // random rows the disk gives
  double allowed_label_distance = 1.5;  // of an order, against random's
  std::size_t look_ahead = 16;          // batches
  std::uint64_t seed = 1;
};

struct DataPlan {
  struct PolicyForecast {
    std::string name;
    double hit_ratio = 0;
    double missed_rows_per_batch = 0;
  };
  OrderChoice order;
  std::uint64_t cached_rows = 0;
  double inputs_per_batch = 0;           // different nodes whose features a batch needs
  std::vector<PolicyForecast> policies;  // best first
  double sample_seconds_per_batch = 0;   // CPU, one thread
  double read_seconds_per_batch = 0;
  double batches_per_s = 0;  // sampling on one thread beside reading; training not counted
  double epoch_seconds = 0;
  std::string bound;  // "sampling" or "disk"
  std::size_t sampled_batches = 0;
};

/// Chooses order and cache policy by sampling a stretch of batches and simulating the policies on them.
/// Throws Error(kInfeasible) when there are no training nodes.
DataPlan plan_data(const Dataset& dataset, const DataPlanRequest& request);

}  // namespace paceline::gnn
