#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace paceline::test_support {

/// An operation of a made job: of which worker, and where in the step.
struct PipelineOperation {
  std::string_view name;
  std::uint32_t stage = 0, dp_rank = 0;
  std::int32_t step = 0, model_chunk = -1, sequence = 0;
  std::int64_t begin = 0, end = 0;  // us
};

/// A job with pipeline and data parallelism that follows its dependencies without any delay, worked out operation by
/// operation from what each waits for.
struct PipelineJob {
  std::uint32_t stages = 4, dp_ranks = 2, chunks = 1, micro_batches = 8;
  std::int32_t steps = 2;
  bool overlapped_reduction = false;
  bool idle_transfers = false;  // interleaved pipelines: write the transfers that never take place, too
  /// us that an operation needs once it may run.
  std::function<std::int64_t(const PipelineOperation&)> duration = [](const PipelineOperation&) { return 1000; };

  std::vector<PipelineOperation> operations() const;
};

/// As an ndtimeline file.
std::string to_ndtimeline(const std::vector<PipelineOperation>& operations);

}  // namespace paceline::test_support
