#include "paceline/diagnose/late.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>

#include "paceline/base/statistics.h"

namespace paceline::diagnose {
namespace {

using trace::Collective;
using trace::CommEvent;
using trace::Member;
using trace::Trace;
using trace::WindowItem;

std::int64_t median_of(std::vector<std::int64_t> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*std::max_element(values.begin(), middle) + *middle) / 2;
}

/// P(X >= hits) for X ~ Binomial(trials, chance).
double binomial_tail(std::uint32_t hits, std::uint32_t trials, double chance) {
  double tail = 0;
  for (std::uint32_t k = hits; k <= trials; ++k) {
    tail += std::exp(std::lgamma(trials + 1.0) - std::lgamma(k + 1.0) - std::lgamma(trials - k + 1.0) +
                     k * std::log(chance) + (trials - k) * std::log1p(-chance));
  }
  return tail;
}

/// Upper bound of P(T > t) for Student's T with `freedom` >= 2 degrees: the density integrated with x / t >= 1 under the
/// integral; too large by less than a factor of freedom / (freedom - 1).
double student_tail(double t, double freedom) {
  if (t <= 0) return 1.0;
  constexpr double kPi = 3.14159265358979323846;
  const double log_density = std::lgamma((freedom + 1) / 2) - std::lgamma(freedom / 2) - std::log(freedom * kPi) / 2;
  return std::exp(log_density + std::log(freedom / ((freedom - 1) * t)) -
                  (freedom - 1) / 2 * std::log1p(t * t / freedom));
}

/// How likely chance would make `rank` cost as much more than the other ranks' mean, step for step.
double excess_tail(const std::vector<std::vector<double>>& costs, std::size_t rank) {
  const std::size_t steps = costs[rank].size();
  if (steps < 3 || costs.size() < 2) return 1.0;
  std::vector<double> excess = costs[rank];
  for (std::size_t other = 0; other < costs.size(); ++other) {
    if (other == rank) continue;
    for (std::size_t s = 0; s < steps; ++s) excess[s] -= costs[other][s] / static_cast<double>(costs.size() - 1);
  }
  const double mean = base::mean(excess);
  const double error = base::standard_deviation(excess) / std::sqrt(static_cast<double>(steps));
  if (error == 0) return mean > 0 ? 0.0 : 1.0;
  return student_tail(mean / error, static_cast<double>(steps - 1));
}

std::string describe(const WindowItem& item, const base::InternTable& names) {
  const auto text = [&](base::NameId id) { return std::string(names.text(id)); };
  switch (item.kind) {
    case WindowItem::Kind::kHostGap:
      return "host in no operator (Python, blocked or another process)";
    case WindowItem::Kind::kDeviceIdle:
      return "device idle";
    case WindowItem::Kind::kDeviceWork:
      return "kernel " + text(item.name);
    case WindowItem::Kind::kHostOp:
      break;
  }
  const bool inside = item.span != base::kNone<base::NameId> && item.span != item.name;
  return text(item.name) + (inside ? " in " + text(item.span) : "");
}

std::string kind_name(WindowItem::Kind kind) {
  switch (kind) {
    case WindowItem::Kind::kHostOp:
      return "host_op";
    case WindowItem::Kind::kHostGap:
      return "host_gap";
    case WindowItem::Kind::kDeviceWork:
      return "device_work";
    case WindowItem::Kind::kDeviceIdle:
      return "device_idle";
  }
  return "";
}

bool on_device(WindowItem::Kind kind) {
  return kind == WindowItem::Kind::kDeviceWork || kind == WindowItem::Kind::kDeviceIdle;
}

/// What a rank did, by kind and description: comparable between ranks, whose name tables differ.
using ItemKey = std::pair<WindowItem::Kind, std::string>;
using ItemTimes = std::map<ItemKey, std::int64_t>;

class LateRank {
 public:
  LateRank(const Trace& trace, Diagnosis& diagnosis) : trace_(trace), diagnosis_(diagnosis) {}

  void run() {
    for (const Collective& collective : trace_.collectives) add_row(collective);
    if (const std::optional<std::uint32_t> late = choose()) find_causes(*late);
  }

 private:
  static bool counts(const Collective& collective) {
    return collective.size() >= 2 && trace::ends_together(collective.kind);
  }

  std::vector<std::int64_t> begins_of_others(const Collective& collective) const {
    std::vector<std::int64_t> begins;
    for (std::uint32_t m = collective.members_begin; m < collective.members_end; ++m) {
      if (m != collective.last) begins.push_back(trace_.members[m].begin);
    }
    return begins;
  }

