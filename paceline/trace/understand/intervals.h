#pragma once
#include <cstdint>
#include <vector>

namespace paceline::trace {

/// [begin, end) in nanoseconds.
struct Interval {
  std::int64_t begin = 0, end = 0;
  std::int64_t length() const { return end - begin; }
};

/// Disjoint, ordered, non-empty intervals.
using Intervals = std::vector<Interval>;

/// Adds one that begins no earlier than the last.
void add_next(Intervals& intervals, Interval next);
/// Union of any intervals. O(n log n), O(n) when already ordered by begin.
Intervals merge(Intervals any);
Intervals intersect(const Intervals& a, const Intervals& b);
/// What of `a` is not in `b`.
Intervals subtract(const Intervals& a, const Intervals& b);
std::int64_t total(const Intervals& intervals);

/// Total length inside [begin, end) by binary search and prefix-free scan of the touched part.
std::int64_t total_within(const Intervals& intervals, Interval window);

}  // namespace paceline::trace
