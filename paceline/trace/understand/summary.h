#pragma once
#include <string>
#include <vector>

#include "paceline/trace/rank_trace.h"
#include "paceline/trace/understand/intervals.h"
#include "paceline/trace/understand/names.h"

namespace paceline::trace {

/// One training step of one rank. The parts add up to `end - begin` exactly:
/// compute + exposed communication + exposed copies + idle + lead + tail.
struct StepSummary {
  std::int64_t number = -1;         // from "ProfilerStep#N"; -1 when the trace marks no steps and all of it is one
  std::int64_t begin = 0, end = 0;  // ns, this rank's clock
  std::int64_t compute = 0;         // busy with computation
  std::int64_t communication = 0;   // busy with collectives, overlapped or not
  std::int64_t overlap = 0;         // of communication, hidden behind computation
  std::int64_t copies = 0;          // busy with copies and fills
  std::int64_t exposed_copies = 0;  // not hidden behind computation or communication
  std::int64_t idle = 0;            // nothing runs, between the first and the last device work
  std::int64_t idle_host = 0;       // of idle: the next work was launched only after the device had run dry
  std::int64_t idle_gap = 0;        // of idle: launched in time, a gap below kKernelGap
  std::int64_t lead = 0, tail = 0;  // before the first and after the last device work
  std::int64_t exposed_communication() const { return communication - overlap; }
  std::int64_t idle_other() const { return idle - idle_host - idle_gap; }
};
/// HTA's threshold for "kernel wait" (strictly below 30 us); see its idle time breakdown.
inline constexpr std::int64_t kKernelGap = 30'000;

/// What a moment of a rank is charged to. Where several things run at once the first of these counts, so that the
/// charges of a rank add up to its time.
enum class Activity : std::uint8_t {
  kCompute,
  kCommunication,  // exposed: no computation runs
  kCopy,           // exposed
  kHostOp,         // the device is idle because the host launches late, and the host runs an operator, call or span
  kHostGap,        // likewise, and the host is in no operator: Python, a pause, another process
  kLaunchGap,      // a gap below kKernelGap between kernels launched in time
  kHeldBack        // idle although launched in time: held back by a dependency
};

/// "compute", "communication", "copy", "host_op", "host_gap", "launch_gap", "held_back".
std::string_view activity_name(Activity activity);

/// Time of one rank charged to one thing.
struct SlotItem {
  Activity activity;
  NameId name;          // kernel, operator, call or collective; kNone = no name, or the rest of many small ones
  NameId op;            // operator that launched it
  NameId shape;         // "Input Dims" of that operator
  NameId span;          // annotation around it, e.g. "load_batch" or "FSDP::all_gather (layers.3)"
  std::uint32_t count;  // how many began here
  std::int64_t time;    // ns
};

/// A stretch of a rank's time between two marks: begins and ends of its collectives and steps. Its items, largest
/// first, add up to its length.
struct Slot {
  std::int64_t begin, end;
  std::uint32_t items_begin, items_end;  // in RankSummary::slot_items
};

/// Between the ranks and the name of a process group.
inline constexpr std::string_view kGroupAs = " as ";

/// A collective as one rank saw it.
struct CommEvent {
  std::int64_t begin = 0, end = 0;  // on the device, or on the host for gloo
  std::int64_t issued = 0;          // when the host launched it; begin for host-side collectives
  std::int64_t sequence = -1;       // NCCL's own number, when recorded
  std::int64_t elements = -1;       // of the larger side; -1 = not recorded
  NameId name = base::kNone<NameId>;
  NameId group = base::kNone<NameId>;  // identity of the process group, "<ranks> as <name>"; kNone = the only one
  NameId dtype = base::kNone<NameId>;
  CollectiveKind kind = CollectiveKind::kUnknown;
  NameId layer = base::kNone<NameId>;  // annotation around its launch
  bool on_device = false;
};

struct NameTotal {
  NameId name;
  std::int64_t count = 0, total = 0, self = 0, min = 0, max = 0;
  CollectiveKind collective = CollectiveKind::kNone;
  Category category = Category::kOther;
};

/// Idle time of one stream as HTA splits it: the whole gap before each event goes to one class.
struct StreamIdle {
  std::string device, stream;
  std::int64_t host_wait = 0, kernel_wait = 0, other = 0;
};

/// Totals over the whole capture with HTA's conventions (see reduce()).
struct DeviceTotals {
  std::int64_t span = 0, idle = 0, compute = 0, communication = 0, copies = 0, overlap = 0;
  std::vector<StreamIdle> streams;
};

/// All that is kept of a rank once its rows are released.
struct RankSummary : RankHeader {
  base::InternTable names;
  std::vector<StepSummary> steps;
  std::vector<CommEvent> collectives;  // by begin
  std::vector<Slot> slots;             // tile the time from the first step's begin to the last one's end
  std::vector<SlotItem> slot_items;
  std::vector<NameTotal> kernels;    // device work by name, largest total first
  std::vector<NameTotal> operators;  // host operators by name, largest self time first
  /// Kernels of names that no table knows, on streams that otherwise carry communication only. They are counted as
  /// computation, and may well be communication.
  std::vector<NameTotal> unrecognised;
  DeviceTotals device;
  Intervals compute_in_collectives;  // computation while a collective runs: what hides communication
  bool has_device = false;           // false: a CPU job, computation is operator time
  bool marks_steps = false;
};

struct ReduceOptions {
  /// Leave the last step and everything launched in it or after it out of totals and tables: it is often cut short. HTA
  /// does so by default.
  bool skip_last_step = false;
};

/// Reduces a rank to its summary: O(rows log rows) time, O(rows) scratch. Given an rvalue it releases the rows.
RankSummary reduce(const RankTrace& trace, const ReduceOptions& options = {});
RankSummary reduce(RankTrace&& trace, const ReduceOptions& options = {});

}  // namespace paceline::trace
