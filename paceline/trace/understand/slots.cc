#include "paceline/trace/understand/slots.h"

#include <algorithm>
#include <array>
#include <limits>
#include <unordered_map>

#include "paceline/trace/understand/host.h"

namespace paceline::trace {
namespace {

constexpr std::size_t kItemsPerSlot = 8;  // by name; the rest of each activity is summed
constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kLongAgo = std::numeric_limits<std::int64_t>::min();
constexpr NameId kNoName = base::kNone<NameId>;

struct ItemKey {
  Activity activity;
  NameId name = kNoName, op = kNoName, shape = kNoName, span = kNoName;
  auto operator<=>(const ItemKey&) const = default;
};

struct ItemHash {
  std::size_t operator()(const ItemKey& key) const {
    std::uint64_t hash = static_cast<std::uint64_t>(key.activity);
    for (const NameId id : {key.name, key.op, key.shape, key.span}) {
      hash = (hash ^ base::index(id)) * 0x9E3779B97F4A7C15u;
      hash ^= hash >> 29;
    }
    return hash;
  }
};

struct Charge {
  std::int64_t time = 0;
  std::uint32_t count = 0;
};

/// Rows of one use, one after the other: of two that overlap the first goes on and the second gets what is left.
Segments segments_of(const LinkedRows& rows, Use use) {
  return [&rows, use, at = std::size_t{0}, now = kLongAgo](Segment& segment) mutable {
    while (at < rows.used.size()) {
      const Row row = rows.used[at++];
      const std::int64_t begin = std::max(rows.trace.slices.start[row], now), end = rows.trace.slices.end(row);
      if (rows.use[row] != use || end <= begin) continue;
      now = end;
      segment = {begin, end, row};
      return true;
    }
    return false;
  };
}

/// `segments` where `intervals` are.
Segments clipped(Segments segments, Intervals intervals) {
  return [segments = std::move(segments), intervals = std::move(intervals), at = std::size_t{0},
          whole = Segment{kLongAgo, 0, kNoRow}](Segment& segment) mutable {
    while (true) {
      while (at < intervals.size() && intervals[at].end <= whole.begin) ++at;
      if (at == intervals.size()) return false;
      if (whole.row == kNoRow || whole.end <= std::max(whole.begin, intervals[at].begin)) {
        if (!segments(whole)) return false;
        continue;
      }
      segment = {std::max(whole.begin, intervals[at].begin), std::min(whole.end, intervals[at].end), whole.row};
      whole.begin = segment.end;
      return true;
    }
  };
}

Intervals intervals_of(const LinkedRows& rows, Use use) {
  Intervals intervals;
  for (const Row row : rows.used) {
    if (rows.use[row] == use) add_next(intervals, {rows.trace.slices.start[row], rows.trace.slices.end(row)});
  }
  return intervals;
}

class Charger {
 public:
  Charger(const LinkedRows& rows, KeptNames& names, RankSummary& summary)
      : rows_(rows), names_(names), summary_(summary) {}

  void run(Segments segments) {
    const std::vector<std::int64_t> marks = find_marks();
    Segment segment{};
    bool more = segments(segment);
    for (std::size_t m = 0; m + 1 < marks.size(); ++m) {
      const Interval window{marks[m], marks[m + 1]};
      while (more && segment.end <= window.begin) more = segments(segment);
      std::int64_t now = window.begin;
      while (now < window.end) {
        const std::int64_t begin = more ? std::clamp(segment.begin, now, window.end) : window.end;
        if (begin > now) charge_idle({now, begin}, kNoRow);
        if (begin == window.end) break;
        now = std::min(segment.end, window.end);
        charge(segment, {begin, now}, segment.begin >= window.begin);
        if (segment.end <= window.end) more = segments(segment);
      }
      add_slot(window);
    }
  }

 private:
  /// Begins and ends of steps and collectives within the steps.
  std::vector<std::int64_t> find_marks() const {
    std::vector<std::int64_t> marks;
    marks.reserve(2 * (summary_.steps.size() + summary_.collectives.size()));
    const std::int64_t first = summary_.steps.front().begin;
    std::int64_t last = first;
    for (const StepSummary& step : summary_.steps) {
      last = std::max(last, step.end);
      marks.insert(marks.end(), {step.begin, step.end});
    }
    for (const CommEvent& event : summary_.collectives) marks.insert(marks.end(), {event.begin, event.end});
    std::erase_if(marks, [&](std::int64_t mark) { return mark < first || mark > last; });
    std::sort(marks.begin(), marks.end());
    marks.erase(std::unique(marks.begin(), marks.end()), marks.end());
    return marks;
  }

