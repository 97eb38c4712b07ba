#pragma once
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "paceline/base/json.h"
#include "paceline/trace/flight_recorder/flight_recorder.h"

namespace paceline::diagnose {

enum class HangKind : std::uint8_t {
  kMismatchedOperation,  // ranks call different collectives as the n-th of a group
  kMismatchedSize,       // the same one with other sizes
  kMismatchedType,
  kMissingRank,   // some ranks have not called it
  kMissingDump,   // all ranks that left a dump have called it: the others may be gone
  kNotStarted,    // called everywhere, but behind other work on some ranks' streams
  kNotCompleted,  // done on some ranks, running on others
  kTransfer       // runs on all ranks and ends on none: network or device
};
std::string_view hang_kind_name(HangKind kind);

/// The first collective of a group that does not end, or that ranks call differently.
struct HangFinding {
  HangKind kind = HangKind::kTransfer;
  std::string group, description;
  std::int64_t sequence = -1;
  std::string operation;
  std::vector<std::uint32_t> blamed, waiting;  // ranks, ascending
  std::string what;                            // one sentence
  std::string where;                           // the line of the user's program that waits, empty = not recorded
  bool cause = true;                           // else its blamed ranks are held up in another finding
};

struct HangVerdict {
  std::uint32_t ranks = 0;                     // dumps read
  std::vector<std::uint32_t> missing;          // ranks that groups name and no dump is of
  std::map<std::uint32_t, std::string> hosts;  // of ranks whose host is known
  std::vector<HangFinding> findings;           // causes first, then by group
  std::string sentence;
  std::vector<std::string> unreadable, warnings;
};

/// Which rank is missing from which collective, has not started it or calls something else. Collectives are matched by
/// group and sequence; what a ring no longer holds is not held against its rank. A group whose blamed ranks are all
/// held up elsewhere is a consequence; when that holds for all, ranks call collectives of several groups in different
/// order, and all are causes. O(entries log entries).
HangVerdict find_hang(const trace::FlightDumps& dumps);

base::Json to_json(const HangVerdict& verdict);

/// "rank 3", "ranks 0-2, 5", of long lists the first and how many more.
std::string named_ranks(std::span<const std::uint32_t> ranks);

}  // namespace paceline::diagnose
