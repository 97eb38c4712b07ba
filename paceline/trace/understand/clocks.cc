#include <algorithm>
#include <cmath>
#include <numeric>

#include "paceline/base/statistics.h"
#include "paceline/trace/understand/collectives.h"

namespace paceline::trace {
namespace {

/// Offsets below this are noise of the profiler's own clock calibration, not of the hosts' clocks: recordings of
/// several processes on one host show 2-7 us.
constexpr double kNoise = 20'000;
constexpr std::size_t kFitPoints = 200;  // Theil-Sen looks at pairs

struct Sample {
  double time;        // this rank's clock
  double difference;  // this rank's end minus the reference's
};

/// Offset and drift that bring `samples` to 0; the drift only where it explains what the offset alone does not.
Clock fit(std::vector<Sample> samples) {
  std::vector<double> differences(samples.size());
  std::transform(samples.begin(), samples.end(), differences.begin(), [](const Sample& s) { return s.difference; });
  const auto residual_of = [&](double offset, double slope) {
    std::vector<double> distances(samples.size());
    for (std::size_t i = 0; i < samples.size(); ++i) {
      const double at = samples[i].time - samples.front().time;
      distances[i] = std::abs(samples[i].difference - offset - slope * at);
    }
    return base::median(distances);
  };
  Clock clock;
  clock.known = true;
  clock.since = static_cast<std::int64_t>(samples.front().time);
  const double offset = base::median(differences);
  clock.offset = static_cast<std::int64_t>(std::llround(offset));
  const double flat = residual_of(offset, 0.0);
  clock.residual = static_cast<std::int64_t>(flat);
  const std::size_t stride = (samples.size() + kFitPoints - 1) / kFitPoints;
  std::vector<double> x, y;
  for (std::size_t i = 0; i < samples.size(); i += stride) {
    x.push_back(samples[i].time - samples.front().time);
    y.push_back(samples[i].difference);
  }
  constexpr std::size_t kEnough = 6;
  if (x.size() >= kEnough) {
    const base::Line line = base::theil_sen(x, y);
    const double sloped = residual_of(line.intercept, line.slope);
    if (std::abs(line.slope) * x.back() > kNoise && sloped < flat / 4) {
      clock.offset = static_cast<std::int64_t>(std::llround(line.intercept));
      clock.drift = line.slope;
      clock.residual = static_cast<std::int64_t>(sloped);
    }
  }
  const double noise = std::max(kNoise, 6.0 * static_cast<double>(clock.residual));
  clock.applied = std::abs(static_cast<double>(clock.offset)) > noise || clock.drift != 0;
  if (!clock.applied) clock.offset = 0;
  return clock;
}

/// Offsets spread from the first rank over the collectives that it shares with others, then from those on.
void estimate(Trace& trace) {
  trace.clocks.assign(trace.ranks.size(), Clock{});
  if (trace.ranks.empty()) return;
  trace.clocks[0].known = true;
  std::vector<std::vector<Sample>> samples(trace.ranks.size());
  while (true) {
    for (auto& list : samples) list.clear();
    for (const Collective& collective : trace.collectives) {
      if (!ends_together(collective.kind) || collective.size() < 2) continue;
      double reference = 0;
      bool anchored = false;
      for (std::uint32_t m = collective.members_begin; m < collective.members_end && !anchored; ++m) {
        const Member& member = trace.members[m];
        if (!trace.clocks[member.rank].known) continue;
        reference = static_cast<double>(trace.clocks[member.rank].align(trace.event(member).end));
        anchored = true;
      }
      if (!anchored) continue;
      for (std::uint32_t m = collective.members_begin; m < collective.members_end; ++m) {
        const Member& member = trace.members[m];
        if (trace.clocks[member.rank].known) continue;
        const auto end = static_cast<double>(trace.event(member).end);
        samples[member.rank].push_back({end, end - reference});
      }
    }
    bool progress = false;
    for (std::size_t rank = 0; rank < samples.size(); ++rank) {
      if (samples[rank].empty()) continue;
      trace.clocks[rank] = fit(std::move(samples[rank]));
      progress = true;
    }
    if (!progress) break;
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