  void add_row(const Collective& collective) {
    const Member& last = trace_.members[collective.last];
    CollectiveRow row;
    row.name = collective_name(collective.kind);
    row.group = trace_.groups[collective.group];
    row.elements = trace_.event(last).elements;
    row.ranks = collective.size();
    row.last_rank = *trace_.ranks[last.rank].rank;
    row.transfer = collective.transfer;
    std::int64_t first_begin = last.begin, first_end = last.end, last_end = last.end;
    for (std::uint32_t m = collective.members_begin; m < collective.members_end; ++m) {
      const Member& member = trace_.members[m];
      first_begin = std::min(first_begin, member.begin);
      first_end = std::min(first_end, member.end);
      last_end = std::max(last_end, member.end);
      row.waits.push_back(member.end - member.begin - collective.transfer);
      row.members.push_back(*trace_.ranks[member.rank].rank);
    }
    row.start_spread = last.begin - first_begin;
    row.end_spread = last_end - first_end;
    if (collective.size() >= 2) row.behind = last.begin - median_of(begins_of_others(collective));
    savings_.push_back(0);
    if (counts(collective)) {
      RankDiagnosis& rank = diagnosis_.ranks[last.rank];
      ++rank.times_last;
      const auto [counted, first] = counted_until_.try_emplace(last.rank, last.begin - row.behind);
      savings_.back() = saving(collective, counted->second);
      counted->second = std::max(counted->second, last.begin);
      rank.blame += savings_.back();
    }
    diagnosis_.collectives.push_back(std::move(row));
  }

  /// What the others would have saved had the last one come with the median of them: of each other member the exposed
  /// waiting, at most the lateness; then the median over them. Collectives that one rank holds up at the same time count
  /// once: from `since` on, where the time before is counted already.
  std::int64_t saving(const Collective& collective, std::int64_t since) const {
    const Member& last = trace_.members[collective.last];
    const std::int64_t from = std::max(since, median_of(begins_of_others(collective)));
    std::vector<std::int64_t> savings;
    for (std::uint32_t m = collective.members_begin; m < collective.members_end; ++m) {
      if (m == collective.last) continue;
      const Member& member = trace_.members[m];
      const CommEvent& event = trace_.event(member);
      // The time waited for the last one alone, on the member's own clock: up to where its transfer starts.
      const std::int64_t ready = event.end - collective.transfer;
      const trace::Interval wait{std::max(event.begin, ready - std::max<std::int64_t>(last.begin - from, 0)), ready};
      if (wait.length() <= 0) {
        savings.push_back(0);
        continue;
      }
      savings.push_back(wait.length() - total_within(trace_.ranks[member.rank].compute_in_collectives, wait));
    }
    return std::max<std::int64_t>(median_of(savings), 0);
  }

  /// What the others would have saved in each step, by the rank that came last.
  std::vector<std::vector<double>> costs_by_step() const {
    std::vector<std::vector<double>> costs(trace_.ranks.size(), std::vector<double>(diagnosis_.step_count, 0.0));
    for (std::size_t c = 0; c < trace_.collectives.size(); ++c) {
      const Collective& collective = trace_.collectives[c];
      if (!counts(collective)) continue;
      const Member& last = trace_.members[collective.last];
      const auto& steps = trace_.ranks[last.rank].steps;
      const auto after = std::partition_point(steps.begin(), steps.end(), [&](const trace::StepSummary& step) {
        return step.begin <= trace_.event(last).begin;
      });
      const auto step = static_cast<std::size_t>(std::max<std::ptrdiff_t>(after - steps.begin() - 1, 0));
      if (step < diagnosis_.step_count) costs[last.rank][step] += static_cast<double>(savings_[c]);
    }
    return costs;
  }

  std::optional<std::uint32_t> choose() const {
    std::vector<std::uint32_t> instances(trace_.ranks.size(), 0);
    std::vector<double> expected(trace_.ranks.size(), 0);
    for (const Collective& collective : trace_.collectives) {
      if (!counts(collective)) continue;
      for (std::uint32_t m = collective.members_begin; m < collective.members_end; ++m) {
        ++instances[trace_.members[m].rank];
        expected[trace_.members[m].rank] += 1.0 / collective.size();
      }
    }
    const std::vector<std::vector<double>> costs = costs_by_step();
    const auto steps = static_cast<double>(std::max<std::size_t>(diagnosis_.step_count, 1));
    const double bound = 0.01 / static_cast<double>(diagnosis_.ranks.size());  // every rank is a candidate
    std::optional<std::uint32_t> late;
    for (std::uint32_t i = 0; i < diagnosis_.ranks.size(); ++i) {
      const RankDiagnosis& rank = diagnosis_.ranks[i];
      if (rank.times_last == 0 || (late && rank.blame <= diagnosis_.ranks[*late].blame)) continue;
      if (static_cast<double>(rank.blame) / steps < 0.01 * static_cast<double>(diagnosis_.median_step)) continue;
      const double chance = expected[i] / instances[i];
      const bool often = binomial_tail(rank.times_last, instances[i], chance) < bound;
      if (often || excess_tail(costs, i) < bound) late = i;
    }
    return late;
  }

