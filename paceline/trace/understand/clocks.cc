#include <algorithm>
#include <cmath>
#include <span>

#include "paceline/base/statistics.h"
#include "paceline/trace/understand/collectives.h"

namespace paceline::trace {
namespace {

/// Offsets below this are noise of the profiler's own clock calibration, not of the hosts' clocks: recordings of
/// several processes on one host show 2-7 us.
constexpr double kNoise = 20'000;
constexpr std::size_t kFitPoints = 200;  // Theil-Sen looks at pairs

struct Sample {
  std::int64_t time;        // this rank's clock
  std::int64_t difference;  // this rank's end minus the reference's
};

/// Offset and drift that bring `samples` to 0; the drift only where it explains what the offset alone does not.
Clock fit(std::vector<Sample> samples) {
  std::sort(samples.begin(), samples.end(), [](const Sample& a, const Sample& b) { return a.time < b.time; });
  const Sample origin = samples.front();  // differences beside its own are small: doubles hold them exactly
  std::vector<double> times, differences;
  for (const Sample& sample : samples) {
    times.push_back(static_cast<double>(sample.time - origin.time));
    differences.push_back(static_cast<double>(sample.difference - origin.difference));
  }
  const auto residual_of = [&](double offset, double slope) {
    std::vector<double> distances(samples.size());
    for (std::size_t i = 0; i < samples.size(); ++i) {
      distances[i] = std::abs(differences[i] - offset - slope * times[i]);
    }
    return base::median(distances);
  };
  Clock clock;
  clock.known = true;
  clock.since = origin.time;
  const double offset = base::median(differences);
  const double flat = residual_of(offset, 0.0);
  clock.offset = origin.difference + std::llround(offset);
  clock.residual = static_cast<std::int64_t>(flat);
  const std::size_t stride = (samples.size() + kFitPoints - 1) / kFitPoints;
  std::vector<double> x, y;
  for (std::size_t i = 0; i < samples.size(); i += stride) {
    x.push_back(times[i]);
    y.push_back(differences[i]);
  }
  constexpr std::size_t kEnough = 6;
  if (x.size() >= kEnough) {
    const base::Line line = base::theil_sen(x, y);
    const double sloped = residual_of(line.intercept, line.slope);
    if (std::abs(line.slope) * x.back() > kNoise && sloped < flat / 4) {
      clock.offset = origin.difference + std::llround(line.intercept);
      clock.drift = line.slope;
      clock.residual = static_cast<std::int64_t>(sloped);
    }
  }
  const double noise = std::max(kNoise, 6.0 * static_cast<double>(clock.residual));
  clock.applied = std::abs(static_cast<double>(clock.offset)) > noise || clock.drift != 0;
  if (!clock.applied) clock.offset = 0;
  return clock;
}

/// A transfer between two ranks; a small one the sender may leave before the receiver.
bool is_pair(const Collective& collective) {
  return collective.kind == CollectiveKind::kSendRecv && collective.size() == 2;
}

/// Places the clocks of ranks that share collectives with a placed one, or `pairs` transfers; false when there was
/// none.
bool spread(Trace& trace, std::vector<char>& placed, bool pairs) {
  std::vector<std::vector<Sample>> samples(trace.ranks.size());
  for (const Collective& collective : trace.collectives) {
    const bool anchors = pairs ? is_pair(collective) : ends_together(collective.kind) && collective.size() >= 2;
    if (!anchors) continue;
    const std::span members(trace.members.data() + collective.members_begin, collective.size());
    const auto anchor =
        std::find_if(members.begin(), members.end(), [&](const Member& member) { return placed[member.rank] != 0; });
    if (anchor == members.end()) continue;
    const std::int64_t reference = trace.clocks[anchor->rank].align(trace.event(*anchor).end);
    for (const Member& member : members) {
      const std::int64_t end = trace.event(member).end;
      if (placed[member.rank] == 0) samples[member.rank].push_back({end, end - reference});
    }
  }
  bool any = false;
  for (std::size_t rank = 0; rank < samples.size(); ++rank) {
    if (samples[rank].empty()) continue;
    trace.clocks[rank] = fit(std::move(samples[rank]));
    placed[rank] = 1;
    any = true;
  }
  return any;
}

/// Offsets spread from the first rank over the collectives that it shares with others, then from those on; over
/// transfers between two ranks only where no collective leads on. Ranks that it does not reach are brought together
/// among themselves, around the lowest of them.
void estimate(Trace& trace) {
  trace.clocks.assign(trace.ranks.size(), Clock{});
  std::vector<char> placed(trace.ranks.size(), 0);
  for (std::size_t root = 0; root < placed.size(); ++root) {
    if (placed[root] != 0) continue;
    placed[root] = 1;
    trace.clocks[root].known = root == 0;
    while (spread(trace, placed, false) || spread(trace, placed, true)) {
    }
  }
}

void split_wait_from_transfer(Trace& trace, Collective& collective) {
  collective.last = collective.members_begin;
  collective.transfer = trace.members[collective.last].end - trace.members[collective.last].begin;
  for (std::uint32_t m = collective.members_begin; m < collective.members_end; ++m) {
    const Member& member = trace.members[m];
    if (member.begin > trace.members[collective.last].begin) collective.last = m;
    collective.transfer = std::min(collective.transfer, member.end - member.begin);
  }
}

void check_causality(Trace& trace, const Collective& collective) {
  if (!ends_together(collective.kind)) return;
  const std::int64_t last_begin = trace.members[collective.last].begin;
  for (std::uint32_t m = collective.members_begin; m < collective.members_end; ++m) {
    const Member& member = trace.members[m];
    const std::int64_t early = last_begin - member.end;
    const std::int64_t tolerance = static_cast<std::int64_t>(kNoise) + 3 * trace.clocks[member.rank].residual;
    if (early <= tolerance) continue;
    ++trace.causality_violations;
    trace.worst_violation = std::max(trace.worst_violation, early);
  }
}

}  // namespace

void align_clocks(Trace& trace) {
  estimate(trace);
  for (Member& member : trace.members) {
    const Clock& clock = trace.clocks[member.rank];
    member.begin = clock.align(member.begin);
    member.end = clock.align(member.end);
  }
  for (Collective& collective : trace.collectives) {
    split_wait_from_transfer(trace, collective);
    check_causality(trace, collective);
  }
  std::stable_sort(trace.collectives.begin(), trace.collectives.end(), [&](const Collective& a, const Collective& b) {
    return trace.members[a.last].begin < trace.members[b.last].begin;
  });
}

}  // namespace paceline::trace
