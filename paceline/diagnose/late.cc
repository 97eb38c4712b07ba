#include "paceline/diagnose/late.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>

#include "paceline/base/statistics.h"
#include "paceline/diagnose/causes.h"
#include "paceline/diagnose/chance.h"
#include "paceline/diagnose/own_time.h"

namespace paceline::diagnose {
namespace {

using trace::Collective;
using trace::CommEvent;
using trace::Member;
using trace::Trace;

std::int64_t median_of(std::vector<std::int64_t> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*std::max_element(values.begin(), middle) + *middle) / 2;
}

class LateRank {
 public:
  LateRank(const Trace& trace, Diagnosis& diagnosis) : trace_(trace), diagnosis_(diagnosis), own_(trace, diagnosis) {}

  void run() {
    for (const Collective& collective : trace_.collectives) add_row(collective);
    costs_ = costs_by_step();
    rotation_ = rotation();
    std::optional<Party> late = by_own_time();
    if (!late) late = by_arrivals();
    if (!late && own_.has_roles()) late = slow_stage();
    if (late) {
      name(*late);
      find_causes(trace_, own_, *late, starts_late(*late) ? start_delay(*late) : 0, diagnosis_);
    } else {
      find_rotation();
    }
  }

 private:
  static bool counts(const Collective& collective) {
    return collective.size() >= 2 && trace::ends_together(collective.kind);
  }

  /// When the other members of a collective came, those of the last one's role where there are such: that one stage of
  /// a pipeline comes later than another is nobody's fault.
  std::vector<std::int64_t> begins_of_others(const Collective& collective) const {
    std::vector<std::int64_t> peers, others;
    for (std::uint32_t m = collective.members_begin; m < collective.members_end; ++m) {
      if (m == collective.last) continue;
      others.push_back(trace_.members[m].begin);
      if (own_.same_role(trace_.members[m].rank, trace_.members[collective.last].rank)) peers.push_back(others.back());
    }
    return peers.empty() ? others : peers;
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
      const auto recorded = static_cast<std::size_t>(std::max<std::ptrdiff_t>(after - steps.begin() - 1, 0));
      const std::size_t step = recorded - diagnosis_.ranks[last.rank].first_common;  // wraps around below the first
      if (step < diagnosis_.step_count) costs[last.rank][step] += static_cast<double>(savings_[c]);
    }
    return costs;
  }

  /// Who may be late: every rank, and all ranks of every host.
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

  /// The rank whose own time is longest against its peers, when chance does not explain that and others wait for it;
  /// its host, when all ranks of that take as long.
  std::optional<Party> by_own_time() {
    if (diagnosis_.step_count < kFewestSteps) return std::nullopt;
    const std::vector<double>& excess = own_.excesses();
    const auto most = static_cast<std::uint32_t>(std::max_element(excess.begin(), excess.end()) - excess.begin());
    if (excess[most] < worth_naming() || is_chance(most)) return std::nullopt;
    Party party = whole_host(excess).value_or(Party{{most}});
    if (takes_turns(party)) return std::nullopt;
    // In a pipeline the others wait for whom the lateness was handed on to.
    double blame = 0, largest = 0, longer = 0;
    for (std::uint32_t rank = 0; rank < trace_.ranks.size(); ++rank) {
      const auto own = static_cast<double>(diagnosis_.ranks[rank].blame) / steps();
      if (party.has(rank)) blame += own, longer += excess[rank] / static_cast<double>(party.ranks.size());
      largest = std::max(largest, own);
    }
    // The ranks of a host hold up groups at the same time; ranks wait once.
    double cost = own_.has_roles() ? std::max(blame, largest) : blame;
    if (own_.has_roles() || party.ranks.size() > 1) cost = std::min(cost, longer);
    // The slack of a pipeline may hide a slow rank for now.
    const bool hidden = own_.has_roles() && longer >= 2 * worth_naming();
    if (cost < worth_naming() && !hidden) return std::nullopt;
    std::vector<double> by_step(diagnosis_.step_count, 0.0);
    for (const std::uint32_t rank : party.ranks) {
      for (std::size_t s = 0; s < by_step.size(); ++s) by_step[s] += own_.by_step(rank)[s];
    }
    diagnosis_.late.pattern = pattern_of(by_step);
    diagnosis_.late.cost = static_cast<std::int64_t>(cost);
    diagnosis_.late.longer = static_cast<std::int64_t>(longer);
    return party;
  }

