#include "paceline/trace/understand/collectives.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <utility>

namespace paceline::trace {
namespace {

/// One rank's events of one group, in order.
struct Sequence {
  std::uint32_t rank;
  std::vector<std::uint32_t> events;
};
using Group = std::vector<Sequence>;  // by rank

bool same_kind(const CommEvent& a, const CommEvent& b) {
  return a.kind == b.kind || a.kind == CollectiveKind::kUnknown || b.kind == CollectiveKind::kUnknown;
}

/// Whether two ranks' events can be the same collective. All-to-all may have other sizes on every rank.
bool compatible(const CommEvent& a, const CommEvent& b) {
  if (!same_kind(a, b)) return false;
  const bool sizes_agree =
      a.kind == CollectiveKind::kAllReduce || a.kind == CollectiveKind::kBroadcast || a.kind == CollectiveKind::kReduce;
  return !sizes_agree || a.elements < 0 || b.elements < 0 || a.elements == b.elements;
}

/// Sends and receives differ between ranks by their nature: that one has no partner is no news.
bool point_to_point(const CommEvent& event) {
  return event.kind == CollectiveKind::kSendRecv;
}

class Matcher {
 public:
  explicit Matcher(Trace& trace) : trace_(trace) {}

  void run() {
    for (const auto& [name, group] : groups()) {
      group_ = static_cast<std::uint32_t>(trace_.groups.size());
      trace_.groups.push_back(name);
      const auto [transfers, others] = split(group);
      match_group(others);
      match_group(transfers);
    }
  }

 private:
  std::map<std::string, Group> groups() const {
    std::map<std::string, Group> groups;
    for (std::uint32_t rank = 0; rank < trace_.ranks.size(); ++rank) {
      const RankSummary& summary = trace_.ranks[rank];
      std::map<NameId, Group*> known;  // names may be long lists of ranks
      for (std::uint32_t i = 0; i < summary.collectives.size(); ++i) {
        const NameId id = summary.collectives[i].group;
        Group*& group = known[id];
        if (group == nullptr) {
          group = &groups[id == base::kNone<NameId> ? "all ranks" : std::string(summary.names.text(id))];
        }
        if (group->empty() || group->back().rank != rank) group->push_back({rank, {}});
        group->back().events.push_back(i);
      }
    }
    join_renamed(groups);
    return groups;
  }

  /// Where every rank has its own names for groups, the lists of ranks alone tell them apart.
  static void join_renamed(std::map<std::string, Group>& groups) {
    const auto ranks_of = [](const std::string& name) { return name.substr(0, name.find(kGroupAs)); };
    for (auto begin = groups.begin(); begin != groups.end();) {
      const std::string ranks = ranks_of(begin->first);
      auto end = begin;
      bool shared = false;
      std::set<std::uint32_t> members;
      for (; end != groups.end() && ranks_of(end->first) == ranks; ++end) {
        shared = shared || end->second.size() > 1;
        members.insert(end->second.front().rank);
      }
      if (!shared && members.size() > 1) {
        std::map<std::uint32_t, Sequence> joined;
        for (auto at = begin; at != end; ++at) {
          Sequence& sequence = at->second.front();
          auto& all = joined.try_emplace(sequence.rank, Sequence{sequence.rank, {}}).first->second.events;
          all.insert(all.end(), sequence.events.begin(), sequence.events.end());
        }
        groups.erase(begin, end);
        Group& group = groups[ranks];
        for (auto& [rank, sequence] : joined) {
          std::sort(sequence.events.begin(), sequence.events.end());
          group.push_back(std::move(sequence));
        }
      }
      begin = end;
    }
  }

  const CommEvent& event(const Sequence& sequence, std::size_t i) const {
    return trace_.ranks[sequence.rank].collectives[sequence.events[i]];
  }

  /// Transfers between two ranks have numbers and an order of their own.
  std::pair<Group, Group> split(const Group& group) const {
    std::pair<Group, Group> parts;
    for (const Sequence& sequence : group) {
      for (std::size_t i = 0; i < sequence.events.size(); ++i) {
        Group& part = point_to_point(event(sequence, i)) ? parts.first : parts.second;
        if (part.empty() || part.back().rank != sequence.rank) part.push_back({sequence.rank, {}});
        part.back().events.push_back(sequence.events[i]);
      }
    }
    return parts;
  }

  /// For every event of every sequence the collective it belongs to, -1 = none.
  using Places = std::vector<std::vector<std::int32_t>>;

