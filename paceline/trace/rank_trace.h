#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "paceline/base/intern.h"
#include "paceline/base/units.h"
#include "paceline/trace/repairs.h"

namespace paceline::trace {

using base::LaneId;
using base::NameId;
using base::Nanos;

/// A row of RankTrace::slices.
using Row = std::uint32_t;
inline constexpr Row kNoRow = 0xFFFFFFFFu;

enum class Category : std::uint8_t {
  kCpuOp,
  kUserAnnotation,
  kGpuAnnotation,  // the shadow of a user annotation on a GPU stream
  kPython,
  kRuntime,  // CUDA or HIP runtime and driver calls on the host
  kKernel,
  kMemcpy,
  kMemset,
  kSync,  // a stream, event or context synchronisation as seen by the device
  kOther
};

std::string_view category_name(Category category);
/// Work that occupies the device: kernels, copies and fills.
constexpr bool is_device_work(Category category) {
  return category == Category::kKernel || category == Category::kMemcpy || category == Category::kMemset;
}

/// Whatever runs one slice after another: a host thread or a device stream.
struct Lane {
  std::string process;  // as recorded: process id, or device index
  std::string thread;   // as recorded: thread id, or stream number
  std::string name;     // thread or process name where the trace gives one
  std::string process_name;
  bool device = false;
  Row begin = 0, end = 0;  // its rows
};

/// Slices as columns, ordered by lane, then start, then the longer first, so that a parent comes before its children.
struct Slices {
  std::vector<std::int64_t> start;     // ns; absolute where the trace is
  std::vector<std::int64_t> duration;  // ns, >= 0
  std::vector<NameId> name;
  std::vector<LaneId> lane;
  std::vector<std::uint32_t> correlation;  // of runtime calls and device work; 0 = none
  std::vector<NameId> shapes;              // "Input Dims" of CPU ops and annotations; kNone = not recorded
  std::vector<Category> category;

  Row size() const { return static_cast<Row>(start.size()); }
  std::int64_t end(Row row) const { return start[row] + duration[row]; }
};

struct Instant {
  std::int64_t time;
  NameId name;
  LaneId lane;
};

/// An allocation (bytes > 0) or a release (bytes < 0) as the framework's allocator reported it. Read only where asked
/// for (ReadOptions).
struct AllocatorEvent {
  std::int64_t time;
  std::int64_t bytes;
  std::int64_t allocated = -1;  // the allocator's own total after it; -1 = not recorded
  std::int64_t reserved = -1;   // what it holds of the device, free blocks included
  std::uint64_t address = 0;
  std::int32_t device = kHostMemory;
  LaneId lane;

  static constexpr std::int32_t kHostMemory = -1;
};

/// What the trace itself says of a collective: arguments of the NCCL kernel or of record_param_comms.
struct CollectiveArgs {
  Row row = kNoRow;
  NameId collective = base::kNone<NameId>;
  NameId group = base::kNone<NameId>;        // process group name
  NameId group_ranks = base::kNone<NameId>;  // alike on all ranks; of a transfer between two ranks only those two
  NameId dtype = base::kNone<NameId>;
  std::int64_t in_elements = -1;
  std::int64_t out_elements = -1;
  std::int64_t sequence = -1;
  std::int32_t group_size = -1;
};

/// What an ndtimeline says of an operation of a pipelined training step; -1 = not said.
struct PipelineArgs {
  Row row = kNoRow;
  std::int32_t step = -1;
  std::int32_t model_chunk = -1;
  std::int32_t sequence = -1;  // n-th of its name on this worker in this step
};

/// How many well-formed events of each kind were read, whether or not they became rows.
struct EventCounts {
  std::int64_t complete = 0, begin_end = 0, metadata = 0, instant = 0, flow = 0, counter = 0, other = 0;
  std::int64_t total() const { return complete + begin_end + metadata + instant + flow + counter + other; }
};

struct Device {
  std::int32_t id = 0;
  std::string name;
};

/// What is known of a rank's recording besides its rows; kept when the rows are released.
struct RankHeader {
  std::string source;  // file or archive member
  std::string format;
  std::optional<std::uint32_t> rank;
  std::uint32_t world_size = 0;  // 0 = not recorded
  std::string backend;           // "nccl", "gloo", ...; empty = not recorded
  std::int64_t base_time = 0;    // ns; what the file says its times are relative to; already added to every time
  std::string host;              // empty = unknown
  std::vector<Device> devices;
  EventCounts events;
  Repairs repairs;
};

/// One rank's recording as columns. Released once it is reduced to a RankSummary.
struct RankTrace : RankHeader {
  base::InternTable names;
  std::vector<Lane> lanes;
  Slices slices;
  std::vector<Instant> instants;
  std::vector<CollectiveArgs> collective_args;  // ordered by row
  std::vector<PipelineArgs> pipeline_args;      // ordered by row
  std::vector<AllocatorEvent> allocator;        // by time, at equal times as in the file

  std::string_view name(Row row) const { return names.text(slices.name[row]); }
};

/// Puts the rows in order, fills the lanes' ranges and counts overlapping slices. Called once by every reader.
void finish_slices(RankTrace& trace);

}  // namespace paceline::trace
