#include "paceline/trace/understand/host.h"

#include <algorithm>
#include <limits>

#include "paceline/trace/understand/names.h"

namespace paceline::trace {
namespace {

bool is_step(std::string_view name) {
  return name.starts_with("ProfilerStep#");
}

/// Collectives that run on a thread of their own ("gloo:all_reduce") are communication, not host work.
bool is_host_collective(const RankTrace& trace, Row row) {
  const Category category = trace.slices.category[row];
  const bool host = category == Category::kUserAnnotation || category == Category::kCpuOp;
  return host && trace.name(row).starts_with("gloo:");
}

/// Innermost slice at every moment of one thread. Slices that overlap without nesting are cut at the start of the next.
std::vector<HostSegment> innermost(const RankTrace& trace, const Lane& lane) {
  const Slices& slices = trace.slices;
  std::vector<HostSegment> segments;
  std::vector<Row> open;
  std::int64_t now = 0;
  const auto advance = [&](std::int64_t to) {
    if (to > now && !segments.empty() && segments.back().end == now && !open.empty() &&
        segments.back().row == open.back()) {
      segments.back().end = to;
    } else if (to > now) {
      segments.push_back({now, to, open.empty() ? kNoRow : open.back()});
    }
    now = std::max(now, to);
  };
  for (Row row = lane.begin; row < lane.end; ++row) {
    if (row == lane.begin) now = slices.start[row];
    if (is_host_collective(trace, row)) continue;
    while (!open.empty() && slices.end(open.back()) <= slices.start[row]) {
      advance(slices.end(open.back()));
      open.pop_back();
    }
    advance(slices.start[row]);
    open.push_back(row);
  }
  while (!open.empty()) {
    advance(slices.end(open.back()));
    open.pop_back();
  }
  return segments;
}

}  // namespace

std::vector<HostSegment> overlay(const std::vector<HostSegment>& front, const std::vector<HostSegment>& back) {
  std::vector<HostSegment> result;
  result.reserve(front.size() + back.size());
  std::size_t j = 0;
  std::int64_t now = back.empty()
                         ? (front.empty() ? 0 : front.front().begin)
                         : (front.empty() ? back.front().begin : std::min(front.front().begin, back.front().begin));
  const auto fill = [&](std::int64_t to) {  // [now, to) from `back`
    while (now < to) {
      while (j < back.size() && back[j].end <= now) ++j;
      const bool inside = j < back.size() && back[j].begin <= now;
      const std::int64_t stop =
          inside ? std::min(to, back[j].end) : (j < back.size() ? std::min(to, back[j].begin) : to);
      result.push_back({now, stop, inside ? back[j].row : kNoRow, inside ? back[j].layer : std::uint8_t{0}});
      now = stop;
    }
  };
  for (const HostSegment& segment : front) {
    if (segment.row == kNoRow) continue;
    fill(segment.begin);
    result.push_back(segment);
    now = segment.end;
  }
  if (!back.empty()) fill(back.back().end);
  return result;
}

std::optional<LaneId> main_thread(const RankTrace& trace) {
  const Slices& slices = trace.slices;
  std::optional<LaneId> best;
  std::int64_t best_time = 0;
  for (std::uint32_t id = 0; id < trace.lanes.size(); ++id) {
    const Lane& lane = trace.lanes[id];
    if (lane.device) continue;
    std::int64_t time = 0, covered_until = std::numeric_limits<std::int64_t>::min();
    for (Row row = lane.begin; row < lane.end; ++row) {
      if (slices.category[row] == Category::kUserAnnotation && is_step(trace.name(row))) return LaneId{id};
      if (slices.category[row] != Category::kCpuOp || slices.end(row) <= covered_until) continue;
      time += slices.end(row) - std::max(covered_until, slices.start[row]);
      covered_until = slices.end(row);
    }
    if (time > best_time) {
      best_time = time;
      best = LaneId{id};
    }
  }
  return best;
}

std::vector<HostSegment> host_timeline(const RankTrace& trace) {
  const std::optional<LaneId> main = main_thread(trace);
  if (!main) return {};
  std::vector<HostSegment> timeline = innermost(trace, trace.lanes[base::index(*main)]);
  for (std::uint32_t id = 0; id < trace.lanes.size(); ++id) {
    const Lane& lane = trace.lanes[id];
    if (lane.device || LaneId{id} == *main) continue;
    bool autograd = false;
    for (Row row = lane.begin; row < lane.end && !autograd; ++row) {
      autograd = trace.name(row).starts_with("autograd::engine::evaluate_function");
    }
    if (autograd) timeline = overlay(innermost(trace, lane), timeline);
  }
  return timeline;
}

}  // namespace paceline::trace
