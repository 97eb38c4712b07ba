#include "paceline/trace/understand/collectives.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>

#include "paceline/base/error.h"

namespace paceline::trace {
namespace {

/// One rank's events of one group, in order.
struct Sequence {
  std::uint32_t rank;
  std::vector<std::uint32_t> events;
};

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

class Matcher {
 public:
  explicit Matcher(Trace& trace) : trace_(trace) {}

  void run() {
    std::map<std::string, std::vector<Sequence>> groups;
    for (std::uint32_t rank = 0; rank < trace_.ranks.size(); ++rank) {
      const RankSummary& summary = trace_.ranks[rank];
      for (std::uint32_t i = 0; i < summary.collectives.size(); ++i) {
        const NameId group = summary.collectives[i].group;
        auto& sequences = groups[group == base::kNone<NameId> ? "all ranks" : std::string(summary.names.text(group))];
        if (sequences.empty() || sequences.back().rank != rank) sequences.push_back({rank, {}});
        sequences.back().events.push_back(i);
      }
    }
    for (const auto& [name, sequences] : groups) {
      group_ = static_cast<std::uint32_t>(trace_.groups.size());
      trace_.groups.push_back(name);
      match_group(sequences);
    }
  }

 private:
  const CommEvent& event(const Sequence& sequence, std::size_t i) const {
    return trace_.ranks[sequence.rank].collectives[sequence.events[i]];
  }

  void match_group(const std::vector<Sequence>& sequences) {
    bool numbered = true;
    for (const Sequence& sequence : sequences) {
      for (std::size_t i = 0; i < sequence.events.size() && numbered; ++i) numbered = event(sequence, i).sequence >= 0;
    }
    // The rank with the most events is the reference; ties go to the lower rank.
    std::size_t reference = 0;
    for (std::size_t s = 1; s < sequences.size(); ++s) {
      if (sequences[s].events.size() > sequences[reference].events.size()) reference = s;
    }
    std::vector<std::vector<std::int32_t>> partner(sequences.size());  // index in the reference, -1 = none
    for (std::size_t s = 0; s < sequences.size(); ++s) {
      partner[s] =
          numbered ? by_number(sequences[s], sequences[reference]) : by_order(sequences[s], sequences[reference]);
    }
    const std::size_t count = sequences[reference].events.size();
    std::vector<std::vector<Member>> members(count);
    for (std::size_t s = 0; s < sequences.size(); ++s) {
      for (std::size_t i = 0; i < partner[s].size(); ++i) {
        const CommEvent& mine = event(sequences[s], i);
        if (partner[s][i] < 0) {
          mismatch(sequences[s], i, fmt::format("{} has no partner on the other ranks", describe(sequences[s], i)));
        } else {
          members[static_cast<std::size_t>(partner[s][i])].push_back(
              {sequences[s].rank, sequences[s].events[i], mine.begin, mine.end});
        }
      }
    }
    for (std::size_t i = 0; i < count; ++i) {
      report_missing(sequences, reference, members[i], i);
      Collective collective;
      collective.kind = event(sequences[reference], i).kind;
      collective.group = group_;
      collective.index = static_cast<std::uint32_t>(i);
      collective.members_begin = static_cast<std::uint32_t>(trace_.members.size());
      trace_.members.insert(trace_.members.end(), members[i].begin(), members[i].end());
      collective.members_end = static_cast<std::uint32_t>(trace_.members.size());
      trace_.collectives.push_back(collective);
    }
  }

  void report_missing(const std::vector<Sequence>& sequences, std::size_t reference, const std::vector<Member>& members,
                      std::size_t index) {
    if (members.size() == sequences.size()) return;
    std::size_t m = 0;
    for (const Sequence& sequence : sequences) {
      if (m < members.size() && members[m].rank == sequence.rank) {
        ++m;
      } else {
        trace_.mismatches.push_back(
            {sequence.rank, group_, static_cast<std::uint32_t>(index),
             fmt::format("{} of the other ranks is missing here", describe(sequences[reference], index))});
      }
    }
  }

  std::string describe(const Sequence& sequence, std::size_t i) const {
    const CommEvent& shown = event(sequence, i);
    return fmt::format("{} number {}", trace_.ranks[sequence.rank].names.text(shown.name), i);
  }

  void mismatch(const Sequence& sequence, std::size_t i, std::string what) {
    trace_.mismatches.push_back({sequence.rank, group_, static_cast<std::uint32_t>(i), std::move(what)});
  }

