#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "paceline/taskgraph/delta.h"
#include "paceline/trace/graph/job_graph.h"
#include "paceline/tune/fusion.h"

namespace paceline::tune {

/// Gradients in the order in which they become ready, cut into buckets that are reduced as one: bucket b ends before
/// ends[b].
struct BucketPlan {
  std::vector<std::uint32_t> ends;
  double first_mb = 0, cap_mb = 0;  // the limits of DistributedDataParallel that give this plan; 0 = none does
};

/// What a data-parallel job synchronises: bytes of the gradients in the order of their readiness (alike in all ranks
/// and steps), the collectives that carry them, and what these cost by their size.
struct GradientSync {
  std::vector<std::int64_t> bytes;                            // of each gradient
  std::vector<std::vector<taskgraph::CollectiveId>> of_step;  // all-reduces of each step, in order; empty where they do
                                                              // not carry the gradients
  std::vector<std::vector<taskgraph::TaskId>> apart;  // parts in all-reduces of each step that could not be joined
  std::vector<std::int64_t> bucket_bytes;             // recorded, of the first step that has them
  SyncCost cost;
};

/// Nothing when the job was recorded without shapes, or its all-reduces do not carry its gradients; `why` says so.
std::optional<GradientSync> find_gradient_sync(const trace::JobGraph& job, std::string& why);

/// The recorded all-reduces taken out and those of the plan put in, in every step: each is issued when the last
/// gradient of its bucket is ready, and what waited for any of the old ones waits for all of the new ones.
taskgraph::Delta rebucket(const trace::JobGraph& job, const GradientSync& sync, const BucketPlan& plan);

/// The plan DistributedDataParallel makes of two limits in MiB: a bucket closes with the gradient that reaches the
/// limit (torch.distributed, compute_bucket_assignment_by_size), the first one's and then the others'.
BucketPlan ddp_plan(const std::vector<std::int64_t>& bytes, double first_mb, double cap_mb);

/// HOROVOD_TENSOR_GROUP_FILE: {"mapping": ["0+1+2", "3+4"]}, gradients numbered in the order of their readiness.
std::string horovod_file(const BucketPlan& plan);
/// BYTEPS_PARTITION_SPEC_FILE: a line "<tensor> <bytes>" for each bucket.
std::string byteps_file(const BucketPlan& plan, const std::vector<std::int64_t>& bytes);

}  // namespace paceline::tune
