#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace paceline::trace {

/// Whole numbers as people write them: "0-7,16". Empty: all.
class Ranges {
 public:
  Ranges() = default;
  /// Throws Error(kUsage) that names `option`.
  Ranges(std::string_view text, std::string_view option);

  bool all() const { return ranges_.empty(); }
  bool contains(std::int64_t number) const;

 private:
  std::vector<std::pair<std::int64_t, std::int64_t>> ranges_;  // both ends included
};

/// The rank a path names, e.g. 3 for "job/rank-3.json.gz" or "rank_3/trace.json"; nothing when it names none.
std::optional<std::uint32_t> rank_from_path(std::string_view path);

/// "<host>_<process>.<ms>.pt.trace.json[.gz]" as torch.profiler.tensorboard_trace_handler names its files.
struct WorkerName {
  std::string host, worker;  // worker = host and process
  std::int64_t milliseconds = 0;
};
std::optional<WorkerName> worker_from_path(std::string_view path);

/// Several captures of one job in one tree: which capture each path is of, and what they are called, the last at the
/// end. One nameless capture when no rank and no worker appears twice. `recorded_rank(i)` is asked only where two paths
/// name the same rank: what the trace itself says counts for more than its path.
struct Captures {
  std::vector<std::string> names;
  std::vector<std::size_t> of_path;
};
Captures find_captures(const std::vector<std::string>& paths,
                       const std::function<std::optional<std::uint32_t>(std::size_t)>& recorded_rank);

/// The capture that `wanted` names (a part of its name, the whole of it first), the last for an empty `wanted`. Throws
/// Error(kUsage) that lists them all.
std::size_t choose_capture(const Captures& captures, std::string_view wanted);

}  // namespace paceline::trace
