#include "paceline/diagnose/causes.h"

#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "paceline/base/statistics.h"

namespace paceline::diagnose {
namespace {

using trace::Activity;
using trace::SlotItem;
using trace::Trace;

/// What an item is, comparable between the ranks of a job, whose name tables differ.
std::string describe(const SlotItem& item, const base::InternTable& names, bool with_span) {
  const auto text = [&](base::NameId id) { return std::string(names.text(id)); };
  const bool has_span = with_span && item.span != base::kNone<base::NameId> && item.span != item.name;
  const std::string span = has_span ? " in " + text(item.span) : "";
  switch (item.activity) {
    case Activity::kHostGap:
      return "host in no operator (Python, a pause, another process)" + span;
    case Activity::kLaunchGap:
      return "short gaps between kernels";
    case Activity::kHeldBack:
      return "device held back by a dependency";
    case Activity::kCommunication:
      return "collectives";
    default:
      break;
  }
  if (item.name == base::kNone<base::NameId>) {
    return item.activity == Activity::kCompute ? "many small kernels" : "many small host operations and copies";
  }
  if (item.activity == Activity::kCompute && item.op != base::kNone<base::NameId> && item.op != item.name) {
    return "kernel " + text(item.name) + " of " + text(item.op) + span;
  }
  return text(item.name) + span;
}

/// What a rank did, by kind and description: comparable between ranks, whose name tables differ.
using ItemKey = std::pair<Activity, std::string>;
struct Done {
  double time = 0, count = 0;
};
using Items = std::map<ItemKey, Done>;

class Causes {
 public:
  Causes(const Trace& trace, const OwnTime& own, const Party& late, Diagnosis& diagnosis)
      : trace_(trace), late_(late), diagnosis_(diagnosis) {
    choose_compared(own);
  }

  void find(std::int64_t late_start) {
    std::map<Fault, double> by_fault;
    const Late& who = diagnosis_.late;
    const std::int64_t felt = who.is_hidden(diagnosis_.median_step) ? who.longer : who.cost;
    const double lateness = std::max(static_cast<double>(felt) * steps(), 1.0);
    const Fault compute_fault = fault_of_compute();
    const auto add = [&](std::string what, std::string kind, double time, Fault fault) {
      by_fault[fault] += time;
      if (time * 20 < lateness) return;  // below 5 % it explains nothing
      diagnosis_.causes.push_back({std::move(what), std::move(kind), static_cast<std::int64_t>(time / steps()),
                                   std::min(time / lateness, 1.0), fault});
    };
    add("its step began later", "late_start", static_cast<double>(late_start), Fault::kLateStart);
    for (const auto& [key, time] : excess()) {
      add(key.second, std::string(activity_name(key.first)), time, fault_of_item(key, compute_fault));
    }
    std::stable_sort(diagnosis_.causes.begin(), diagnosis_.causes.end(),
                     [](const Cause& a, const Cause& b) { return a.per_step > b.per_step; });
    diagnosis_.late.fault = late_.ranks.size() > 1 ? Fault::kWholeHost : main_fault(by_fault);
  }

 private:
  double steps() const { return static_cast<double>(std::max<std::size_t>(diagnosis_.step_count, 1)); }

  /// Peers outside the party; where there is none, all ranks outside it, and then only pace compares.
  void choose_compared(const OwnTime& own) {
    std::vector<std::uint32_t> others;
    if (own.has_peers(late_.ranks[0])) {
      for (const std::uint32_t peer : own.peers(late_.ranks[0])) {
        if (!late_.has(peer)) others.push_back(peer);
      }
    }
    alike_ = !others.empty() || !own.has_roles();
    for (std::uint32_t rank = 0; rank < trace_.ranks.size() && others.empty(); ++rank) {
      if (!late_.has(rank)) compared_.push_back(rank);
    }
    if (!others.empty()) compared_ = std::move(others);
    constexpr std::size_t kEnough = 16;  // for a median
    const std::size_t stride = std::max<std::size_t>(compared_.size() / kEnough, 1);
    std::vector<std::uint32_t> thinned;
    for (std::size_t i = 0; i < compared_.size(); i += stride) thinned.push_back(compared_[i]);
    compared_ = std::move(thinned);
  }

