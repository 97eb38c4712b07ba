#include "paceline/trace/understand/summary.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <map>
#include <unordered_map>

#include "paceline/trace/decimal.h"
#include "paceline/trace/understand/host.h"
#include "paceline/trace/understand/launches.h"

namespace paceline::trace {
namespace {

constexpr std::size_t kItemsPerSlot = 8;  // by name; the rest of each activity is summed
constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kUnknownTime = std::numeric_limits<std::int64_t>::min();

enum class Use : std::uint8_t { kNone, kCompute, kCommunication, kCopy };

/// Elements in a shapes text: "[[8, 4], []]" has 8*4 (an empty list is no tensor or a scalar).
std::int64_t elements_in(std::string_view shapes) {
  std::int64_t sum = 0, product = 1;
  bool any = false;
  for (std::size_t at = 0; at < shapes.size();) {
    const char c = shapes[at];
    if (c >= '0' && c <= '9') {
      std::int64_t dimension = 0;
      const auto [end, code] = std::from_chars(shapes.data() + at, shapes.data() + shapes.size(), dimension);
      if (code != std::errc{} || __builtin_mul_overflow(product, dimension, &product)) return -1;
      any = true;
      at = static_cast<std::size_t>(end - shapes.data());
      continue;
    }
    if (c == ']') {
      if (any) sum += product;
      product = 1;
      any = false;
    }
    ++at;
  }
  return sum > 0 ? sum : -1;
}

class Reducer {
 public:
  Reducer(const RankTrace& trace, const ReduceOptions& options)
      : trace_(trace), slices_(trace.slices), options_(options), kept_(trace.names.size(), base::kNone<NameId>) {}

  RankSummary run() {
    static_cast<RankHeader&>(summary_) = trace_;
    launcher_ = link_launches(trace_);
    parent_ = link_parents(trace_);
    classify();
    find_steps();
    find_collectives();
    collect_intervals();
    split_steps();
    fill_slots();
    sum_kernels();
    sum_operators();
    sum_device();
    return std::move(summary_);
  }

 private:
  // --- names: only those that the summary uses are kept ---------------------------------------------------------
  NameId keep(NameId id) {
    if (id == base::kNone<NameId>) return id;
    NameId& kept = kept_[base::index(id)];
    if (kept == base::kNone<NameId>) kept = summary_.names.intern(trace_.names.text(id));
    return kept;
  }

  std::int64_t launch_time(Row row) const {
    return launcher_[row] == kNoRow ? kUnknownTime : slices_.start[launcher_[row]];
  }

  /// What each row occupies the rank with, and the device rows in order of their start.
  void classify() {
    std::vector<signed char> kind_of_name(trace_.names.size(), -1);
    use_.assign(slices_.size(), Use::kNone);
    for (Row row = 0; row < slices_.size(); ++row) {
      const Category category = slices_.category[row];
      if (!is_device_work(category)) continue;
      device_rows_.push_back(row);
      if (category != Category::kKernel) {
        use_[row] = Use::kCopy;
        continue;
      }
      signed char& kind = kind_of_name[base::index(slices_.name[row])];
      if (kind < 0) kind = static_cast<signed char>(kind_of_kernel(trace_.name(row)));
      use_[row] = static_cast<CollectiveKind>(kind) == CollectiveKind::kNone ? Use::kCompute : Use::kCommunication;
    }
    std::stable_sort(device_rows_.begin(), device_rows_.end(),
                     [&](Row a, Row b) { return slices_.start[a] < slices_.start[b]; });
    summary_.has_device = !device_rows_.empty();
    if (!summary_.has_device) classify_host();
  }