  void charge(const Segment& segment, Interval part, bool began) {
    constexpr std::array<Activity, 3> kActivities{Activity::kCompute, Activity::kCommunication, Activity::kCopy};
    if (segment.source < kActivities.size() && segment.row != kNoRow) {
      add_charge(device_item(kActivities[segment.source], segment.row), part.length(), began);
    } else {
      charge_idle(part, segment.row);
    }
  }

  void charge_idle(Interval part, Row host) {
    if (part.begin >= idle_.end) enter_idle(part.begin);
    add_charge(cause_ == Activity::kHostOp ? host_item(host) : ItemKey{cause_}, part.length(), true);
  }

  /// To the idle stretch that holds `time`: from the busy time before it to the one after it.
  void enter_idle(std::int64_t time) {
    const Slices& slices = rows_.trace.slices;
    while (next_ < rows_.used.size()) {
      const Row row = rows_.used[next_];
      if (slices.duration[row] > 0 && slices.start[row] > time) break;
      if (slices.duration[row] > 0) busy_until_ = std::max(busy_until_, slices.end(row));
      ++next_;
    }
    idle_.begin = busy_until_ == kLongAgo ? time : busy_until_;
    idle_.end = next_ == rows_.used.size() ? kNever : slices.start[rows_.used[next_]];
    cause_ = rows_.idle_cause(idle_);
  }

  ItemKey device_item(Activity activity, Row row) const {
    const Slices& slices = rows_.trace.slices;
    ItemKey key{activity, slices.name[row]};
    const bool on_device = rows_.trace.lanes[base::index(slices.lane[row])].device;  // else it stands for itself
    const Row host = on_device || rows_.launcher[row] != kNoRow ? rows_.launcher[row] : row;
    const Row op = rows_.operator_around(host);
    if (op != kNoRow) {
      key.op = slices.name[op];
      key.shape = slices.shapes[op];
    }
    key.span = rows_.span_around(host);
    return key;
  }

  ItemKey host_item(Row row) const {
    const NameId span = rows_.span_around(row);
    const bool gap = row == kNoRow || rows_.trace.name(row).starts_with("ProfilerStep#");
    if (gap) return {Activity::kHostGap, kNoName, kNoName, kNoName, span};
    return {Activity::kHostOp, rows_.trace.slices.name[row], kNoName, rows_.trace.slices.shapes[row], span};
  }

  void add_charge(const ItemKey& key, std::int64_t time, bool began) {
    Charge& charge = charges_[key];
    charge.time += time;
    charge.count += began ? 1 : 0;
  }

  void add_slot(Interval window) {
    std::vector<std::pair<ItemKey, Charge>> items(charges_.begin(), charges_.end());
    charges_.clear();
    std::sort(items.begin(), items.end(), [](const auto& a, const auto& b) {
      return a.second.time != b.second.time ? a.second.time > b.second.time : a.first < b.first;
    });
    Slot slot{window.begin, window.end, static_cast<std::uint32_t>(summary_.slot_items.size()), 0};
    std::array<Charge, 7> rest{};
    for (std::size_t i = 0; i < items.size(); ++i) {
      const auto& [key, charge] = items[i];
      if (i >= kItemsPerSlot) {
        Charge& sum = rest[static_cast<std::size_t>(key.activity)];
        sum.time += charge.time;
        sum.count += charge.count;
        continue;
      }
      summary_.slot_items.push_back({key.activity, names_.keep(key.name), names_.keep(key.op), names_.keep(key.shape),
                                     names_.keep(key.span), charge.count, charge.time});
    }
    for (std::size_t i = 0; i < rest.size(); ++i) {
      if (rest[i].time == 0) continue;
      summary_.slot_items.push_back(
          {static_cast<Activity>(i), kNoName, kNoName, kNoName, kNoName, rest[i].count, rest[i].time});
    }
    slot.items_end = static_cast<std::uint32_t>(summary_.slot_items.size());
    summary_.slots.push_back(slot);
  }

  const LinkedRows& rows_;
  KeptNames& names_;
  RankSummary& summary_;
  std::size_t next_ = 0;  // in rows_.used: what is before it began before idle_
  std::int64_t busy_until_ = kLongAgo;
  Interval idle_{kLongAgo, kLongAgo};                      // the idle stretch that was entered last
  Activity cause_ = Activity::kHostOp;                     // of idle_
  std::unordered_map<ItemKey, Charge, ItemHash> charges_;  // of the current slot
};

}  // namespace

void fill_slots(const LinkedRows& rows, KeptNames& names, RankSummary& summary) {
  if (summary.steps.empty()) return;
  Segments compute = rows.has_device ? segments_of(rows, Use::kCompute)
                                     : clipped(host_timeline(rows.trace), intervals_of(rows, Use::kCompute));
  Charger(rows, names, summary)
      .run(overlay({std::move(compute), segments_of(rows, Use::kCommunication), segments_of(rows, Use::kCopy),
                    host_timeline(rows.trace)}));
}

}  // namespace paceline::trace
