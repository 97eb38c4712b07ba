#include "paceline/diagnose/path.h"

#include <algorithm>

namespace paceline::diagnose {
namespace {

using trace::Trace;

/// A collective that a rank could not go on without, by its end.
struct Binding {
  std::int64_t end;
  std::uint32_t collective, event;
};

std::vector<std::vector<Binding>> bindings(const Trace& trace) {
  std::vector<std::vector<Binding>> of_rank(trace.ranks.size());
  for (std::uint32_t c = 0; c < trace.collectives.size(); ++c) {
    const trace::Collective& collective = trace.collectives[c];
    if (collective.size() < 2 || !trace::ends_together(collective.kind)) continue;
    for (std::uint32_t m = collective.members_begin; m < collective.members_end; ++m) {
      const trace::Member& member = trace.members[m];
      const std::int64_t end = trace.event(member).end;
      const bool hidden = total_within(trace.ranks[member.rank].compute_in_collectives, {end - 1, end}) > 0;
      if (!hidden) of_rank[member.rank].push_back({end, c, member.event});
    }
  }
  for (auto& list : of_rank) {
    std::sort(list.begin(), list.end(), [](const Binding& a, const Binding& b) { return a.end < b.end; });
  }
  return of_rank;
}

/// By how much `begin` of `rank` is behind the median of the other ranks' begins; 0 when it is not.
std::int64_t late_start(const Trace& trace, std::uint32_t rank, std::int64_t begin) {
  std::vector<std::int64_t> others;
  for (std::uint32_t i = 0; i < trace.ranks.size(); ++i) {
    if (i == rank || trace.ranks[i].slots.empty()) continue;
    others.push_back(trace.clocks[i].align(trace.ranks[i].slots.front().begin));
  }
  if (others.empty()) return 0;
  const auto middle = others.begin() + static_cast<std::ptrdiff_t>(others.size() / 2);
  std::nth_element(others.begin(), middle, others.end());
  return std::max<std::int64_t>(trace.clocks[rank].align(begin) - *middle, 0);
}

}  // namespace

CriticalPath critical_path(const Trace& trace) {
  CriticalPath path;
  std::uint32_t rank = 0;
  std::int64_t last_end = 0;
  bool any = false;
  for (std::uint32_t i = 0; i < trace.ranks.size(); ++i) {
    if (trace.ranks[i].slots.empty()) continue;
    const std::int64_t end = trace.clocks[i].align(trace.ranks[i].slots.back().end);
    if (!any || end > last_end) rank = i, last_end = end;
    any = true;
  }
  if (!any) return path;
  const std::vector<std::vector<Binding>> binding = bindings(trace);
  std::int64_t now = trace.ranks[rank].slots.back().end;
  std::int64_t covered = 0;
  const auto add = [&](std::uint32_t on, std::int64_t begin, std::int64_t end) {
    if (begin >= end) return;
    path.segments.push_back({on, begin, end});
    covered += end - begin;
  };
  while (true) {
    const std::int64_t first = trace.ranks[rank].slots.front().begin;
    const auto& list = binding[rank];
    const auto after = std::partition_point(list.begin(), list.end(), [&](const Binding& b) { return b.end <= now; });
    if (after == list.begin() || std::prev(after)->end <= first) {
      add(rank, first, now);
      now = first;
      break;
    }
    const Binding& held = *std::prev(after);
    add(rank, held.end, now);
    const trace::Member& last = trace.members[trace.collectives[held.collective].last];
    const trace::CommEvent& event = trace.event(last);
    rank = last.rank;
    const std::int64_t start = std::max(event.begin, trace.ranks[rank].slots.front().begin);
    add(rank, start, event.end);
    now = std::min(start, event.end);
    if (now <= trace.ranks[rank].slots.front().begin) break;
  }
  path.length = last_end - trace.clocks[rank].align(now);
  path.late_start = late_start(trace, rank, now);
  path.length += path.late_start;
  path.clock_error = path.length - path.late_start - covered;
  return path;
}

}  // namespace paceline::diagnose