  /// A CPU job computes in its operators, on the threads that drive the training.
  void classify_host() {
    std::vector<HostSegment> timeline = host_timeline(trace_);
    std::vector<bool> of_lane(trace_.lanes.size(), false);
    for (const HostSegment& segment : timeline) {
      if (segment.row != kNoRow) of_lane[base::index(slices_.lane[segment.row])] = true;
    }
    for (Row row = 0; row < slices_.size(); ++row) {
      const Category category = slices_.category[row];
      if (category != Category::kUserAnnotation && category != Category::kCpuOp) continue;
      const std::string_view name = trace_.name(row);
      if (name.starts_with("gloo:")) {
        use_[row] = Use::kCommunication;
      } else if (category == Category::kCpuOp && of_lane[base::index(slices_.lane[row])]) {
        const bool waits = name.starts_with("c10d::") || name == "record_param_comms";
        if (!waits) use_[row] = Use::kCompute;
      }
    }
  }

  // --- steps --------------------------------------------------------------------------------------------------------
  void find_steps() {
    const std::optional<LaneId> main = main_thread(trace_);
    if (main) {
      const Lane& lane = trace_.lanes[base::index(*main)];
      for (Row row = lane.begin; row < lane.end; ++row) {
        constexpr std::string_view kPrefix = "ProfilerStep#";
        if (slices_.category[row] != Category::kUserAnnotation || !trace_.name(row).starts_with(kPrefix)) continue;
        StepSummary step;
        step.number = parse_integer(trace_.name(row).substr(kPrefix.size())).value_or(-1);
        step.begin = slices_.start[row];
        step.end = slices_.end(row);
        summary_.steps.push_back(step);
      }
    }
    summary_.marks_steps = !summary_.steps.empty();
    if (!summary_.marks_steps) {
      StepSummary whole;
      whole.begin = kNever;
      whole.end = kUnknownTime;
      for (Row row = 0; row < slices_.size(); ++row) {
        if (slices_.category[row] == Category::kOther) continue;  // spans of the profiler itself
        whole.begin = std::min(whole.begin, slices_.start[row]);
        whole.end = std::max(whole.end, slices_.end(row));
      }
      if (whole.begin != kNever) summary_.steps.push_back(whole);
    }
    last_kept_launch_ = kNever;
    if (options_.skip_last_step && summary_.steps.size() > 1) {
      last_kept_launch_ = summary_.steps.back().begin;
      summary_.steps.pop_back();
    }
  }

  /// HTA's selection: with a filter, device work counts when it was launched before the last step began.
  bool selected(Row row) const {
    if (last_kept_launch_ == kNever) return true;
    if (!is_device_work(slices_.category[row])) return slices_.start[row] < last_kept_launch_;
    return launcher_[row] != kNoRow && launch_time(row) < last_kept_launch_;
  }

  // --- intervals ----------------------------------------------------------------------------------------------------
  Intervals intervals_of(Use use, bool only_selected) const {
    Intervals intervals;
    for (Row row = 0; row < slices_.size(); ++row) {
      if (use_[row] == use && (!only_selected || selected(row))) {
        intervals.push_back({slices_.start[row], slices_.end(row)});
      }
    }
    return merge(std::move(intervals));
  }

  void collect_intervals() {
    compute_ = intervals_of(Use::kCompute, false);
    communication_ = intervals_of(Use::kCommunication, false);
    copies_ = intervals_of(Use::kCopy, false);
    hidden_ = intersect(compute_, communication_);
    busy_ = unite(unite(compute_, communication_), copies_);
    exposed_copies_ = subtract(subtract(copies_, compute_), communication_);
    summary_.compute_in_collectives = hidden_;
  }

