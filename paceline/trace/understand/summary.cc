#include "paceline/trace/understand/summary.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>

#include "paceline/trace/decimal.h"
#include "paceline/trace/understand/comm_events.h"
#include "paceline/trace/understand/host.h"
#include "paceline/trace/understand/linked_rows.h"
#include "paceline/trace/understand/slots.h"

namespace paceline::trace {
namespace {

constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

/// When a rank is occupied, and with what.
struct Occupied {
  Intervals compute, communication, copies;
  Intervals overlap;  // of computation and communication
  Intervals busy;     // with any of them
};

class Reducer {
 public:
  Reducer(const RankTrace& trace, const ReduceOptions& options)
      : trace_(trace), slices_(trace.slices), rows_(trace), names_(trace.names, summary_.names), options_(options) {}

  RankSummary run() {
    static_cast<RankHeader&>(summary_) = trace_;
    summary_.has_device = rows_.has_device;
    find_steps();
    summary_.collectives = communication_events(rows_, names_);
    sum_time();
    fill_slots(rows_, names_, summary_);
    sum_tables();
    find_unrecognised();
    return std::move(summary_);
  }

 private:
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
      whole.end = std::numeric_limits<std::int64_t>::min();
      for (Row row = 0; row < slices_.size(); ++row) {
        if (slices_.category[row] == Category::kOther) continue;  // spans of the profiler itself
        whole.begin = std::min(whole.begin, slices_.start[row]);
        whole.end = std::max(whole.end, slices_.end(row));
      }
      if (whole.begin != kNever) summary_.steps.push_back(whole);
    }
    if (options_.skip_last_step && summary_.steps.size() > 1) {
      last_kept_launch_ = summary_.steps.back().begin;
      summary_.steps.pop_back();
    }
  }

  /// HTA's selection: with a filter, device work counts when it was launched before the last step began.
  bool selected(Row row) const {
    if (last_kept_launch_ == kNever) return true;
    if (!is_device_work(slices_.category[row])) return slices_.start[row] < last_kept_launch_;
    return rows_.launcher[row] != kNoRow && rows_.launch_time(row) < last_kept_launch_;
  }

  // --- intervals ----------------------------------------------------------------------------------------------------
  template <class Wanted>
  Occupied find_occupied(Wanted wanted) const {
    Occupied occupied;
    for (const Row row : rows_.used) {
      if (!wanted(row)) continue;
      const Use use = rows_.use[row];
      Intervals& intervals = use == Use::kCompute         ? occupied.compute
                             : use == Use::kCommunication ? occupied.communication
                                                          : occupied.copies;
      add_next(intervals, {slices_.start[row], slices_.end(row)});
      add_next(occupied.busy, {slices_.start[row], slices_.end(row)});
    }
    occupied.overlap = intersect(occupied.compute, occupied.communication);
    return occupied;
  }

  void sum_time() {
    Occupied occupied = find_occupied([](Row) { return true; });
    split_steps(occupied);
    if (last_kept_launch_ == kNever) {
      sum_device(occupied);
    } else {
      sum_device(find_occupied([&](Row row) { return selected(row); }));
    }
    summary_.compute_in_collectives = std::move(occupied.overlap);
  }

  void split_steps(const Occupied& occupied) {
    const Intervals& busy = occupied.busy;
    const Intervals exposed_copies = subtract(subtract(occupied.copies, occupied.compute), occupied.communication);
    for (StepSummary& step : summary_.steps) {
      const Interval window{step.begin, step.end};
      step.compute = total_within(occupied.compute, window);
      step.communication = total_within(occupied.communication, window);
      step.overlap = total_within(occupied.overlap, window);
      step.copies = total_within(occupied.copies, window);
      step.exposed_copies = total_within(exposed_copies, window);
      auto at = std::partition_point(busy.begin(), busy.end(),
                                     [&](const Interval& interval) { return interval.end <= step.begin; });
      if (at == busy.end() || at->begin >= step.end) {
        step.lead = step.end - step.begin;
        continue;
      }
      step.lead = std::max<std::int64_t>(at->begin - step.begin, 0);
      std::int64_t last = std::min(at->end, step.end);
      for (++at; at != busy.end() && at->begin < step.end; ++at) {
        const Interval gap{last, at->begin};
        const Activity cause = rows_.idle_cause(gap);
        step.idle += gap.length();
        if (cause == Activity::kHostOp) step.idle_host += gap.length();
        if (cause == Activity::kLaunchGap) step.idle_gap += gap.length();
        last = std::min(at->end, step.end);
      }
      step.tail = step.end - last;
    }
  }