  /// Compares the windows before the collectives in which the rank was last with the same windows of the others.
  void find_causes(std::uint32_t late) {
    ItemTimes excess;
    std::int64_t late_start = 0, lateness = 0, counted_until = std::numeric_limits<std::int64_t>::min();
    for (const Collective& collective : trace_.collectives) {
      const Member& member = trace_.members[collective.last];
      if (!counts(collective) || member.rank != late) continue;
      const std::int64_t from = std::max(counted_until, median_of(begins_of_others(collective)));
      lateness += std::max<std::int64_t>(member.begin - from, 0);
      counted_until = std::max(counted_until, member.begin);
      compare(collective, member, excess, late_start);
    }
    const auto steps = static_cast<std::int64_t>(std::max<std::size_t>(diagnosis_.step_count, 1));
    const auto add = [&](std::string what, std::string kind, std::int64_t time) {
      if (time * 20 < lateness) return;  // below 5 % it explains nothing
      const double share = lateness > 0 ? static_cast<double>(time) / static_cast<double>(lateness) : 0.0;
      diagnosis_.causes.push_back({std::move(what), std::move(kind), time / steps, std::min(share, 1.0)});
    };
    add("its step began later", "late_start", late_start);
    for (const auto& [key, time] : excess) add(key.second, kind_name(key.first), time);
    std::stable_sort(diagnosis_.causes.begin(), diagnosis_.causes.end(),
                     [](const Cause& a, const Cause& b) { return a.per_step > b.per_step; });
    diagnosis_.late_rank = static_cast<std::int32_t>(diagnosis_.ranks[late].rank);
  }

  ItemTimes items_of(const Member& member) const {
    const trace::RankSummary& rank = trace_.ranks[member.rank];
    const CommEvent& event = trace_.event(member);
    ItemTimes times;
    for (std::uint32_t i = event.items_begin; i < event.items_end; ++i) {
      const WindowItem& item = rank.window_items[i];
      times[{item.kind, describe(item, rank.names)}] += item.time;
    }
    return times;
  }

  void compare(const Collective& collective, const Member& member, ItemTimes& excess, std::int64_t& late_start) {
    const CommEvent& event = trace_.event(member);
    std::vector<std::int64_t> issues, windows;
    // Per item of the late rank, its time on the others.
    std::map<ItemKey, std::vector<std::int64_t>> on_others;
    const ItemTimes own = items_of(member);
    constexpr std::uint32_t kCompared = 16;  // enough for a median
    const std::uint32_t stride = std::max(collective.size() / kCompared, 1u);
    for (std::uint32_t m = collective.members_begin; m < collective.members_end; m += stride) {
      if (m == collective.last) continue;
      const Member& other = trace_.members[m];
      const trace::Clock& clock = trace_.clocks[other.rank];
      issues.push_back(clock.align(trace_.event(other).issued));
      windows.push_back(clock.align(trace_.event(other).host_window));
      const ItemTimes theirs = items_of(other);
      for (const auto& [key, time] : own) {
        const auto found = theirs.find(key);
        on_others[key].push_back(found == theirs.end() ? 0 : found->second);
      }
    }
    const trace::Clock& clock = trace_.clocks[member.rank];
    const std::int64_t behind = member.begin - median_of(begins_of_others(collective));
    const std::int64_t issued_behind = clock.align(event.issued) - median_of(issues);
    const bool host_side = !event.on_device || 2 * issued_behind >= behind;
    for (const auto& [key, time] : own) {
      if (on_device(key.first) == host_side) continue;
      excess[key] += time - median_of(on_others[key]);
    }
    // Before the first collective nothing brings the ranks together: their steps may begin at different times.
    if (host_side && member.event == 0) late_start += clock.align(event.host_window) - median_of(windows);
  }

  const Trace& trace_;
  Diagnosis& diagnosis_;
  std::vector<std::int64_t> savings_;                      // of each collective
  std::map<std::uint32_t, std::int64_t> counted_until_;  // by the rank that came last
};

}  // namespace

void find_late_rank(const trace::Trace& trace, Diagnosis& diagnosis) {
  LateRank(trace, diagnosis).run();
}

}  // namespace paceline::diagnose
