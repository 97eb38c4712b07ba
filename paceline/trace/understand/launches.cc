#include "paceline/trace/understand/launches.h"

#include <algorithm>

namespace paceline::trace {

std::vector<Row> link_launches(const RankTrace& trace) {
  const Slices& slices = trace.slices;
  struct Call {
    std::uint32_t correlation;
    Row row;
  };
  std::vector<Call> calls;
  for (Row row = 0; row < slices.size(); ++row) {
    if (slices.category[row] == Category::kRuntime && slices.correlation[row] != 0) {
      calls.push_back({slices.correlation[row], row});
    }
  }
  std::stable_sort(calls.begin(), calls.end(),
                   [](const Call& a, const Call& b) { return a.correlation < b.correlation; });
  std::vector<Row> launcher(slices.size(), kNoRow);
  for (Row row = 0; row < slices.size(); ++row) {
    if (!is_device_work(slices.category[row]) || slices.correlation[row] == 0) continue;
    const auto after = std::upper_bound(calls.begin(), calls.end(), slices.correlation[row],
                                        [](std::uint32_t id, const Call& call) { return id < call.correlation; });
    if (after != calls.begin() && std::prev(after)->correlation == slices.correlation[row]) {
      launcher[row] = std::prev(after)->row;
    }
  }
  return launcher;
}

std::vector<Row> link_parents(const RankTrace& trace) {
  const Slices& slices = trace.slices;
  std::vector<Row> parent(slices.size(), kNoRow);
  std::vector<Row> open;
  for (const Lane& lane : trace.lanes) {
    if (lane.device) continue;
    open.clear();
    for (Row row = lane.begin; row < lane.end; ++row) {
      while (!open.empty() && slices.end(open.back()) <= slices.start[row]) open.pop_back();
      if (!open.empty()) parent[row] = open.back();
      open.push_back(row);
    }
  }
  return parent;
}

}  // namespace paceline::trace