  // --- tables -------------------------------------------------------------------------------------------------------
  static void add_to(NameTotal& total, std::int64_t duration) {
    total.min = total.count == 0 ? duration : std::min(total.min, duration);
    total.max = std::max(total.max, duration);
    total.total += duration;
    total.self += duration;
    ++total.count;
  }

  /// Totals by name of the rows that `wanted` takes, in order of first appearance.
  template <class Wanted>
  std::vector<NameTotal> totals_by_name(Wanted wanted) {
    constexpr std::uint32_t kNotSeen = 0xFFFFFFFFu;
    std::vector<std::uint32_t> place(trace_.names.size(), kNotSeen);
    std::vector<NameTotal> totals;
    for (Row row = 0; row < slices_.size(); ++row) {
      if (!wanted(row) || !selected(row)) continue;
      std::uint32_t& at = place[base::index(slices_.name[row])];
      if (at == kNotSeen) {
        at = static_cast<std::uint32_t>(totals.size());
        NameTotal total;
        total.name = slices_.name[row];
        total.category = slices_.category[row];
        totals.push_back(total);
      }
      add_to(totals[at], slices_.duration[row]);
    }
    for (Row row = 0; row < slices_.size(); ++row) {
      const Row parent = rows_.parent[row];
      if (parent == kNoRow || !wanted(parent) || !selected(parent)) continue;
      const std::int64_t within = std::min(slices_.end(row), slices_.end(parent)) - slices_.start[row];
      totals[place[base::index(slices_.name[parent])]].self -= std::max<std::int64_t>(within, 0);
    }
    for (NameTotal& total : totals) {
      if (total.category == Category::kKernel) total.collective = kind_of_kernel(trace_.names.text(total.name));
      total.name = names_.keep(total.name);
    }
    return totals;
  }

  void sum_tables() {
    summary_.kernels = totals_by_name([&](Row row) { return is_device_work(slices_.category[row]); });
    std::stable_sort(summary_.kernels.begin(), summary_.kernels.end(),
                     [](const NameTotal& a, const NameTotal& b) { return a.total > b.total; });
    summary_.operators = totals_by_name([&](Row row) { return slices_.category[row] == Category::kCpuOp; });
    std::stable_sort(summary_.operators.begin(), summary_.operators.end(),
                     [](const NameTotal& a, const NameTotal& b) { return a.self > b.self; });
  }

  void find_unrecognised() {
    std::map<NameId, bool> computes;  // by name, of what does not communicate
    for (const Lane& lane : trace_.lanes) {
      bool communication = false, computation = false;
      std::map<NameId, NameTotal> unknown;
      for (Row row = lane.begin; row < lane.end && lane.device && !computation; ++row) {
        if (slices_.category[row] != Category::kKernel || !selected(row)) continue;
        if (rows_.use[row] == Use::kCommunication) {
          communication = true;
          continue;
        }
        const auto [known, added] = computes.try_emplace(slices_.name[row]);
        if (added) known->second = is_known_computation(trace_.name(row));
        computation = known->second;
        NameTotal& total = unknown[slices_.name[row]];
        total.name = slices_.name[row];
        total.category = Category::kKernel;
        add_to(total, slices_.duration[row]);
      }
      if (!communication || computation) continue;
      for (auto& [name, total] : unknown) {
        total.name = names_.keep(name);
        summary_.unrecognised.push_back(total);
      }
    }
  }

  void sum_device(const Occupied& occupied) {
    DeviceTotals& totals = summary_.device;
    totals.compute = total(occupied.compute);
    totals.communication = total(occupied.communication);
    totals.copies = total(occupied.copies);
    totals.overlap = total(occupied.overlap);
    if (occupied.busy.empty()) return;
    totals.span = occupied.busy.back().end - occupied.busy.front().begin;
    totals.idle = totals.span - total(occupied.busy);
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
        const bool host = rows_.launch_time(row) > slices_.end(previous);
        (host ? idle.host_wait : gap < kKernelGap ? idle.kernel_wait : idle.other) += gap;
      }
      previous = row;
    }
    if (previous != kNoRow) summary_.device.streams.push_back(idle);
  }

  const RankTrace& trace_;
  const Slices& slices_;
  const LinkedRows rows_;
  RankSummary summary_;
  KeptNames names_;
  ReduceOptions options_;
  std::int64_t last_kept_launch_ = kNever;  // without a filter: never
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