  void split_steps() {
    for (StepSummary& step : summary_.steps) {
      const Interval window{step.begin, step.end};
      step.compute = total_within(compute_, window);
      step.communication = total_within(communication_, window);
      step.overlap = total_within(hidden_, window);
      step.copies = total_within(copies_, window);
      step.exposed_copies = total_within(exposed_copies_, window);
      auto at = std::partition_point(busy_.begin(), busy_.end(),
                                     [&](const Interval& interval) { return interval.end <= step.begin; });
      if (at == busy_.end() || at->begin >= step.end) {
        step.lead = step.end - step.begin;
        continue;
      }
      step.lead = std::max<std::int64_t>(at->begin - step.begin, 0);
      std::int64_t last = std::min(at->end, step.end);
      for (++at; at != busy_.end() && at->begin < step.end; ++at) {
        split_gap({last, at->begin}, step);
        last = std::min(at->end, step.end);
      }
      step.tail = step.end - last;
    }
  }

  void split_gap(Interval gap, StepSummary& step) const {
    step.idle += gap.length();
    if (!summary_.has_device) {
      step.idle_host += gap.length();
      return;
    }
    const auto next = std::lower_bound(device_rows_.begin(), device_rows_.end(), gap.end,
                                       [&](Row row, std::int64_t time) { return slices_.start[row] < time; });
    const std::int64_t launched = next == device_rows_.end() ? kUnknownTime : launch_time(*next);
    if (launched > gap.begin) {
      step.idle_host += gap.length();
    } else if (gap.length() < kKernelGap) {
      step.idle_gap += gap.length();
    }
  }

  // --- collectives --------------------------------------------------------------------------------------------------
  const CollectiveArgs* args_of(Row row) const {
    const auto& all = trace_.collective_args;
    const auto at = std::lower_bound(all.begin(), all.end(), row,
                                     [](const CollectiveArgs& args, Row wanted) { return args.row < wanted; });
    return at != all.end() && at->row == row ? &*at : nullptr;
  }

  /// The span that stands for the collective on the host: arguments of record_param_comms, or an "nccl:..." annotation.
  void describe_by_launch(Row launch, CommEvent& event) {
    constexpr int kHighest = 12;  // levels of nesting to look through
    Row row = launch;
    for (int level = 0; row != kNoRow && level < kHighest; ++level, row = parent_[row]) {
      if (const CollectiveArgs* args = args_of(row)) describe_by_args(*args, event);
      const std::string_view name = trace_.name(row);
      const bool tells = name.starts_with("nccl:") || name.starts_with("c10d::");
      if (tells && (event.kind == CollectiveKind::kSendRecv || event.kind == CollectiveKind::kUnknown)) {
        const CollectiveKind kind = kind_of_span(name);
        if (kind != CollectiveKind::kNone && kind != CollectiveKind::kUnknown) event.kind = kind;
      }
      if (tells && event.elements < 0 && slices_.shapes[row] != base::kNone<NameId>) {
        event.elements = elements_in(trace_.names.text(slices_.shapes[row]));
      }
    }
  }

  /// "[0, 1] as 5": rank lists tell groups of one name apart, names tell groups of the same ranks apart (a job may have
  /// several, each with its own order). Kineto cuts long lists, then the name has to do.
  NameId group_of(const CollectiveArgs& args) {
    const bool whole = args.group_ranks != base::kNone<NameId> && !trace_.names.text(args.group_ranks).empty() &&
                       trace_.names.text(args.group_ranks).find("...") == std::string_view::npos;
    if (!whole) return keep(args.group);
    if (args.group == base::kNone<NameId>) return keep(args.group_ranks);
    const auto [known, added] = groups_.try_emplace({args.group_ranks, args.group});
    if (added) {
      std::string text(trace_.names.text(args.group_ranks));
      known->second = summary_.names.intern(text.append(kGroupAs).append(trace_.names.text(args.group)));
    }
    return known->second;
  }

