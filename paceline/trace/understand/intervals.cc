#include "paceline/trace/understand/intervals.h"

#include <algorithm>

namespace paceline::trace {

void add_next(Intervals& intervals, Interval next) {
  if (next.end <= next.begin) return;
  if (!intervals.empty() && next.begin <= intervals.back().end) {
    intervals.back().end = std::max(intervals.back().end, next.end);
  } else {
    intervals.push_back(next);
  }
}

Intervals merge(Intervals any) {
  const auto by_begin = [](const Interval& a, const Interval& b) { return a.begin < b.begin; };
  if (!std::is_sorted(any.begin(), any.end(), by_begin)) std::sort(any.begin(), any.end(), by_begin);
  Intervals merged;
  for (const Interval& next : any) add_next(merged, next);
  return merged;
}

Intervals intersect(const Intervals& a, const Intervals& b) {
  Intervals common;
  for (std::size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    const std::int64_t begin = std::max(a[i].begin, b[j].begin);
    const std::int64_t end = std::min(a[i].end, b[j].end);
    if (begin < end) common.push_back({begin, end});
    if (a[i].end < b[j].end) {
      ++i;
    } else {
      ++j;
    }
  }
  return common;
}

Intervals subtract(const Intervals& a, const Intervals& b) {
  Intervals rest;
  std::size_t j = 0;
  for (Interval left : a) {
    while (j < b.size() && b[j].end <= left.begin) ++j;
    for (std::size_t k = j; k < b.size() && b[k].begin < left.end; ++k) {
      if (left.begin < b[k].begin) rest.push_back({left.begin, b[k].begin});
      left.begin = std::max(left.begin, b[k].end);
    }
    if (left.begin < left.end) rest.push_back(left);
  }
  return rest;
}

std::int64_t total(const Intervals& intervals) {
  std::int64_t sum = 0;
  for (const Interval& interval : intervals) sum += interval.length();
  return sum;
}

std::int64_t total_within(const Intervals& intervals, Interval window) {
  auto at = std::partition_point(intervals.begin(), intervals.end(),
                                 [&](const Interval& interval) { return interval.end <= window.begin; });
  std::int64_t sum = 0;
  for (; at != intervals.end() && at->begin < window.end; ++at) {
    sum += std::min(at->end, window.end) - std::max(at->begin, window.begin);
  }
  return sum;
}

}  // namespace paceline::trace
