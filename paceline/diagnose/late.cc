#include "paceline/diagnose/late.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <optional>

#include "paceline/base/statistics.h"

namespace paceline::diagnose {
namespace {

using trace::Activity;
using trace::Collective;
using trace::CommEvent;
using trace::Member;
using trace::SlotItem;
using trace::Trace;

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

/// Upper bound of P(T > t) for Student's T with `freedom` >= 2 degrees: the density integrated with x / t >= 1 under
/// the integral; too large by less than a factor of freedom / (freedom - 1).
double student_tail(double t, double freedom) {
  if (t <= 0) return 1.0;
  constexpr double kPi = 3.14159265358979323846;
  const double log_density = std::lgamma((freedom + 1) / 2) - std::lgamma(freedom / 2) - std::log(freedom * kPi) / 2;
  return std::exp(log_density + std::log(freedom / ((freedom - 1) * t)) -
                  (freedom - 1) / 2 * std::log1p(t * t / freedom));
}

/// How likely chance would make `costs` as much larger than `others`, step for step.
double excess_tail(const std::vector<double>& costs, const std::vector<double>& others) {
  const std::size_t steps = costs.size();
  if (steps < 3) return 1.0;
  std::vector<double> excess(steps);
  for (std::size_t s = 0; s < steps; ++s) excess[s] = costs[s] - others[s];
  const double mean = base::mean(excess);
  const double error = base::standard_deviation(excess) / std::sqrt(static_cast<double>(steps));
  if (error == 0) return mean > 0 ? 0.0 : 1.0;
  return student_tail(mean / error, static_cast<double>(steps - 1));
}

/// What an item is, comparable between the ranks of a job, whose name tables differ.
std::string describe(const SlotItem& item, const base::InternTable& names) {
  const auto text = [&](base::NameId id) { return std::string(names.text(id)); };
  const bool has_span = item.span != base::kNone<base::NameId> && item.span != item.name;
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
using ItemTimes = std::map<ItemKey, std::int64_t>;

class LateRank {
 public:
  LateRank(const Trace& trace, Diagnosis& diagnosis) : trace_(trace), diagnosis_(diagnosis) {}

  void run() {
    for (const Collective& collective : trace_.collectives) add_row(collective);
    costs_ = costs_by_step();
    own_excess_ = own_excess();
    rotation_ = rotation();
    std::optional<Party> late = choose();
    if (late) late = root_of(*late);
    if (late) {
      name(*late);
      find_causes(*late);
    } else {
      find_rotation();
    }
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
  /// waiting, at most the lateness; then the median over them. Collectives that one rank holds up at the same time
  /// count once: from `since` on, where the time before is counted already.
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

  /// Candidates for being late: a rank, or all ranks of a host. Indices into Trace::ranks.
  struct Party {
    std::vector<std::uint32_t> ranks;
    bool has(std::uint32_t rank) const { return std::find(ranks.begin(), ranks.end(), rank) != ranks.end(); }
  };

  std::vector<Party> candidates() const {
    std::vector<Party> parties;
    std::map<std::string, Party> hosts;
    for (std::uint32_t i = 0; i < trace_.ranks.size(); ++i) {
      parties.push_back({{i}});
      if (!trace_.ranks[i].host.empty()) hosts[trace_.ranks[i].host].ranks.push_back(i);
    }
    for (auto& [name, host] : hosts) {
      if (hosts.size() > 1 && host.ranks.size() > 1) parties.push_back(std::move(host));
    }
    return parties;
  }

  struct Evidence {
    std::uint32_t times_last = 0, instances = 0;
    double expected = 0;          // times last, were every member equally likely
    std::int64_t blame = 0;       // ns over all steps
    std::int64_t worst_rank = 0;  // the largest blame of one rank
    std::vector<double> by_step;
  };

  Evidence evidence_of(const Party& party) const {
    Evidence evidence;
    evidence.by_step.assign(diagnosis_.step_count, 0.0);
    for (const std::uint32_t rank : party.ranks) {
      evidence.times_last += diagnosis_.ranks[rank].times_last;
      evidence.blame += diagnosis_.ranks[rank].blame;
      evidence.worst_rank = std::max(evidence.worst_rank, diagnosis_.ranks[rank].blame);
      for (std::size_t s = 0; s < diagnosis_.step_count; ++s) evidence.by_step[s] += costs_[rank][s];
    }
    std::vector<bool> inside(trace_.ranks.size(), false);
    for (const std::uint32_t rank : party.ranks) inside[rank] = true;
    for (const Collective& collective : trace_.collectives) {
      if (!counts(collective)) continue;
      std::uint32_t members = 0;
      for (std::uint32_t m = collective.members_begin; m < collective.members_end; ++m) {
        members += inside[trace_.members[m].rank] ? 1 : 0;
      }
      if (members == 0) continue;
      ++evidence.instances;
      evidence.expected += static_cast<double>(members) / collective.size();
    }
    return evidence;
  }

  double steps() const { return static_cast<double>(std::max<std::size_t>(diagnosis_.step_count, 1)); }
  double worth_naming() const { return 0.01 * static_cast<double>(diagnosis_.median_step); }  // ns per step

  std::optional<Party> choose() {
    const std::vector<Party> parties = candidates();
    const double bound = 0.01 / static_cast<double>(parties.size());  // everyone is a candidate
    std::optional<Party> late;
    std::int64_t largest = 0;
    for (const Party& party : parties) {
      std::int64_t blame = 0;
      for (const std::uint32_t rank : party.ranks) blame += diagnosis_.ranks[rank].blame;
      if (blame <= largest || static_cast<double>(blame) / steps() < worth_naming()) continue;
      const Evidence evidence = evidence_of(party);
      const bool host = party.ranks.size() > 1;
      if (host && (evidence.worst_rank * 10 > blame * 6 || blame * 10 < largest * 13))
        continue;  // one rank of it is it
      const double chance = std::min(evidence.expected / std::max(evidence.instances, 1u), 1.0 - 1e-9);
      const bool often = binomial_tail(evidence.times_last, evidence.instances, chance) < bound;
      const Pattern pattern = pattern_of(evidence.by_step);
      const bool lone_step = pattern == Pattern::kOutlier && is_lone_step(evidence.by_step);
      if (!often && !lone_step && excess_tail(evidence.by_step, mean_cost_of_others(party)) >= bound) continue;
      if (takes_turns(party)) continue;
      largest = blame;
      late = party;
      diagnosis_.late.pattern = pattern;
      diagnosis_.late.cost = static_cast<std::int64_t>(static_cast<double>(blame) / steps());
    }
    return late;
  }

  void name(const Party& late) {
    const Evidence evidence = evidence_of(late);
    diagnosis_.late.times_last = evidence.times_last;
    diagnosis_.late.collectives = evidence.instances;
    for (const std::uint32_t rank : late.ranks) diagnosis_.late.ranks.push_back(*trace_.ranks[rank].rank);
    if (late.ranks.size() > 1) diagnosis_.late.host = trace_.ranks[late.ranks[0]].host;
  }

  /// Per rank and step, how much longer than on the median rank what it did itself took: all but collectives. Ranks
  /// that are late only because they waited for another one have none.
  std::vector<double> own_excess() const {
    std::vector<double> own(trace_.ranks.size(), 0.0);
    for (std::size_t i = 0; i < own.size(); ++i) {
      const diagnose::StepParts& mean = diagnosis_.ranks[i].mean;
      own[i] = static_cast<double>(mean.duration - mean.exposed_wait - mean.exposed_transfer);
    }
    const double typical = base::median(own);
    for (double& time : own) time -= typical;
    return own;
  }

  /// Who is behind the lateness: the party itself when what it did took longer; one of its ranks, or a rank outside it,
  /// when that one's excess is much larger; nobody when nobody's own time explains it, as behind a slow link.
  std::optional<Party> root_of(const Party& late) const {
    if (diagnosis_.step_count > 0 && starts_late(late)) return late;
    const auto most =
        static_cast<std::uint32_t>(std::max_element(own_excess_.begin(), own_excess_.end()) - own_excess_.begin());
    const double largest = own_excess_[most];
    // Blame of a party counts every group that it holds up, also at the same time; ranks wait once.
    double wait = 0;
    for (const RankDiagnosis& rank : diagnosis_.ranks) wait += static_cast<double>(rank.mean.exposed_wait);
    wait /= static_cast<double>(diagnosis_.ranks.size());
    if (largest < 0.3 * std::min(static_cast<double>(diagnosis_.late.cost), wait)) {
      diagnosis_.late = Late{};
      return std::nullopt;
    }
    if (const std::optional<Party> host = whole_host(most)) return host;
    std::size_t alike = 0;
    for (const std::uint32_t rank : late.ranks) alike += own_excess_[rank] >= 0.5 * largest ? 1 : 0;
    if (10 * alike >= 7 * late.ranks.size()) return late;
    diagnosis_.late.cost = std::min(diagnosis_.late.cost, static_cast<std::int64_t>(largest));
    return Party{{most}};
  }

  /// All ranks of the host of `most`, when nearly all of them and no others take as much longer.
  std::optional<Party> whole_host(std::uint32_t most) const {
    Party host;
    std::size_t alike = 0, alike_elsewhere = 0, elsewhere = 0;
    for (std::uint32_t i = 0; i < trace_.ranks.size(); ++i) {
      const bool here = !trace_.ranks[i].host.empty() && trace_.ranks[i].host == trace_.ranks[most].host;
      const bool excess = own_excess_[i] >= 0.5 * own_excess_[most];
      if (here) host.ranks.push_back(i);
      elsewhere += here ? 0 : 1;
      (here ? alike : alike_elsewhere) += excess ? 1 : 0;
    }
    const bool whole = host.ranks.size() > 1 && elsewhere > 0 && 10 * alike >= 7 * host.ranks.size();
    return whole && alike_elsewhere == 0 ? std::optional<Party>(host) : std::nullopt;
  }

  /// How much later than the others' median its first step began, ns.
  std::int64_t start_delay(const Party& late) const {
    std::vector<std::int64_t> begins;
    std::int64_t own = 0;
    for (std::uint32_t i = 0; i < trace_.ranks.size(); ++i) {
      if (diagnosis_.ranks[i].steps.empty()) continue;
      const std::int64_t begin = diagnosis_.ranks[i].steps.front().begin;
      if (late.has(i)) {
        own = begin;
      } else {
        begins.push_back(begin);
      }
    }
    return own - median_of(begins);
  }

  /// The cause lies before the recording, not in its own time.
  bool starts_late(const Party& late) const {
    return 2.0 * static_cast<double>(start_delay(late)) >= static_cast<double>(diagnosis_.late.cost) * steps();
  }

  /// Per step, the mean cost over parties of the same size outside `party`.
  std::vector<double> mean_cost_of_others(const Party& party) const {
    std::vector<double> mean(diagnosis_.step_count, 0.0);
    const std::size_t others = trace_.ranks.size() - party.ranks.size();
    if (others == 0) return mean;
    const double scale = static_cast<double>(party.ranks.size()) / static_cast<double>(others);
    for (std::uint32_t rank = 0; rank < trace_.ranks.size(); ++rank) {
      if (party.has(rank)) continue;
      for (std::size_t s = 0; s < mean.size(); ++s) mean[s] += costs_[rank][s] * scale;
    }
    return mean;
  }

  static constexpr std::size_t kEnoughSteps = 5;  // below, one step cannot be told from a habit

  static Pattern pattern_of(const std::vector<double>& by_step) {
    if (by_step.size() < kEnoughSteps) return Pattern::kUnknown;
    double sum = 0, largest = 0;
    for (const double cost : by_step) sum += cost, largest = std::max(largest, cost);
    if (sum <= 0) return Pattern::kUnknown;
    if (largest >= 0.6 * sum) return Pattern::kOutlier;
    const double mean = sum / static_cast<double>(by_step.size());
    const auto active = std::count_if(by_step.begin(), by_step.end(), [&](double cost) { return cost >= 0.3 * mean; });
    return 10 * active >= 7 * static_cast<std::ptrdiff_t>(by_step.size()) ? Pattern::kPersistent
                                                                          : Pattern::kIntermittent;
  }

  /// Whether the step with the largest cost stands far out of all that any rank costs in the other steps.
  bool is_lone_step(const std::vector<double>& by_step) const {
    const double largest = *std::max_element(by_step.begin(), by_step.end());
    std::vector<double> totals(diagnosis_.step_count, 0.0);
    for (const auto& of_rank : costs_) {
      for (std::size_t s = 0; s < totals.size(); ++s) totals[s] += of_rank[s];
    }
    return largest > 5.0 * base::median(totals) && largest >= 0.5 * base::mean(totals) * steps();
  }

  /// In each step the rank that costs the others most, when it alone costs most of that step's waiting; else nothing.
  std::vector<std::optional<std::uint32_t>> main_of_steps() const {
    std::vector<std::optional<std::uint32_t>> mains(diagnosis_.step_count);
    for (std::size_t s = 0; s < mains.size(); ++s) {
      double total = 0;
      std::uint32_t most = 0;
      for (std::uint32_t rank = 0; rank < costs_.size(); ++rank) {
        total += costs_[rank][s];
        if (costs_[rank][s] > costs_[most][s]) most = rank;
      }
      if (total >= 2 * worth_naming() && costs_[most][s] >= 0.75 * total) mains[s] = most;
    }
    return mains;
  }

  /// Ranks that take turns, each the main one of some steps, in most steps.
  std::vector<std::uint32_t> rotation() const {
    if (diagnosis_.step_count < kEnoughSteps) return {};
    std::map<std::uint32_t, std::size_t> turns;
    std::size_t steps_with_main = 0;
    for (const auto& main : main_of_steps()) {
      if (!main) continue;
      ++steps_with_main;
      ++turns[*main];
    }
    std::size_t most = 0;
    std::vector<std::uint32_t> ranks;
    for (const auto& [rank, count] : turns) {
      most = std::max(most, count);
      ranks.push_back(rank);
    }
    const bool mostly = 10 * steps_with_main >= 7 * diagnosis_.step_count;
    return mostly && ranks.size() >= 3 && 2 * most <= diagnosis_.step_count ? ranks : std::vector<std::uint32_t>{};
  }

  /// A single rank of a rotation is not to blame alone.
  bool takes_turns(const Party& party) const {
    if (party.ranks.size() > 1) return false;
    return std::find(rotation_.begin(), rotation_.end(), party.ranks[0]) != rotation_.end();
  }

  void find_rotation() {
    for (const std::uint32_t rank : rotation_) diagnosis_.late.rotating.push_back(*trace_.ranks[rank].rank);
    if (diagnosis_.late.rotating.empty()) return;
    diagnosis_.late.pattern = Pattern::kRotating;
    double cost = 0;
    for (const auto& of_rank : costs_) cost = std::accumulate(of_rank.begin(), of_rank.end(), cost);
    diagnosis_.late.cost = static_cast<std::int64_t>(cost / steps());
  }

  /// Compares what the party did, collectives left out, with the same of the others, over all steps: ranks that are
  /// ahead work while they wait, so single windows do not compare.
  void find_causes(const Party& late) {
    ItemTimes excess;
    std::map<Fault, std::int64_t> by_fault;
    std::map<ItemKey, std::vector<std::int64_t>> on_others;
    ItemTimes own;
    for (const std::uint32_t rank : late.ranks) {
      for (const auto& [key, time] : items_of(rank)) {
        own[key] += time / static_cast<std::int64_t>(late.ranks.size());
      }
    }
    constexpr std::size_t kCompared = 16;  // enough for a median
    const std::size_t stride = std::max<std::size_t>(trace_.ranks.size() / kCompared, 1);
    for (std::size_t i = 0; i < trace_.ranks.size(); i += stride) {
      if (late.has(static_cast<std::uint32_t>(i))) continue;
      const ItemTimes theirs = items_of(static_cast<std::uint32_t>(i));
      for (const auto& [key, time] : own) {
        const auto found = theirs.find(key);
        on_others[key].push_back(found == theirs.end() ? 0 : found->second);
      }
    }
    if (!on_others.empty()) {
      for (const auto& [key, time] : own) excess[key] = time - median_of(on_others[key]);
    }
    const std::int64_t late_start = starts_late(late) ? start_delay(late) : 0;
    const auto lateness =
        std::max<std::int64_t>(static_cast<std::int64_t>(static_cast<double>(diagnosis_.late.cost) * steps()), 1);
    const Fault compute_fault = fault_of_compute(late);
    const auto add = [&](std::string what, std::string kind, std::int64_t time, Fault fault) {
      by_fault[fault] += time;
      if (time * 20 < lateness) return;  // below 5 % it explains nothing
      const double share = static_cast<double>(time) / static_cast<double>(lateness);
      diagnosis_.causes.push_back({std::move(what), std::move(kind),
                                   static_cast<std::int64_t>(static_cast<double>(time) / steps()), std::min(share, 1.0),
                                   fault});
    };
    add("its step began later", "late_start", late_start, Fault::kLateStart);
    for (const auto& [key, time] : excess) {
      add(key.second, std::string(activity_name(key.first)), time, fault_of_item(key, compute_fault));
    }
    std::stable_sort(diagnosis_.causes.begin(), diagnosis_.causes.end(),
                     [](const Cause& a, const Cause& b) { return a.per_step > b.per_step; });
    diagnosis_.late.fault = late.ranks.size() > 1 ? Fault::kWholeHost : main_fault(by_fault);
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
  static Fault main_fault(std::map<Fault, std::int64_t> by_fault) {
    by_fault.erase(Fault::kNone);
    if (by_fault[Fault::kAllocator] * 4 > by_fault[Fault::kHostOp]) {
      by_fault[Fault::kAllocator] += std::max<std::int64_t>(by_fault[Fault::kHostOp], 0);
      by_fault[Fault::kHostOp] = 0;
    }
    Fault main = Fault::kNone;
    std::int64_t largest = 0;
    for (const auto& [fault, time] : by_fault) {
      if (time > largest) largest = time, main = fault;
    }
    return main;
  }

  /// Why computation takes longer: more work, all kernels slower, or only those that memory limits. Kernels are
  /// compared by name: their number, and their mean time where the number agrees.
  Fault fault_of_compute(const Party& late) const {
    if (!diagnosis_.has_device) return Fault::kHostOp;  // a CPU job computes in its operators
    struct Work {
      std::vector<double> counts, means;  // of ranks outside the party
    };
    std::map<std::string_view, Work> others;
    constexpr std::size_t kCompared = 16;
    const std::size_t stride = std::max<std::size_t>(trace_.ranks.size() / kCompared, 1);
    for (std::uint32_t i = 0; i < trace_.ranks.size(); i += static_cast<std::uint32_t>(stride)) {
      if (late.has(i)) continue;
      for (const trace::NameTotal& total : trace_.ranks[i].kernels) add_work(others, trace_.ranks[i], total);
    }
    double more_work = 0, expected_compute = 0, slow_compute = 0, expected_memory = 0, slow_memory = 0;
    for (const std::uint32_t i : late.ranks) {
      const trace::RankSummary& rank = trace_.ranks[i];
      for (const trace::NameTotal& total : rank.kernels) {
        if (!is_computation(total)) continue;
        const std::string_view name = rank.names.text(total.name);
        const auto found = others.find(name);
        const auto count = static_cast<double>(total.count);
        if (found == others.end()) {
          more_work += static_cast<double>(total.total);
          continue;
        }
        const double mean = base::median(found->second.means);
        more_work += (count - base::median(found->second.counts)) * mean;
        (is_compute_bound(name) ? expected_compute : expected_memory) += count * mean;
        (is_compute_bound(name) ? slow_compute : slow_memory) += static_cast<double>(total.total);
      }
    }
    const double slower = slow_compute - expected_compute + slow_memory - expected_memory;
    if (more_work > slower || has_other_shapes(late)) return Fault::kImbalance;
    const double compute_ratio = expected_compute > 0 ? slow_compute / expected_compute - 1 : 0;
    const double memory_ratio = expected_memory > 0 ? slow_memory / expected_memory - 1 : 0;
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

  /// Whether a good part of the party's computation works on shapes that no other rank has.
  bool has_other_shapes(const Party& late) const {
    std::map<OpShape, std::int64_t> known;
    constexpr std::size_t kCompared = 8;
    std::size_t compared = 0;
    for (std::uint32_t i = 0; i < trace_.ranks.size() && compared < kCompared; ++i) {
      if (late.has(i)) continue;
      known.merge(compute_by_shape(i));
      ++compared;
    }
    std::int64_t all = 0, other = 0;
    for (const auto& [key, time] : compute_by_shape(late.ranks[0])) {
      all += time;
      if (!known.contains(key)) other += time;
    }
    return other * 5 > all;
  }

  ItemTimes items_of(std::uint32_t index) const {
    const trace::RankSummary& rank = trace_.ranks[index];
    ItemTimes times;
    for (const SlotItem& item : rank.slot_items) {
      if (item.activity == Activity::kCommunication) continue;  // waiting is somebody else's lateness
      times[{item.activity, describe(item, rank.names)}] += item.time;
    }
    return times;
  }

  const Trace& trace_;
  Diagnosis& diagnosis_;
  std::vector<std::vector<double>> costs_;               // of each rank and step
  std::vector<std::uint32_t> rotation_;                  // ranks that take turns
  std::vector<double> own_excess_;                       // of each rank, ns per step
  std::vector<std::int64_t> savings_;                    // of each collective
  std::map<std::uint32_t, std::int64_t> counted_until_;  // by the rank that came last
};

}  // namespace

std::string_view pattern_name(Pattern pattern) {
  static constexpr std::array<std::string_view, 5> kNames{"unknown", "persistent", "intermittent", "rotating",
                                                          "outlier"};
  return kNames[static_cast<std::size_t>(pattern)];
}

void find_late_rank(const trace::Trace& trace, Diagnosis& diagnosis) {
  LateRank(trace, diagnosis).run();
}

}  // namespace paceline::diagnose