  void describe_by_args(const CollectiveArgs& args, CommEvent& event) {
    if (event.group == base::kNone<NameId>) {
      event.group = group_of(args);
    }
    if (event.sequence < 0) event.sequence = args.sequence;
    if (event.elements < 0) event.elements = std::max(args.in_elements, args.out_elements);
    if (event.dtype == base::kNone<NameId>) event.dtype = keep(args.dtype);
    if (args.collective != base::kNone<NameId> &&
        (event.kind == CollectiveKind::kSendRecv || event.kind == CollectiveKind::kUnknown)) {
      const CollectiveKind kind = kind_of_span(trace_.names.text(args.collective));
      if (kind != CollectiveKind::kNone && kind != CollectiveKind::kUnknown) event.kind = kind;
    }
  }

  void find_collectives() {
    std::vector<Row> rows;
    for (Row row = 0; row < slices_.size(); ++row) {
      if (use_[row] == Use::kCommunication) rows.push_back(row);
    }
    std::stable_sort(rows.begin(), rows.end(), [&](Row a, Row b) { return slices_.start[a] < slices_.start[b]; });
    for (const Row row : rows) {
      CommEvent event;
      event.begin = slices_.start[row];
      event.end = slices_.end(row);
      event.name = keep(slices_.name[row]);
      event.on_device = summary_.has_device;
      event.kind = event.on_device ? kind_of_kernel(trace_.name(row)) : kind_of_span(trace_.name(row));
      if (const CollectiveArgs* args = args_of(row)) describe_by_args(*args, event);
      if (event.on_device) describe_by_launch(launcher_[row], event);
      if (event.elements < 0 && slices_.shapes[row] != base::kNone<NameId>) {
        event.elements = elements_in(trace_.names.text(slices_.shapes[row]));
      }
      event.issued = event.on_device && launcher_[row] != kNoRow ? launch_time(row) : event.begin;
      event.layer = keep(span_around(event.on_device ? launcher_[row] : row));
      summary_.collectives.push_back(event);
    }
  }

  // --- slots --------------------------------------------------------------------------------------------------------
  enum Layer : std::uint8_t { kIdleLayer, kCopyLayer, kCommunicationLayer, kComputeLayer };

  struct ItemKey {
    Activity activity;
    NameId name, op, shape, span;
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
  using Charges = std::unordered_map<ItemKey, Charge, ItemHash>;

  /// Rows of one use, one after the other: of two that overlap the first goes on and the second gets what is left.
  std::vector<HostSegment> segments_of(Use use, Layer layer) const {
    std::vector<Row> rows;
    for (Row row = 0; row < slices_.size(); ++row) {
      if (use_[row] == use) rows.push_back(row);
    }
    std::stable_sort(rows.begin(), rows.end(), [&](Row a, Row b) { return slices_.start[a] < slices_.start[b]; });
    std::vector<HostSegment> segments;
    std::int64_t now = std::numeric_limits<std::int64_t>::min();
    for (const Row row : rows) {
      const std::int64_t begin = std::max(slices_.start[row], now);
      if (slices_.end(row) <= begin) continue;
      now = slices_.end(row);
      segments.push_back({begin, now, row, layer});
    }
    return segments;
  }

  /// Host segments where `intervals` are, for CPU jobs whose computation is what the host does.
  static std::vector<HostSegment> clipped(const std::vector<HostSegment>& segments, const Intervals& intervals,
                                          Layer layer) {
    std::vector<HostSegment> result;
    std::size_t j = 0;
    for (const HostSegment& segment : segments) {
      while (j < intervals.size() && intervals[j].end <= segment.begin) ++j;
      for (std::size_t k = j; k < intervals.size() && intervals[k].begin < segment.end; ++k) {
        const std::int64_t begin = std::max(segment.begin, intervals[k].begin);
        const std::int64_t end = std::min(segment.end, intervals[k].end);
        if (begin < end && segment.row != kNoRow) result.push_back({begin, end, segment.row, layer});
      }
    }
    return result;
  }

