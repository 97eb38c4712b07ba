#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "paceline/trace/load.h"
#include "paceline/trace/understand/summary.h"

namespace paceline::trace {

/// One rank's part in a collective, on the job's common clock.
struct Member {
  std::uint32_t rank;   // index into Trace::ranks
  std::uint32_t event;  // index into that rank's collectives
  std::int64_t begin, end;
};

/// One collective over its ranks. Kernel time is waiting for the last member plus the transfer; the transfer is what
/// the member that waited least needed.
struct Collective {
  CollectiveKind kind = CollectiveKind::kUnknown;
  std::uint32_t group = 0;                           // index into Trace::groups
  std::uint32_t index = 0;                           // n-th of its group
  std::uint32_t members_begin = 0, members_end = 0;  // in Trace::members
  std::uint32_t last = 0;                            // index into Trace::members of the last to arrive
  std::int64_t transfer = 0;

  std::uint32_t size() const { return members_end - members_begin; }
};

/// A collective that could not be matched: a rank that skipped one, recorded less, or did something else.
struct Mismatch {
  std::uint32_t rank;  // index into Trace::ranks
  std::uint32_t group;
  std::uint32_t index;  // of that rank's events of the group
  std::string what;
};

struct Clock {
  std::int64_t offset = 0;    // ns to take from this rank's times
  double drift = 0;           // ns per ns, taken from `since` on
  std::int64_t since = 0;     // this rank's time where the drift is 0
  std::int64_t residual = 0;  // median distance of collective ends after alignment
  bool known = false;         // tied by collectives to another clock (or the first); else taken as it is
  bool applied = false;       // the offset is larger than the noise

  std::int64_t align(std::int64_t time) const {
    return time - offset - static_cast<std::int64_t>(drift * static_cast<double>(time - since));
  }
};

/// A job: all ranks on one clock, their collectives matched.
struct Trace {
  std::vector<RankSummary> ranks;  // by rank number
  std::vector<Clock> clocks;       // one a rank
  std::vector<std::string> groups;
  std::vector<Collective> collectives;  // by the time the last member arrives
  std::vector<Member> members;
  std::vector<Mismatch> mismatches;
  std::int64_t causality_violations = 0;  // a member ended before another began, beyond the residual
  std::int64_t worst_violation = 0;       // ns
  std::vector<std::string> warnings;

  const CommEvent& event(const Member& member) const { return ranks[member.rank].collectives[member.event]; }
};

/// A look at a job that takes long to read: at its first ranks, matched and aligned, `files` of `all` having been read.
struct Preview {
  std::function<void(const Trace& part, std::size_t files, std::size_t all)> show = {};  // none: no preview
  std::chrono::milliseconds first_after{3'000};  // and again whenever reading has taken twice as long
};

struct JobOptions {
  ReduceOptions reduce;
  LoadOptions load;
  Preview preview = {};
};

/// Reads, reduces, matches and aligns all traces under the arguments. Each rank's rows are released as soon as it is
/// reduced.
Trace load_job(const std::vector<std::string>& arguments, const JobOptions& options = {});

/// The part behind reading: matches collectives and aligns clocks. `ranks` ordered by rank number.
Trace assemble(std::vector<RankSummary> ranks);

}  // namespace paceline::trace