  /// The party that comes last too often or costs too much, or who is behind it: for recordings of few steps, and for
  /// what lies before the first.
  std::optional<Party> by_arrivals() {
    std::optional<Party> late = choose();
    if (late) late = root_of(*late);
    if (!late) diagnosis_.late = Late{};
    return late;
  }

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
      if (!often && !lone_step && excess_tail(beyond_others(party, evidence.by_step)) >= bound) continue;
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

  /// Who is behind the lateness: the party itself when what it did took longer; one of its ranks, or a rank outside it,
  /// when that one's excess is much larger; nobody when nobody's own time explains it, as behind a slow link, or when
  /// chance explains that time.
  std::optional<Party> root_of(const Party& late) {
    if (diagnosis_.step_count > 0 && starts_late(late)) return late;
    const std::vector<double>& excess = own_.excesses();
    const auto most = static_cast<std::uint32_t>(std::max_element(excess.begin(), excess.end()) - excess.begin());
    const double largest = excess[most];
    // Blame of a party counts every group that it holds up, also at the same time; ranks wait once.
    double wait = 0;
    for (const RankDiagnosis& rank : diagnosis_.ranks) wait += static_cast<double>(rank.mean.exposed_wait);
    wait /= static_cast<double>(diagnosis_.ranks.size());
    const bool explains = largest >= 0.3 * std::min(static_cast<double>(diagnosis_.late.cost), wait);
    if (!explains || is_chance(most)) return std::nullopt;
    if (const std::optional<Party> host = whole_host(excess)) return host;
    std::size_t alike = 0;
    for (const std::uint32_t rank : late.ranks) alike += excess[rank] >= 0.5 * largest ? 1 : 0;
    if (10 * alike >= 7 * late.ranks.size()) return late;
    diagnosis_.late.cost = std::min(diagnosis_.late.cost, static_cast<std::int64_t>(largest));
    return Party{{most}};
  }

  /// Whether chance explains that the rank's own time is longer, from three steps on: held against how it, or the part
  /// of it in which the device waits for the host, varies from step to step (a habit; a restless machine blurs the
  /// sum), and against how the time of ranks elsewhere varies (also a single event). Collectives of a step do not count
  /// one by one: who is late for the first is late for the next.
  bool is_chance(std::uint32_t rank) const {
    if (diagnosis_.step_count < kFewestSteps) return false;
    const double bound = 0.01 / (2.0 * static_cast<double>(trace_.ranks.size()));  // two tests of every rank
    if (excess_tail(own_.by_step(rank)) < bound) return false;
    const std::vector<double>& of_host = own_.host_by_step(rank);
    if (2 * base::mean(of_host) >= own_.excess(rank) && excess_tail(of_host) < bound) return false;
    std::vector<double> elsewhere, everywhere;
    for (std::uint32_t i = 0; i < trace_.ranks.size(); ++i) {
      if (i == rank) continue;
      const bool other_host = trace_.ranks[i].host.empty() || trace_.ranks[i].host != trace_.ranks[rank].host;
      for (const double excess : own_.by_step(i)) {
        everywhere.push_back(excess);
        if (other_host) elsewhere.push_back(excess);
      }
    }
    const double noise = base::standard_deviation(elsewhere.empty() ? everywhere : elsewhere);
    constexpr double kClear = 6.0;  // standard errors; hosts' noise has heavier tails than the normal distribution
    return own_.excess(rank) * std::sqrt(steps()) < kClear * noise;
  }

  /// All ranks of the host of the rank with the largest of `excess`, when nearly all of them and no others have as
  /// much.
  std::optional<Party> whole_host(const std::vector<double>& excess) const {
    const auto most = static_cast<std::uint32_t>(std::max_element(excess.begin(), excess.end()) - excess.begin());
    Party host;
    std::size_t alike = 0, alike_elsewhere = 0, elsewhere = 0;
    for (std::uint32_t i = 0; i < trace_.ranks.size(); ++i) {
      const bool here = !trace_.ranks[i].host.empty() && trace_.ranks[i].host == trace_.ranks[most].host;
      if (here) host.ranks.push_back(i);
      elsewhere += here ? 0 : 1;
      (here ? alike : alike_elsewhere) += excess[i] >= 0.5 * excess[most] ? 1 : 0;
    }
    const bool whole = host.ranks.size() > 1 && elsewhere > 0 && 10 * alike >= 7 * host.ranks.size();
    return whole && alike_elsewhere == 0 ? std::optional<Party>(host) : std::nullopt;
  }