  /// The annotation nearest around a host row, other than the step itself and those of communication libraries, which
  /// say what is sent and not where in the model.
  NameId span_around(Row row) const {
    for (; row != kNoRow; row = parent_[row]) {
      const std::string_view name = trace_.name(row);
      if (slices_.category[row] == Category::kUserAnnotation && !name.starts_with("ProfilerStep#") &&
          !is_communication_span(name)) {
        return slices_.name[row];
      }
    }
    return base::kNone<NameId>;
  }

  Row operator_around(Row row) const {
    while (row != kNoRow && slices_.category[row] != Category::kCpuOp) row = parent_[row];
    return row;
  }

  ItemKey device_item(Activity activity, Row row) const {
    ItemKey key{activity, slices_.name[row], base::kNone<NameId>, base::kNone<NameId>, base::kNone<NameId>};
    const Row host = launcher_[row] == kNoRow ? host_row(row) : launcher_[row];
    const Row op = operator_around(host);
    if (op != kNoRow) {
      key.op = slices_.name[op];
      key.shape = slices_.shapes[op];
    }
    key.span = span_around(host);
    return key;
  }

  /// A row of a host thread stands for itself.
  Row host_row(Row row) const { return trace_.lanes[base::index(slices_.lane[row])].device ? kNoRow : row; }

  ItemKey idle_item(Row host) const {
    const bool gap = host == kNoRow || trace_.name(host).starts_with("ProfilerStep#");
    if (gap) {
      return {Activity::kHostGap, base::kNone<NameId>, base::kNone<NameId>, base::kNone<NameId>, span_around(host)};
    }
    return {Activity::kHostOp, slices_.name[host], base::kNone<NameId>, slices_.shapes[host], span_around(host)};
  }

  /// What an idle stretch is charged to, by what ends it; kHostOp stands for both kinds of host time.
  Activity idle_kind(Interval gap) const {
    if (!summary_.has_device) return Activity::kHostOp;
    const auto next = std::lower_bound(device_rows_.begin(), device_rows_.end(), gap.end,
                                       [&](Row row, std::int64_t time) { return slices_.start[row] < time; });
    if (next == device_rows_.end() || next == device_rows_.begin()) return Activity::kHostOp;
    const std::int64_t launched = launch_time(*next);
    if (launched > gap.begin) return Activity::kHostOp;
    return gap.length() < kKernelGap ? Activity::kLaunchGap : Activity::kHeldBack;
  }

  void fill_slots() {
    if (summary_.steps.empty()) return;
    const std::vector<HostSegment> host = host_timeline(trace_);
    const std::vector<HostSegment> compute =
        summary_.has_device ? segments_of(Use::kCompute, kComputeLayer) : clipped(host, compute_, kComputeLayer);
    const std::vector<HostSegment> all = overlay(compute, overlay(segments_of(Use::kCommunication, kCommunicationLayer),
                                                                  overlay(segments_of(Use::kCopy, kCopyLayer), host)));

    std::vector<std::int64_t> marks;
    for (const StepSummary& step : summary_.steps) marks.insert(marks.end(), {step.begin, step.end});
    for (const CommEvent& event : summary_.collectives) marks.insert(marks.end(), {event.begin, event.end});
    std::sort(marks.begin(), marks.end());
    marks.erase(std::unique(marks.begin(), marks.end()), marks.end());
    const std::int64_t first = summary_.steps.front().begin;
    std::int64_t last = first;
    for (const StepSummary& step : summary_.steps) last = std::max(last, step.end);
    std::erase_if(marks, [&](std::int64_t mark) { return mark < first || mark > last; });

    Charges charges;
    std::size_t at = 0;
    Interval idle{first, first};  // the whole idle stretch that the current one belongs to
    for (std::size_t m = 0; m + 1 < marks.size(); ++m) {
      const Interval window{marks[m], marks[m + 1]};
      while (at < all.size() && all[at].end <= window.begin) ++at;
      std::int64_t now = window.begin;
      for (std::size_t i = at; now < window.end; ++i) {
        const bool none = i >= all.size() || all[i].begin >= window.end;
        const std::int64_t begin = none ? window.end : std::max(all[i].begin, window.begin);
        if (begin > now) charge_idle({now, begin}, kNoRow, idle, charges);
        if (none) break;
        const HostSegment& segment = all[i];
        now = std::min(segment.end, window.end);
        if (segment.layer == kIdleLayer) {
          charge_idle({begin, now}, segment.row, idle, charges);
        } else {
          const Activity activity = segment.layer == kComputeLayer         ? Activity::kCompute
                                    : segment.layer == kCommunicationLayer ? Activity::kCommunication
                                                                           : Activity::kCopy;
          add_charge(device_item(activity, segment.row), now - begin, segment.begin >= window.begin, charges);
        }
      }
      add_slot(window, charges);
    }
  }

