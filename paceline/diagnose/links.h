#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "paceline/trace/understand/trace.h"

namespace paceline::diagnose {

/// A process group whose transfers, waiting taken off, are slower than those of groups that do the same.
struct SlowLink {
  std::string group;
  std::vector<std::uint32_t> ranks;  // rank numbers
  std::string scope;                 // "inside one host", "between hosts", "rail 3", or empty when hosts are unknown
  double ratio = 1;                  // of the median transfer to the median over the other groups
  std::int64_t cost = 0;             // ns per step
};

/// Compares groups by what they do: kind, elements and number of ranks alike. The slowest that is at least a quarter
/// slower than the median of the others, if any; needs at least two such groups. O(collectives log collectives).
std::vector<SlowLink> find_slow_links(const trace::Trace& trace, std::size_t steps);

}  // namespace paceline::diagnose