  /// Where all ranks of a role are as slow as one another, as when a pipeline has a stage to a host, none of them is
  /// later than its peers: then the host, or the rank without peers, whose kernels run slower than the same kernels
  /// elsewhere.
  std::optional<Party> slow_stage() {
    const std::vector<double> slower = own_.slower_than_other_roles();
    const auto most = static_cast<std::uint32_t>(std::max_element(slower.begin(), slower.end()) - slower.begin());
    constexpr double kSlow = 0.04;  // of its computation: kernels of one name vary less
    if (slower[most] < kSlow * static_cast<double>(diagnosis_.ranks[most].mean.compute)) return std::nullopt;
    std::optional<Party> party = whole_host(slower);
    if (!party && !own_.has_peers(most)) party = Party{{most}};
    if (!party) return party;
    diagnosis_.late.cost = static_cast<std::int64_t>(slower[most]);
    std::vector<double> by_step;
    const RankDiagnosis& row = diagnosis_.ranks[most];
    for (std::size_t step = 0; step < diagnosis_.step_count; ++step) {
      const std::int64_t beyond = row.steps[row.first_common + step].compute - row.mean.compute;
      by_step.push_back(std::max(slower[most] + static_cast<double>(beyond), 0.0));
    }
    diagnosis_.late.pattern = pattern_of(by_step);
    return party;
  }

  /// How much later than the others' median its first step began, ns.
  std::int64_t start_delay(const Party& late) const {
    std::vector<std::int64_t> begins;
    std::int64_t own = 0;
    for (std::uint32_t i = 0; i < trace_.ranks.size(); ++i) {
      if (diagnosis_.ranks[i].steps.empty()) continue;
      const std::int64_t begin = diagnosis_.ranks[i].steps[diagnosis_.ranks[i].first_common].begin;
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
    return 3.0 * static_cast<double>(start_delay(late)) >= 2.0 * static_cast<double>(diagnosis_.late.cost) * steps();
  }

  /// Per step, what the party costs more than the mean over parties of its size outside it.
  std::vector<double> beyond_others(const Party& party, std::vector<double> by_step) const {
    const std::size_t others = trace_.ranks.size() - party.ranks.size();
    if (others == 0) return by_step;
    const double scale = static_cast<double>(party.ranks.size()) / static_cast<double>(others);
    for (std::uint32_t rank = 0; rank < trace_.ranks.size(); ++rank) {
      if (party.has(rank)) continue;
      for (std::size_t s = 0; s < by_step.size(); ++s) by_step[s] -= costs_[rank][s] * scale;
    }
    return by_step;
  }

  static constexpr std::size_t kFewestSteps = 3;  // for a test against chance
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

  /// In each step the rank whose own time is longest, when it is far longer than that of any other; else nothing.
  std::vector<std::optional<std::uint32_t>> main_of_steps() const {
    std::vector<std::optional<std::uint32_t>> mains(diagnosis_.step_count);
    for (std::size_t s = 0; s < mains.size(); ++s) {
      double largest = 0, second = 0;
      std::uint32_t most = 0;
      for (std::uint32_t rank = 0; rank < trace_.ranks.size(); ++rank) {
        const double excess = own_.by_step(rank)[s];
        second = std::max(second, std::min(excess, largest));
        if (excess > largest) largest = excess, most = rank;
      }
      if (largest >= 2 * worth_naming() && largest >= 3 * second) mains[s] = most;
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

  /// Who takes turns with others is not to blame alone.
  bool takes_turns(const Party& party) const {
    const auto inside =
        std::count_if(rotation_.begin(), rotation_.end(), [&](std::uint32_t r) { return party.has(r); });
    return inside > 0 && inside < static_cast<std::ptrdiff_t>(rotation_.size());
  }

  void find_rotation() {
    for (const std::uint32_t rank : rotation_) diagnosis_.late.rotating.push_back(*trace_.ranks[rank].rank);
    if (diagnosis_.late.rotating.empty()) return;
    diagnosis_.late.pattern = Pattern::kRotating;
    double cost = 0;
    for (const auto& of_rank : costs_) cost = std::accumulate(of_rank.begin(), of_rank.end(), cost);
    diagnosis_.late.cost = static_cast<std::int64_t>(cost / steps());
  }

  const Trace& trace_;
  Diagnosis& diagnosis_;
  const OwnTime own_;
  std::vector<std::vector<double>> costs_;               // of each rank and step
  std::vector<std::uint32_t> rotation_;                  // ranks that take turns
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