  /// By item, the time that the party spends on it more than the median of the compared ranks: for all of them, or,
  /// where ranks do not do the same, for each.
  std::map<ItemKey, double> excess() const {
    std::map<ItemKey, double> excess;
    if (compared_.empty()) return excess;
    Items own;
    for (const std::uint32_t rank : late_.ranks) {
      for (const auto& [key, done] : items_of(rank)) {
        own[key].time += done.time / static_cast<double>(late_.ranks.size());
        own[key].count += done.count / static_cast<double>(late_.ranks.size());
      }
    }
    std::map<ItemKey, std::vector<double>> on_others;
    for (const std::uint32_t rank : compared_) {
      const Items theirs = items_of(rank);
      for (const auto& [key, done] : own) {
        const auto found = theirs.find(key);
        const Done other = found == theirs.end() ? Done{} : found->second;
        if (alike_) {
          on_others[key].push_back(other.time);
        } else if (other.count > 0) {
          on_others[key].push_back(other.time / other.count * done.count);
        }
      }
    }
    for (const auto& [key, times] : on_others) excess[key] = own[key].time - base::median(times);
    return excess;
  }

  ItemKey key_of(const SlotItem& item, const base::InternTable& names) const {
    // An annotation with no operator in it is Python, unless its name says that it fetches the batch.
    const bool annotation = item.activity == Activity::kHostOp && item.name != base::kNone<base::NameId> &&
                            item.name == item.span && !is_input(names.text(item.name));
    if (annotation) return {Activity::kHostGap, std::string(names.text(item.name))};
    return {item.activity, describe(item, names, alike_)};
  }

  Items items_of(std::uint32_t index) const {
    const trace::RankSummary& rank = trace_.ranks[index];
    Items items;
    for (const SlotItem& item : rank.slot_items) {
      if (item.activity == Activity::kCommunication) continue;  // waiting is somebody else's lateness
      Done& done = items[key_of(item, rank.names)];
      done.time += static_cast<double>(item.time);
      done.count += item.count;
    }
    return items;
  }

  static Fault fault_of_item(const ItemKey& key, Fault compute_fault) {
    switch (key.first) {
      case Activity::kCompute:
        return compute_fault;
      case Activity::kHostOp:
        if (is_allocator_call(key.second)) return Fault::kAllocator;
        if (is_input(key.second)) return Fault::kInput;
        return Fault::kHostOp;
      case Activity::kHostGap:
        return is_input(key.second) ? Fault::kInput : Fault::kHostPause;
      case Activity::kCopy:
        return Fault::kInput;
      default:
        return Fault::kNone;
    }
  }

  /// The fault with the largest excess. Synchronisation between allocator calls waits because of them.
  static Fault main_fault(std::map<Fault, double> by_fault) {
    by_fault.erase(Fault::kNone);
    if (by_fault[Fault::kAllocator] * 4 > by_fault[Fault::kHostOp]) {
      by_fault[Fault::kAllocator] += std::max(by_fault[Fault::kHostOp], 0.0);
      by_fault[Fault::kHostOp] = 0;
    }
    Fault main = Fault::kNone;
    double largest = 0;
    for (const auto& [fault, time] : by_fault) {
      if (time > largest) largest = time, main = fault;
    }
    return main;
  }

