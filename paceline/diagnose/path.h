#pragma once
#include <cstdint>
#include <vector>

#include "paceline/trace/understand/trace.h"

namespace paceline::diagnose {

/// A stretch of the job's critical path: what one rank did from `begin` to `end`, both on its own clock and at marks of
/// its slots.
struct PathSegment {
  std::uint32_t rank;  // index into Trace::ranks
  std::int64_t begin, end;
};

struct CriticalPath {
  std::vector<PathSegment> segments;  // latest first
  std::int64_t late_start = 0;        // ns by which the path's first rank began later than the others' median
  std::int64_t length = 0;       // ns: from there, or from the begin of the path when none, to the end of the last step
  std::int64_t clock_error = 0;  // length minus late_start and segments: where clocks do not meet at a jump
};

/// Walks back from the end of the rank that ends last. Where the rank had to wait for a collective (nothing else ran
/// when it ended), the path goes on with the member that arrived last: waiting is never on it, what made that member
/// late is. O(events log events).
CriticalPath critical_path(const trace::Trace& trace);

}  // namespace paceline::diagnose