  static void add_charge(const ItemKey& key, std::int64_t time, bool began, Charges& charges) {
    Charge& charge = charges[key];
    charge.time += time;
    charge.count += began ? 1 : 0;
  }

  void charge_idle(Interval part, Row host, Interval& idle, Charges& charges) const {
    if (part.begin >= idle.end) {  // a new idle stretch: from the busy time before it to the one after it
      const auto next = std::partition_point(busy_.begin(), busy_.end(),
                                             [&](const Interval& busy) { return busy.begin <= part.begin; });
      idle.begin = next == busy_.begin() ? part.begin : std::prev(next)->end;
      idle.end = next == busy_.end() ? kNever : next->begin;
    }
    const Activity kind = idle.end == kNever ? Activity::kHostOp : idle_kind(idle);
    if (kind == Activity::kHostOp) {
      add_charge(idle_item(host), part.length(), true, charges);
    } else {
      constexpr NameId kNoName = base::kNone<NameId>;
      add_charge({kind, kNoName, kNoName, kNoName, kNoName}, part.length(), true, charges);
    }
  }

  void add_slot(Interval window, Charges& charges) {
    std::vector<std::pair<ItemKey, Charge>> items(charges.begin(), charges.end());
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
      summary_.slot_items.push_back(
          {key.activity, keep(key.name), keep(key.op), keep(key.shape), keep(key.span), charge.count, charge.time});
    }
    for (std::size_t i = 0; i < rest.size(); ++i) {
      constexpr NameId kNoName = base::kNone<NameId>;
      if (rest[i].time == 0) continue;
      summary_.slot_items.push_back(
          {static_cast<Activity>(i), kNoName, kNoName, kNoName, kNoName, rest[i].count, rest[i].time});
    }
    slot.items_end = static_cast<std::uint32_t>(summary_.slot_items.size());
    summary_.slots.push_back(slot);
    charges.clear();
  }

  // --- tables -------------------------------------------------------------------------------------------------------
  static void add_to(NameTotal& total, std::int64_t duration) {
    total.min = total.count == 0 ? duration : std::min(total.min, duration);
    total.max = std::max(total.max, duration);
    total.total += duration;
    ++total.count;
  }

  /// Totals by name of the rows that `wanted` takes, in order of first appearance.
  template <class Wanted>
  std::vector<NameTotal> totals_by_name(Wanted wanted) {
    std::vector<std::uint32_t> slot(trace_.names.size(), 0xFFFFFFFFu);
    std::vector<NameTotal> totals;
    for (Row row = 0; row < slices_.size(); ++row) {
      if (!wanted(row) || !selected(row)) continue;
      std::uint32_t& at = slot[base::index(slices_.name[row])];
      if (at == 0xFFFFFFFFu) {
        at = static_cast<std::uint32_t>(totals.size());
        NameTotal total;
        total.name = slices_.name[row];
        total.category = slices_.category[row];
        totals.push_back(total);
      }
      add_to(totals[at], slices_.duration[row]);
      totals[at].self += slices_.duration[row] - child_time_[row];
    }
    for (NameTotal& total : totals) {
      if (total.category == Category::kKernel) total.collective = kind_of_kernel(trace_.names.text(total.name));
      total.name = keep(total.name);
    }
    return totals;
  }