  void match_group(const Group& group) {
    if (group.empty()) return;
    // A rank numbers all its transfers in one row, whomever they are with: the two of a pair count differently.
    bool numbered = group.size() > 2 || !point_to_point(event(group.front(), 0));
    for (const Sequence& sequence : group) {
      for (std::size_t i = 0; i < sequence.events.size() && numbered; ++i) numbered = event(sequence, i).sequence >= 0;
    }
    std::size_t count = 0;
    std::optional<Places> found = numbered ? by_number(group, count) : by_step(group, count);
    if (!found) found = by_order(group, count);
    const Places& places = *found;
    std::vector<std::vector<Member>> members(count);
    std::vector<std::pair<std::size_t, std::size_t>> first(count, {group.size(), 0});  // sequence and event
    for (std::size_t s = 0; s < group.size(); ++s) {
      for (std::size_t i = 0; i < places[s].size(); ++i) {
        if (places[s][i] < 0) {
          report_alone(group[s], i);
          continue;
        }
        const auto place = static_cast<std::size_t>(places[s][i]);
        if (first[place].first == group.size()) first[place] = {s, i};
        const CommEvent& mine = event(group[s], i);
        members[place].push_back({group[s].rank, group[s].events[i], mine.begin, mine.end});
        const auto [first_s, first_i] = first[place];
        if (!same_kind(mine, event(group[first_s], first_i))) {
          mismatch(group[s], i,
                   fmt::format("{} where rank {} has {}", describe(group[s], i),
                               *trace_.ranks[group[first_s].rank].rank, describe(group[first_s], first_i)));
        }
      }
    }
    for (std::size_t place = 0; place < count; ++place) {
      const auto [s, i] = first[place];
      report_absent(group, members[place], s, i);
      Collective collective;
      collective.kind = event(group[s], i).kind;
      collective.group = group_;
      collective.index = static_cast<std::uint32_t>(place);
      collective.members_begin = static_cast<std::uint32_t>(trace_.members.size());
      trace_.members.insert(trace_.members.end(), members[place].begin(), members[place].end());
      collective.members_end = static_cast<std::uint32_t>(trace_.members.size());
      trace_.collectives.push_back(collective);
    }
  }

  /// A collective that the smaller part of the ranks has is one too many there; else it is missing on the others.
  void report_absent(const Group& group, const std::vector<Member>& members, std::size_t s, std::size_t i) {
    if (members.size() == group.size() || point_to_point(event(group[s], i))) return;
    const bool extra = members.size() * 2 < group.size();
    std::size_t m = 0;
    for (const Sequence& sequence : group) {
      const bool here = m < members.size() && members[m].rank == sequence.rank;
      if (here && extra) {
        const auto at = std::lower_bound(sequence.events.begin(), sequence.events.end(), members[m].event);
        report_alone(sequence, static_cast<std::size_t>(at - sequence.events.begin()));
      } else if (!here && !extra) {
        trace_.mismatches.push_back({sequence.rank, group_, static_cast<std::uint32_t>(i),
                                     fmt::format("{} of the other ranks is missing here", describe(group[s], i))});
      }
      if (here) ++m;
    }
  }

  void report_alone(const Sequence& sequence, std::size_t i) {
    if (point_to_point(event(sequence, i))) return;
    mismatch(sequence, i, fmt::format("{} has no partner on the other ranks", describe(sequence, i)));
  }

  std::string describe(const Sequence& sequence, std::size_t i) const {
    const CommEvent& shown = event(sequence, i);
    return fmt::format("{} number {}", trace_.ranks[sequence.rank].names.text(shown.name), i);
  }

  void mismatch(const Sequence& sequence, std::size_t i, std::string what) {
    trace_.mismatches.push_back({sequence.rank, group_, static_cast<std::uint32_t>(i), std::move(what)});
  }

  /// What tells collectives of a group apart.
  using Key = std::pair<std::int64_t, std::uint32_t>;
  using Keys = std::vector<std::vector<Key>>;  // of every event of every sequence

  /// Each event's number and which of those with that number it is on its rank.
  template <class Number>
  Keys keys_of(const Group& group, Number number_of) const {
    Keys keys(group.size());
    for (std::size_t s = 0; s < group.size(); ++s) {
      std::map<std::int64_t, std::uint32_t> seen;
      for (std::size_t i = 0; i < group[s].events.size(); ++i) {
        const std::int64_t number = number_of(group[s], i);
        keys[s].emplace_back(number, seen[number]++);
      }
    }
    return keys;
  }

  static Places places_of(const Keys& keys, std::size_t& count) {
    std::map<Key, std::int32_t> place_of;
    for (const auto& of_sequence : keys) {
      for (const Key& key : of_sequence) place_of.emplace(key, 0);
    }
    count = 0;
    for (auto& [key, place] : place_of) place = static_cast<std::int32_t>(count++);
    Places places(keys.size());
    for (std::size_t s = 0; s < keys.size(); ++s) {
      for (const Key& key : keys[s]) places[s].push_back(place_of.at(key));
    }
    return places;
  }

