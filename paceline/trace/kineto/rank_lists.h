#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace paceline::trace::kineto {

/// What a trace tells of the ranks of one process group. PyTorch cuts the list of a collective behind 30 entries
/// ("[0, 1, ..., 29, ...]" has entries up to 29 and then "..."); newer versions also give the first rank and the
/// distance between ranks where that is the same for all.
struct RankList {
  std::string_view text;                              // "Process Group Ranks"
  std::int32_t size = -1;                             // "Group size"
  std::int32_t start = -1;                            // "Global rank start"
  std::int32_t stride = -1;                           // "Global rank stride"
  const std::vector<std::int32_t>* listed = nullptr;  // of distributedInfo's pg_config, whole when not empty
};

/// The entries of "[0, 1, 2]" and whether it is cut. Nothing when it is no list of ranks.
struct Entries {
  std::vector<std::int32_t> ranks;
  bool cut = false;
};
std::optional<Entries> parse_rank_list(std::string_view text);

/// One text for one group, whichever way the trace tells it: "[0, 1, 2, 3]" up to 30 ranks, beyond that "[0-63]" or
/// "[0-504 by 8]" for even distances, else all of them. A list that stays cut reads "[0, 1, and 34 more]" with the
/// entries that are known. Empty when nothing is known.
std::string canonical_ranks(const RankList& list);

}  // namespace paceline::trace::kineto
