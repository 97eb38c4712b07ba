#include "paceline/trace/graph/lanes.h"

#include <algorithm>

namespace paceline::trace {
namespace {

bool is_work(Category category) {
  return category == Category::kCpuOp || category == Category::kRuntime;
}

}  // namespace

bool is_synchronisation(std::string_view call) {
  return call.find("Synchronize") != call.npos;
}

bool is_device_synchronisation(std::string_view call) {
  return call.find("DeviceSynchronize") != call.npos || call.find("CtxSynchronize") != call.npos;
}

std::vector<Piece> pieces_of(const RankTrace& trace, const Lane& lane) {
  const Slices& slices = trace.slices;
  std::vector<Piece> pieces;
  std::vector<Row> open;
  std::int64_t now = 0;
  const auto innermost = [&](auto wanted) {
    for (std::size_t i = open.size(); i-- > 0;) {
      if (wanted(slices.category[open[i]])) return open[i];
    }
    return kNoRow;
  };
  const auto advance = [&](std::int64_t to) {
    if (to <= now) return;
    const Row row = open.empty() || !is_work(slices.category[open.back()]) ? kNoRow : open.back();
    const Row span = innermost([](Category c) { return c == Category::kUserAnnotation; });
    if (!pieces.empty() && pieces.back().end == now && pieces.back().row == row && pieces.back().span == span) {
      pieces.back().end = to;
    } else {
      pieces.push_back({now, to, row, span});
    }
    now = to;
  };
  const auto close_until = [&](std::int64_t time) {
    while (!open.empty() && slices.end(open.back()) <= time) {
      advance(slices.end(open.back()));
      open.pop_back();
    }
  };
  bool any = false;
  for (Row row = lane.begin; row < lane.end; ++row) {
    const Category category = slices.category[row];
    if (!is_work(category) && category != Category::kUserAnnotation) continue;
    if (!any) now = slices.start[row];
    any = true;
    close_until(slices.start[row]);
    advance(slices.start[row]);
    open.push_back(row);
  }
  close_until(INT64_MAX);
  return pieces;
}

void cut(std::vector<Piece>& pieces, std::int64_t time) {
  const auto at = std::partition_point(pieces.begin(), pieces.end(), [&](const Piece& p) { return p.end <= time; });
  if (at == pieces.end() || at->begin >= time) return;
  Piece second = *at;
  second.begin = time;
  at->end = time;
  pieces.insert(at + 1, second);
}

}  // namespace paceline::trace