  /// Why computation takes longer: more work, all kernels slower, or only those that memory limits. Kernels are
  /// compared by name: their number, and their mean time where the number agrees.
  Fault fault_of_compute() const {
    if (!diagnosis_.has_device) return Fault::kHostOp;  // a CPU job computes in its operators
    struct Work {
      std::vector<double> counts, means;  // of ranks outside the party
    };
    std::map<std::string_view, Work> others;
    for (const std::uint32_t i : compared_) {
      for (const trace::NameTotal& total : trace_.ranks[i].kernels) add_work(others, trace_.ranks[i], total);
    }
    double more_work = 0, expected_compute = 0, slow_compute = 0, expected_memory = 0, slow_memory = 0;
    for (const std::uint32_t i : late_.ranks) {
      const trace::RankSummary& rank = trace_.ranks[i];
      for (const trace::NameTotal& total : rank.kernels) {
        if (!is_computation(total)) continue;
        const std::string_view name = rank.names.text(total.name);
        const auto found = others.find(name);
        const auto count = static_cast<double>(total.count);
        if (found == others.end()) {
          if (alike_) more_work += static_cast<double>(total.total);
          continue;
        }
        const double mean = base::median(found->second.means);
        if (alike_) more_work += (count - base::median(found->second.counts)) * mean;
        (is_compute_bound(name) ? expected_compute : expected_memory) += count * mean;
        (is_compute_bound(name) ? slow_compute : slow_memory) += static_cast<double>(total.total);
      }
    }
    const double slower = slow_compute - expected_compute + slow_memory - expected_memory;
    if (more_work > slower || has_other_shapes()) return Fault::kImbalance;
    const double compute_ratio = expected_compute > 0 ? slow_compute / expected_compute - 1 : 0;
    const double memory_ratio = expected_memory > 0 ? slow_memory / expected_memory - 1 : 0;
    // Where shapes are not recorded (in CUDA graphs), more work is what stretches all kernels alike.
    const bool all_alike = std::min(compute_ratio, memory_ratio) >= 0.7 * std::max(compute_ratio, memory_ratio);
    if (all_alike && !knows_shapes()) return Fault::kImbalance;
    return compute_ratio >= 0.5 * memory_ratio ? Fault::kClock : Fault::kMemoryBandwidth;
  }

  static bool is_computation(const trace::NameTotal& total) {
    return total.category == trace::Category::kKernel && total.collective == trace::CollectiveKind::kNone;
  }

  template <class Works>
  static void add_work(Works& works, const trace::RankSummary& rank, const trace::NameTotal& total) {
    if (!is_computation(total)) return;
    auto& work = works[rank.names.text(total.name)];
    work.counts.push_back(static_cast<double>(total.count));
    work.means.push_back(static_cast<double>(total.total) / static_cast<double>(total.count));
  }

  using OpShape = std::pair<std::string_view, std::string_view>;

  std::map<OpShape, std::int64_t> compute_by_shape(std::uint32_t index) const {
    const trace::RankSummary& rank = trace_.ranks[index];
    std::map<OpShape, std::int64_t> times;
    for (const SlotItem& item : rank.slot_items) {
      if (item.activity != Activity::kCompute || item.shape == base::kNone<base::NameId>) continue;
      const std::string_view op = item.op == base::kNone<base::NameId> ? std::string_view{} : rank.names.text(item.op);
      times[{op, rank.names.text(item.shape)}] += item.time;
    }
    return times;
  }

  /// Whether the shapes of most of the party's computation are recorded.
  bool knows_shapes() const {
    std::int64_t all = 0, known = 0;
    for (const SlotItem& item : trace_.ranks[late_.ranks[0]].slot_items) {
      if (item.activity != Activity::kCompute) continue;
      all += item.time;
      if (item.shape != base::kNone<base::NameId>) known += item.time;
    }
    return 2 * known >= all;
  }

  /// Whether a good part of the party's computation works on shapes that no other rank has.
  bool has_other_shapes() const {
    std::map<OpShape, std::int64_t> known;
    for (const std::uint32_t i : compared_) known.merge(compute_by_shape(i));
    std::int64_t all = 0, other = 0;
    for (const auto& [key, time] : compute_by_shape(late_.ranks[0])) {
      all += time;
      if (!known.contains(key)) other += time;
    }
    return other * 5 > all;
  }

  const Trace& trace_;
  const Party& late_;
  Diagnosis& diagnosis_;
  std::vector<std::uint32_t> compared_;
  bool alike_ = true;  // they do the same as the party
};

}  // namespace

void find_causes(const Trace& trace, const OwnTime& own, const Party& late, std::int64_t late_start,
                 Diagnosis& diagnosis) {
  Causes(trace, own, late, diagnosis).find(late_start);
}

}  // namespace paceline::diagnose