  void sum_kernels() {
    child_time_.assign(slices_.size(), 0);
    summary_.kernels = totals_by_name([&](Row row) { return is_device_work(slices_.category[row]); });
    std::stable_sort(summary_.kernels.begin(), summary_.kernels.end(),
                     [](const NameTotal& a, const NameTotal& b) { return a.total > b.total; });
  }

  void sum_operators() {
    for (Row row = 0; row < slices_.size(); ++row) {
      if (parent_[row] == kNoRow) continue;
      const Row parent = parent_[row];
      child_time_[parent] +=
          std::max<std::int64_t>(std::min(slices_.end(row), slices_.end(parent)) - slices_.start[row], 0);
    }
    summary_.operators = totals_by_name([&](Row row) { return slices_.category[row] == Category::kCpuOp; });
    std::stable_sort(summary_.operators.begin(), summary_.operators.end(),
                     [](const NameTotal& a, const NameTotal& b) { return a.self > b.self; });
  }

  void sum_device() {
    const bool all = last_kept_launch_ == kNever;
    const Intervals compute = all ? compute_ : intervals_of(Use::kCompute, true);
    const Intervals communication = all ? communication_ : intervals_of(Use::kCommunication, true);
    const Intervals copies = all ? copies_ : intervals_of(Use::kCopy, true);
    const Intervals busy = all ? busy_ : unite(unite(compute, communication), copies);
    DeviceTotals& totals = summary_.device;
    totals.compute = total(compute);
    totals.communication = total(communication);
    totals.copies = total(copies);
    totals.overlap = total(intersect(compute, communication));
    if (busy.empty()) return;
    totals.span = busy.back().end - busy.front().begin;
    totals.idle = totals.span - total(busy);
    for (const Lane& lane : trace_.lanes) {
      if (lane.device) add_stream_idle(lane);
    }
  }

  void add_stream_idle(const Lane& lane) {
    StreamIdle idle{lane.process, lane.thread};
    Row previous = kNoRow;
    for (Row row = lane.begin; row < lane.end; ++row) {
      if (!is_device_work(slices_.category[row]) || !selected(row)) continue;
      if (previous != kNoRow) {
        const std::int64_t gap = slices_.start[row] - slices_.end(previous);
        const bool host = launch_time(row) > slices_.end(previous);
        (host ? idle.host_wait : gap < kKernelGap ? idle.kernel_wait : idle.other) += gap;
      }
      previous = row;
    }
    if (previous != kNoRow) summary_.device.streams.push_back(idle);
  }

  const RankTrace& trace_;
  const Slices& slices_;
  ReduceOptions options_;
  RankSummary summary_;
  std::vector<NameId> kept_;  // of the trace's names, in the summary
  std::map<std::pair<NameId, NameId>, NameId> groups_;
  std::vector<Row> launcher_, parent_;
  std::vector<Use> use_;
  std::vector<Row> device_rows_;  // by start
  std::vector<std::int64_t> child_time_;
  std::int64_t last_kept_launch_ = kNever;
  Intervals compute_, communication_, copies_, hidden_, busy_, exposed_copies_;
};

}  // namespace

std::string_view activity_name(Activity activity) {
  static constexpr std::array<std::string_view, 7> kNames{"compute",  "communication", "copy",     "host_op",
                                                          "host_gap", "launch_gap",    "held_back"};
  return kNames[static_cast<std::size_t>(activity)];
}

RankSummary reduce(const RankTrace& trace, const ReduceOptions& options) {
  return Reducer(trace, options).run();
}

RankSummary reduce(RankTrace&& trace, const ReduceOptions& options) {
  const RankTrace rows = std::move(trace);  // released on return
  return reduce(rows, options);
}

}  // namespace paceline::trace