  /// NCCL's sequence numbers; of kernels that share one (coalesced calls) the n-th goes with the n-th.
  std::vector<std::int32_t> by_number(const Sequence& mine, const Sequence& reference) {
    std::map<std::pair<std::int64_t, int>, std::int32_t> index;
    std::map<std::int64_t, int> seen;
    for (std::size_t i = 0; i < reference.events.size(); ++i) {
      const std::int64_t number = event(reference, i).sequence;
      index[{number, seen[number]++}] = static_cast<std::int32_t>(i);
    }
    seen.clear();
    std::vector<std::int32_t> partner(mine.events.size(), -1);
    for (std::size_t i = 0; i < mine.events.size(); ++i) {
      const std::int64_t number = event(mine, i).sequence;
      const auto found = index.find({number, seen[number]++});
      if (found != index.end()) partner[i] = found->second;
    }
    return partner;
  }

  std::vector<std::int32_t> by_order(const Sequence& mine, const Sequence& reference) {
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
  std::vector<std::int32_t> by_moments(const Sequence& mine, const Sequence& reference) {
    const auto rows = static_cast<std::int64_t>(mine.events.size());
    const auto columns = static_cast<std::int64_t>(reference.events.size());
    const std::int64_t band = std::abs(columns - rows) + kSlack;
    const std::int64_t offset = likely_offset(mine, reference, band);

    // Needleman-Wunsch in a band around the diagonal: match = distance of ends (compatible kinds only), gap = kGap.
    constexpr double kGap = 2e6, kForbidden = 1e300;
    const std::int64_t width = 2 * band + 1;
    std::vector<double> cost(static_cast<std::size_t>((rows + 1) * width), kForbidden);
    std::vector<char> step(cost.size(), ' ');
    const auto cell = [&](std::int64_t i, std::int64_t j) {
      return static_cast<std::size_t>(i * width + (j - i + band));
    };
    const auto inside = [&](std::int64_t i, std::int64_t j) {
      return i >= 0 && j >= 0 && j <= columns && j - i >= -band && j - i <= band;
    };
    for (std::int64_t i = 0; i <= rows; ++i) {
      for (std::int64_t j = std::max<std::int64_t>(0, i - band); j <= std::min(columns, i + band); ++j) {
        double best = i == 0 && j == 0 ? 0.0 : kForbidden;
        char how = ' ';
        const auto offer = [&](std::int64_t from_i, std::int64_t from_j, double price, char by) {
          if (!inside(from_i, from_j)) return;
          const double sum = cost[cell(from_i, from_j)] + price;
          if (sum < best) best = sum, how = by;
        };
        if (i > 0 && j > 0) {
          const CommEvent& a = event(mine, static_cast<std::size_t>(i - 1));
          const CommEvent& b = event(reference, static_cast<std::size_t>(j - 1));
          if (compatible(a, b)) {
            const double distance = std::abs(static_cast<double>(a.end - b.end - offset));
            offer(i - 1, j - 1, std::min(distance, 1.9 * kGap), 'm');
          }
        }
        offer(i - 1, j, kGap, 'a');
        offer(i, j - 1, kGap, 'b');
        cost[cell(i, j)] = best;
        step[cell(i, j)] = how;
      }
    }
    std::vector<std::int32_t> partner(mine.events.size(), -1);
    for (std::int64_t i = rows, j = columns; i > 0 || j > 0;) {
      const char how = step[cell(i, j)];
      if (how == 'm') {
        partner[static_cast<std::size_t>(i - 1)] = static_cast<std::int32_t>(j - 1);
        --i, --j;
      } else if (how == 'a') {
        --i;
      } else if (how == 'b') {
        --j;
      } else {
        break;
      }
    }
    return partner;
  }

  std::int64_t likely_offset(const Sequence& mine, const Sequence& reference, std::int64_t band) const {
    constexpr std::int64_t kWindow = 200'000;  // ns; ends of one collective differ by less
    std::vector<std::int64_t> differences;
    for (std::size_t i = 0; i < mine.events.size(); ++i) {
      const auto row = static_cast<std::int64_t>(i);
      const std::int64_t first = std::max<std::int64_t>(0, row - band);
      const std::int64_t last =
          std::min<std::int64_t>(static_cast<std::int64_t>(reference.events.size()) - 1, row + band);
      for (std::int64_t j = first; j <= last; ++j) {
        const CommEvent& other = event(reference, static_cast<std::size_t>(j));
        if (compatible(event(mine, i), other)) differences.push_back(event(mine, i).end - other.end);
      }
    }
    if (differences.empty()) return 0;
    std::sort(differences.begin(), differences.end());
    std::size_t best_count = 0, best = 0;
    for (std::size_t begin = 0, end = 0; begin < differences.size(); ++begin) {
      while (end < differences.size() && differences[end] - differences[begin] <= kWindow) ++end;
      if (end - begin > best_count) {
        best_count = end - begin;
        best = begin + (end - begin) / 2;
      }
    }
    return differences[best];
  }

  static constexpr std::int64_t kSlack = 8;

  Trace& trace_;
  std::uint32_t group_ = 0;
};

}  // namespace

void match_collectives(Trace& trace) {
  Matcher(trace).run();
}

}  // namespace paceline::trace
