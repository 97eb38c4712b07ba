#include "paceline/trace/rank_trace.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "paceline/base/error.h"

namespace paceline::trace {

std::string_view category_name(Category category) {
  static constexpr std::array<std::string_view, 10> kNames{
      "cpu_op", "user_annotation", "gpu_user_annotation", "python_function", "cuda_runtime",
      "kernel", "gpu_memcpy",      "gpu_memset",          "cuda_sync",       "other"};
  return kNames[static_cast<std::size_t>(category)];
}

namespace {

template <class T>
void permute(std::vector<T>& column, const std::vector<Row>& order) {
  std::vector<T> sorted(column.size());
  for (std::size_t i = 0; i < order.size(); ++i) sorted[i] = column[order[i]];
  column.swap(sorted);
}

/// Lanes keep the order of their (process, thread) names, host before device, so that output does not depend on the
/// order of events in the file.
std::vector<std::uint32_t> lane_ranks(const std::vector<Lane>& lanes) {
  std::vector<std::uint32_t> order(lanes.size());
  std::iota(order.begin(), order.end(), 0u);
  const auto numeric_less = [](const std::string& a, const std::string& b) {
    return a.size() != b.size() ? a.size() < b.size() : a < b;
  };
  std::stable_sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
    const Lane &x = lanes[a], &y = lanes[b];
    if (x.device != y.device) return y.device;
    if (x.process != y.process) return numeric_less(x.process, y.process);
    return numeric_less(x.thread, y.thread);
  });
  std::vector<std::uint32_t> rank(lanes.size());
  for (std::uint32_t i = 0; i < order.size(); ++i) rank[order[i]] = i;
  return rank;
}

void order_lanes(RankTrace& trace) {
  const std::vector<std::uint32_t> rank = lane_ranks(trace.lanes);
  std::vector<Lane> sorted(trace.lanes.size());
  for (std::size_t i = 0; i < rank.size(); ++i) sorted[rank[i]] = std::move(trace.lanes[i]);
  trace.lanes = std::move(sorted);
  for (LaneId& lane : trace.slices.lane) lane = LaneId{rank[base::index(lane)]};
  for (Instant& instant : trace.instants) instant.lane = LaneId{rank[base::index(instant.lane)]};
  for (AllocatorEvent& event : trace.allocator) event.lane = LaneId{rank[base::index(event.lane)]};
}

/// Slices of one track must nest. GPU annotations shadow kernels on the same stream and are not compared with them.
void count_overlaps(RankTrace& trace) {
  const Slices& slices = trace.slices;
  std::vector<std::int64_t> open;  // ends of the slices that enclose the current one
  for (const Lane& lane : trace.lanes) {
    open.clear();
    for (Row row = lane.begin; row < lane.end; ++row) {
      const Category category = slices.category[row];
      if (lane.device && !is_device_work(category)) continue;
      while (!open.empty() && open.back() <= slices.start[row]) open.pop_back();
      const bool overlaps = !open.empty() && (lane.device || open.back() < slices.end(row));
      if (overlaps && trace.repairs.count(Repair::kOverlappingSlices) > 0) {
        trace.repairs.add(Repair::kOverlappingSlices, {}, {});  // only the first is described
      } else if (overlaps) {
        trace.repairs.add(Repair::kOverlappingSlices, fmt::format("at {} ns", slices.start[row]),
                          fmt::format("'{}' on track {}/{}", trace.name(row), lane.process, lane.thread));
      }
      if (open.empty() || !overlaps) open.push_back(slices.end(row));
    }
  }
}

}  // namespace

void finish_slices(RankTrace& trace) {
  Slices& slices = trace.slices;
  PL_CHECK(slices.start.size() < kNoRow);
  order_lanes(trace);
  std::vector<Row> order(slices.size());
  std::iota(order.begin(), order.end(), Row{0});
  std::sort(order.begin(), order.end(), [&](Row a, Row b) {
    if (slices.lane[a] != slices.lane[b]) return slices.lane[a] < slices.lane[b];
    if (slices.start[a] != slices.start[b]) return slices.start[a] < slices.start[b];
    if (slices.duration[a] != slices.duration[b]) return slices.duration[a] > slices.duration[b];
    return a < b;
  });
  permute(slices.start, order);
  permute(slices.duration, order);
  permute(slices.name, order);
  permute(slices.lane, order);
  permute(slices.correlation, order);
  permute(slices.shapes, order);
  permute(slices.category, order);
  for (Row row = 0; row < slices.size(); ++row) {
    Lane& lane = trace.lanes[base::index(slices.lane[row])];
    if (lane.begin == lane.end) lane.begin = row;
    lane.end = row + 1;
  }
  if (!trace.collective_args.empty() || !trace.pipeline_args.empty()) {
    std::vector<Row> new_row(order.size());
    for (Row i = 0; i < order.size(); ++i) new_row[order[i]] = i;
    const auto reorder = [&](auto& rows) {
      for (auto& args : rows) args.row = new_row[args.row];
      std::sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) { return a.row < b.row; });
    };
    reorder(trace.collective_args);
    reorder(trace.pipeline_args);
  }
  std::sort(trace.instants.begin(), trace.instants.end(),
            [](const Instant& a, const Instant& b) { return a.time != b.time ? a.time < b.time : a.lane < b.lane; });
  std::stable_sort(trace.allocator.begin(), trace.allocator.end(),
                   [](const AllocatorEvent& a, const AllocatorEvent& b) { return a.time < b.time; });
  count_overlaps(trace);
}

}  // namespace paceline::trace