  /// NCCL's sequence numbers; of kernels that share one (coalesced calls) the n-th goes with the n-th.
  Places by_number(const Group& group, std::size_t& count) const {
    const auto number_of = [&](const Sequence& sequence, std::size_t i) { return event(sequence, i).sequence; };
    return places_of(keys_of(group, number_of), count);
  }

  /// Where ranks recorded different steps, by the steps' numbers: the n-th of a step with the n-th. Nothing where steps
  /// have no numbers or are the same, or where ranks differ within a step.
  std::optional<Places> by_step(const Group& group, std::size_t& count) const {
    const auto steps_of = [&](const Sequence& sequence) -> const std::vector<StepSummary>& {
      return trace_.ranks[sequence.rank].steps;
    };
    const auto& first = steps_of(group.front());
    bool differ = false;
    for (const Sequence& sequence : group) {
      const auto& steps = steps_of(sequence);
      if (steps.empty() || steps.front().number < 0) return std::nullopt;
      differ = differ || steps.front().number != first.front().number || steps.back().number != first.back().number;
    }
    if (!differ) return std::nullopt;
    // By the moment of the launch: a host may be steps ahead of its device, but its program is that of the others.
    const auto number_of = [&](const Sequence& sequence, std::size_t i) {
      const auto& steps = steps_of(sequence);
      const auto after = std::partition_point(
          steps.begin(), steps.end(), [&](const StepSummary& step) { return step.begin <= event(sequence, i).issued; });
      return after == steps.begin() ? steps.front().number - 1 : std::prev(after)->number;
    };
    const Keys keys = keys_of(group, number_of);
    std::map<Key, const CommEvent*> known;
    std::map<std::int64_t, std::set<std::size_t>> counts;  // of whole steps
    for (std::size_t s = 0; s < group.size(); ++s) {
      std::map<std::int64_t, std::size_t> own;
      for (std::size_t i = 0; i < keys[s].size(); ++i) {
        const CommEvent& mine = event(group[s], i);
        if (!compatible(mine, *known.try_emplace(keys[s][i], &mine).first->second)) return std::nullopt;
        ++own[keys[s][i].first];
      }
      for (const auto& [number, events] : own) {
        if (number >= steps_of(group[s]).front().number) counts[number].insert(events);
      }
    }
    const bool alike =
        std::all_of(counts.begin(), counts.end(), [](const auto& each) { return each.second.size() == 1; });
    return alike ? std::optional<Places>(places_of(keys, count)) : std::nullopt;
  }

  /// The n-th with the n-th of the rank that has the most, unless kinds or sizes speak against it.
  Places by_order(const Group& group, std::size_t& count) const {
    std::size_t reference = 0;  // ties go to the lower rank
    for (std::size_t s = 1; s < group.size(); ++s) {
      if (group[s].events.size() > group[reference].events.size()) reference = s;
    }
    count = group[reference].events.size();
    Places places;
    for (const Sequence& sequence : group) places.push_back(by_order(sequence, group[reference]));
    return places;
  }

  std::vector<std::int32_t> by_order(const Sequence& mine, const Sequence& reference) const {
    std::vector<std::int32_t> partner(mine.events.size(), -1);
    bool same = mine.events.size() == reference.events.size();
    for (std::size_t i = 0; i < mine.events.size() && same; ++i) {
      same = compatible(event(mine, i), event(reference, i));
      partner[i] = static_cast<std::int32_t>(i);
    }
    return same ? partner : by_moments(mine, reference);
  }

