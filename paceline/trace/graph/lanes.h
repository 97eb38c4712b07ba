#pragma once
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "paceline/trace/rank_trace.h"

namespace paceline::trace {

/// A stretch of a host thread: in one slice and none of its children, or in no operator and no call at all.
struct Piece {
  std::int64_t begin, end;
  Row row;             // the innermost operator or call; kNoRow = a gap
  Row span;            // the innermost annotation around it; kNoRow = none
  bool waits = false;  // a gap in which the thread waited for others up to `waited_until`
  std::int64_t waited_until = 0;
};

/// Pieces that tile a thread from its first slice to its last end. Steps and annotations are spans, not work. O(rows).
std::vector<Piece> pieces_of(const RankTrace& trace, const Lane& lane);

/// Cuts the piece that holds `time` in two, unless it begins or ends there. O(log pieces + pieces behind).
void cut(std::vector<Piece>& pieces, std::int64_t time);

/// Whether a runtime call returns only when the device has come so far: "cudaStreamSynchronize",
/// "hipDeviceSynchronize".
bool is_synchronisation(std::string_view call);
/// Of those the ones that wait for all streams.
bool is_device_synchronisation(std::string_view call);

}  // namespace paceline::trace
