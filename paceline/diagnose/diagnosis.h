#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "paceline/base/json.h"
#include "paceline/diagnose/faults.h"
#include "paceline/trace/understand/trace.h"

namespace paceline::diagnose {

/// Where one step of one rank went, in ns. The nine parts add up to `duration` exactly.
struct StepParts {
  std::int64_t number = -1;
  std::int64_t begin = 0;  // ns on the job's common clock
  std::int64_t duration = 0;
  std::int64_t compute = 0;
  std::int64_t exposed_wait = 0;      // in a collective, waiting for a peer, nothing else running
  std::int64_t exposed_transfer = 0;  // in a collective after the last member arrived, nothing else running
  std::int64_t exposed_copies = 0;
  std::int64_t idle_host = 0;       // the device ran dry: the next work was launched too late
  std::int64_t idle_gap = 0;        // launched in time, short gap between kernels
  std::int64_t idle_other = 0;      // launched in time, held back by something else (a dependency, another stream)
  std::int64_t lead = 0, tail = 0;  // before the first and after the last work of the step
  // Not parts: what also ran, hidden or not.
  std::int64_t communication = 0, overlap = 0, copies = 0;
};

/// A rank over its steps.
struct RankDiagnosis {
  std::uint32_t rank = 0;
  std::string source, host;
  std::vector<StepParts> steps;
  std::size_t first_common = 0;  // in steps: the first that all ranks recorded
  StepParts mean;                // per step
  std::int64_t wait = 0;         // per step, hidden or not; wait + transfer = mean.communication
  std::int64_t transfer = 0;     // likewise; collectives that run at the same time count once
  std::uint32_t collectives = 0;
  std::uint32_t times_last = 0;  // arrived last in a collective of two or more
  std::int64_t blame = 0;        // ns the others' median stood waiting for it alone, over all steps
  std::int64_t clock_offset = 0;
  std::int64_t clock_residual = 0;
};

/// What the late rank did in the time that made it late, more than the others did.
struct Cause {
  std::string what;           // "load_batch", "aten::mm in backward", "no operator running", ...
  std::string kind;           // trace::activity_name, or "late_start"
  std::int64_t per_step = 0;  // ns more than the others' median, per step
  double share = 0;           // of the lateness
  Fault fault = Fault::kNone;
};

/// How lateness is spread over steps; needs at least five to tell.
enum class Pattern : std::uint8_t { kUnknown, kPersistent, kIntermittent, kRotating, kOutlier };
std::string_view pattern_name(Pattern pattern);

/// Who holds the others up.
struct Late {
  std::vector<std::uint32_t> ranks;  // rank numbers: one, or all of a host; empty = nobody
  std::string host;                  // set when it is the whole host
  Fault fault = Fault::kNone;
  Pattern pattern = Pattern::kUnknown;
  std::int64_t cost = 0;    // ns per step that the others wait for it alone
  std::int64_t longer = 0;  // ns per step that it takes itself beyond ranks of its role; 0 = not known
  std::uint32_t times_last = 0, collectives = 0;
  std::vector<std::uint32_t> rotating;  // rank numbers that took turns, when nobody in particular is late

  /// The slack of a pipeline hides nearly all that it takes longer.
  bool is_hidden(std::int64_t median_step) const { return longer > 0 && cost * 100 < median_step; }
};

/// One collective over its ranks.
struct CollectiveRow {
  std::string name;
  std::string group;
  std::int64_t elements = -1;
  std::uint32_t ranks = 0;
  std::uint32_t last_rank = 0;  // rank number
  std::int64_t transfer = 0, start_spread = 0, end_spread = 0;
  std::int64_t behind = 0;             // last arrival behind the others' median
  std::vector<std::int64_t> waits;     // of each member, in order of rank
  std::vector<std::uint32_t> members;  // rank numbers
};

/// A result in words with its evidence.
struct Finding {
  std::string id;  // "F1", ...
  std::string
      kind;  // late_rank | no_culprit | waiting_victim | exposed_transfer | host_bound | copies | mismatch | ...
  std::string title;  // one line: what, where, how much
  std::vector<std::string> evidence;
  std::string remedy;
  std::string next;       // the command to type next; see next.h
  std::int64_t cost = 0;  // ns per step; 0 when it costs no step time itself
  bool measured = true;   // read off the trace; false: inferred from it
  std::int32_t rank = -1;
  std::string host;
  Fault fault = Fault::kNone;
  Pattern pattern = Pattern::kUnknown;
};

struct KernelRow {
  std::string name;
  std::string kind;                                     // compute | communication | copy
  std::int64_t count = 0, total = 0, min = 0, max = 0;  // ns, over all ranks
};
/// A kernel that no table knows, on a stream that otherwise carries communication only: counted as computation, and may
/// well be communication. Only those that take at least 1 % of a step.
struct UnrecognisedKernel {
  std::string name;
  std::int64_t per_step = 0;  // ns, mean of its ranks
  std::uint32_t ranks = 0;
};
struct OperatorRow {
  std::string name;
  std::int64_t count = 0, total = 0, self = 0;
};

struct Diagnosis {
  std::uint32_t world_size = 0;
  bool has_device = false;
  bool marks_steps = false;
  std::size_t step_count = 0;              // that all ranks recorded; they are compared over these
  std::int64_t median_step = 0;            // ns, over ranks and steps
  std::vector<RankDiagnosis> ranks;        // by rank number
  std::vector<CollectiveRow> collectives;  // in time order
  Late late;
  std::vector<Cause> causes;      // of the lateness, largest first
  std::vector<Finding> findings;  // most costly first
  std::vector<KernelRow> kernels;
  std::vector<OperatorRow> operators;
  std::vector<UnrecognisedKernel> unrecognised;  // largest first

  /// The rank that holds the others up; -1 when there is none, or when it is a whole host.
  std::int32_t late_rank() const { return late.ranks.size() == 1 ? static_cast<std::int32_t>(late.ranks[0]) : -1; }
};

/// Where the time of a job went and who is to blame. O(events).
Diagnosis diagnose(const trace::Trace& trace);

/// The finding to read when only one is read: who is late, else the most costly one; nullptr when there is none.
const Finding* main_finding(const Diagnosis& diagnosis);

/// The machine form, schema paceline/diagnosis/1; times in ns.
base::Json to_json(const Diagnosis& diagnosis, const trace::Trace& trace);

}  // namespace paceline::diagnose