  /// Aligns two sequences of which some events are missing. Collectives end together, so the difference of the two
  /// clocks is where most differences of ends fall; then the cheapest order-keeping assignment under that difference.
  std::vector<std::int32_t> by_moments(const Sequence& mine, const Sequence& reference) const {
    const auto rows = static_cast<std::int64_t>(mine.events.size());
    const auto columns = static_cast<std::int64_t>(reference.events.size());
    constexpr std::int64_t kSlack = 64;
    const std::int64_t band = columns - rows + kSlack;
    const std::int64_t offset = likely_offset(mine, reference, band);
    constexpr std::int64_t kMostCells = 16'000'000;  // 16 MB
    if ((rows + 1) * (2 * band + 1) > kMostCells) return by_time(mine, reference, offset);

    // Needleman-Wunsch in a band around the diagonal: match = distance of ends (compatible kinds only), gap = kGap.
    constexpr double kForbidden = 1e300;
    const std::int64_t width = 2 * band + 1;
    std::vector<double> cost(static_cast<std::size_t>(width), kForbidden), above(cost);
    std::vector<char> step(static_cast<std::size_t>((rows + 1) * width), ' ');
    for (std::int64_t i = 0; i <= rows; ++i) {
      cost.swap(above);
      std::fill(cost.begin(), cost.end(), kForbidden);
      for (std::int64_t j = std::max<std::int64_t>(0, i - band); j <= std::min(columns, i + band); ++j) {
        const auto here = static_cast<std::size_t>(j - i + band);
        double best = i == 0 && j == 0 ? 0.0 : kForbidden;
        char how = ' ';
        const auto offer = [&](double sum, char by) {
          if (sum < best) best = sum, how = by;
        };
        if (i > 0 && j > 0) {
          const CommEvent& a = event(mine, static_cast<std::size_t>(i - 1));
          const CommEvent& b = event(reference, static_cast<std::size_t>(j - 1));
          if (compatible(a, b)) {
            const auto distance = static_cast<double>(std::abs(a.end - b.end - offset));
            offer(above[here] + std::min(distance, 1.9 * kGap), 'm');
          }
        }
        if (i > 0 && j - i < band) offer(above[here + 1] + kGap, 'a');
        if (j > 0 && j - i > -band) offer(cost[here - 1] + kGap, 'b');
        cost[here] = best;
        step[static_cast<std::size_t>(i * width) + here] = how;
      }
    }
    std::vector<std::int32_t> partner(mine.events.size(), -1);
    for (std::int64_t i = rows, j = columns; i > 0 || j > 0;) {
      const char how = step[static_cast<std::size_t>(i * width + j - i + band)];
      if (how == ' ') break;
      if (how == 'm') partner[static_cast<std::size_t>(i - 1)] = static_cast<std::int32_t>(j - 1);
      if (how != 'b') --i;
      if (how != 'a') --j;
    }
    return partner;
  }

  /// Goes through two long sequences side by side and pairs what ends nearest to one another under `offset`.
  std::vector<std::int32_t> by_time(const Sequence& mine, const Sequence& reference, std::int64_t offset) const {
    const auto distance = [&](std::size_t i, std::size_t j) {
      if (i >= mine.events.size() || j >= reference.events.size()) return std::numeric_limits<std::int64_t>::max();
      return std::abs(event(mine, i).end - event(reference, j).end - offset);
    };
    std::vector<std::int32_t> partner(mine.events.size(), -1);
    for (std::size_t i = 0, j = 0; i < mine.events.size() && j < reference.events.size();) {
      const std::int64_t here = distance(i, j);
      const bool together = static_cast<double>(here) < kGap && compatible(event(mine, i), event(reference, j));
      if (together && here <= distance(i + 1, j) && here <= distance(i, j + 1)) {
        partner[i++] = static_cast<std::int32_t>(j++);
      } else if (event(mine, i).end - offset > event(reference, j).end) {
        ++j;
      } else {
        ++i;
      }
    }
    return partner;
  }

  /// Where most differences between ends of `mine` and of what may be the same in `reference` fall.
  std::int64_t likely_offset(const Sequence& mine, const Sequence& reference, std::int64_t band) const {
    constexpr std::int64_t kMostPairs = 4'000'000;
    const auto rows = static_cast<std::int64_t>(mine.events.size());
    const auto columns = static_cast<std::int64_t>(reference.events.size());
    const std::int64_t stride = std::max<std::int64_t>(1, rows * std::min(2 * band + 1, columns) / kMostPairs);
    std::vector<std::int64_t> differences;
    for (std::int64_t i = 0; i < rows; i += stride) {
      const CommEvent& own = event(mine, static_cast<std::size_t>(i));
      for (std::int64_t j = std::max<std::int64_t>(0, i - band); j <= std::min(columns - 1, i + band); ++j) {
        const CommEvent& other = event(reference, static_cast<std::size_t>(j));
        if (compatible(own, other)) differences.push_back(own.end - other.end);
      }
    }
    if (differences.empty()) return 0;
    std::sort(differences.begin(), differences.end());
    // Steps are alike: shifted by one, ends differ by little, too. What ends together does so within microseconds on a
    // device; only where that finds nothing (gloo, drift) less will do.
    std::size_t best = 0;
    for (const std::int64_t window : {20'000, 200'000, 2'000'000}) {
      std::size_t most = 0;
      for (std::size_t begin = 0, end = 0; begin < differences.size(); ++begin) {
        while (end < differences.size() && differences[end] - differences[begin] <= window) ++end;
        if (end - begin <= most) continue;
        most = end - begin;
        best = begin + most / 2;
      }
      if (static_cast<std::int64_t>(most) * stride * 2 > rows) break;
    }
    return differences[best];
  }

  static constexpr double kGap = 2e6;  // ns; what leaving one event without a partner costs

  Trace& trace_;
  std::uint32_t group_ = 0;
};

}  // namespace

void match_collectives(Trace& trace) {
  Matcher(trace).run();
}

}  // namespace paceline::trace
