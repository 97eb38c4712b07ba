// Training jobs of several ranks whose every wait, cause and clock is known, as the traces a profiler would have
// written.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "paceline/trace/understand/trace.h"

namespace paceline::test_support {

/// What makes the late rank late.
enum class Lateness {
  kHostOperator,  // an operator of the name `late_name` before it launches
  kHostGap,       // the host does nothing that is recorded
  kKernel,        // a kernel of the name `late_name` before the collective
  kLateStart      // its first step begins later
};

struct JobPlan {
  std::uint32_t ranks = 8, steps = 6, collectives = 4;  // collectives of each step
  std::uint64_t seed = 1;
  bool device = true;               // NCCL kernels on a device; else gloo on the host
  bool sequence = true;             // "Seq" is recorded
  bool groups = false;              // every second collective is of half of the ranks
  std::int64_t work = 2'000'000;    // ns of computation before each collective
  std::int64_t jitter = 50'000;     // ns, the mean of what each rank takes longer by chance (exponential)
  std::int64_t transfer = 300'000;  // ns
  std::int64_t end_noise = 3'000;   // ns, ends of one collective differ by up to this

  std::int32_t late_rank = -1;
  std::int64_t late_by = 0;    // ns, before the first collective of each step
  std::int64_t late_each = 0;  // ns, before every other collective, by aten::sort
  Lateness lateness = Lateness::kHostOperator;
  std::string late_name = "load_batch";

  std::vector<std::int64_t> clock_offset;                          // ns of each rank
  std::vector<double> clock_drift;                                 // ns per ns of each rank
  std::optional<std::pair<std::uint32_t, std::uint32_t>> skipped;  // (rank, collective) that its trace lacks
  std::optional<std::pair<std::uint32_t, std::uint32_t>> added;    // (rank, collective) after which it has one more
  std::int32_t missing_rank = -1;                                  // whose trace is lost
};

/// One collective as it truly was, on one clock.
struct TrueCollective {
  std::vector<std::uint32_t> ranks;
  std::vector<std::int64_t> begins, ends;  // of each of them
  std::uint32_t last_rank = 0;
};

struct SyntheticJob {
  std::vector<std::string> texts;  // of each rank that has a trace
  std::vector<TrueCollective> collectives;
};

SyntheticJob make_job(const JobPlan& plan);

/// Reads one trace from memory, through the same door as a file.
trace::RankTrace read_trace(std::string_view text, const std::string& name = "memory");

/// Reads, reduces and assembles.
trace::Trace load_texts(const std::vector<std::string>& texts, const trace::ReduceOptions& options = {});

}  // namespace paceline::test_support
