#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "paceline/diagnose/faults.h"
#include "paceline/trace/understand/trace.h"

namespace paceline::diagnose {

/// Process groups whose transfers, waiting taken off, are slower than those of groups that do the same.
struct SlowLinks {
  std::string group;                 // the slowest
  std::vector<std::uint32_t> ranks;  // its rank numbers
  std::size_t groups = 0;            // how many are slow
  Fault scope = Fault::kLinkInter;   // where the traffic of the slow groups runs
  std::string where;                 // "inside host node03", "between node03 and node04", "rail 2"
  bool known_hosts = false;          // else the scope is a guess
  double ratio = 1;                  // of the slowest: its median transfer to the median over the other groups
  std::int64_t cost = 0;             // ns per step, of the slowest
};

/// Compares groups by what they do: kind, elements and number of ranks alike. Slow is at least a quarter slower than
/// the median of the others; needs at least two such groups. O(collectives log collectives).
std::optional<SlowLinks> find_slow_links(const trace::Trace& trace, std::size_t steps);

}  // namespace paceline::diagnose
