#include "paceline/diagnose/findings.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>
#include <map>
#include <optional>

#include "paceline/base/format.h"
#include "paceline/diagnose/links.h"

namespace paceline::diagnose {
namespace {

std::string time_text(std::int64_t ns) {
  return base::format_time(base::Nanos{ns});
}

std::string share_text(std::int64_t part, std::int64_t whole) {
  return base::format_percent(whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0.0, 0);
}

class Finder {
 public:
  Finder(const trace::Trace& trace, Diagnosis& diagnosis) : trace_(trace), diagnosis_(diagnosis) {}

  void run() {
    late_party();
    slow_link();
    waiting_victim();
    exposed_transfer();
    host_bound();
    copies();
    std::stable_sort(diagnosis_.findings.begin(), diagnosis_.findings.end(),
                     [](const Finding& a, const Finding& b) { return a.cost > b.cost; });
    mismatches();
    causality();
    missing_ranks();
    for (std::size_t i = 0; i < diagnosis_.findings.size(); ++i) diagnosis_.findings[i].id = fmt::format("F{}", i + 1);
  }

 private:
  std::int64_t steps() const { return static_cast<std::int64_t>(std::max<std::size_t>(diagnosis_.step_count, 1)); }

  const RankDiagnosis* rank_row(std::int32_t number) const {
    for (const RankDiagnosis& rank : diagnosis_.ranks) {
      if (static_cast<std::int32_t>(rank.rank) == number) return &rank;
    }
    return nullptr;
  }

  Finding& add(std::string kind, std::string title, std::int64_t cost) {
    Finding finding;
    finding.kind = std::move(kind);
    finding.title = std::move(title);
    finding.cost = cost;
    diagnosis_.findings.push_back(std::move(finding));
    return diagnosis_.findings.back();
  }

  /// Collectives in which somebody can be waited for.
  std::ptrdiff_t shared_collectives() const {
    return std::count_if(trace_.collectives.begin(), trace_.collectives.end(), [](const trace::Collective& collective) {
      return collective.size() >= 2 && trace::ends_together(collective.kind);
    });
  }

  void late_party() {
    const Late& late = diagnosis_.late;
    if (!late.rotating.empty()) return rotating();
    if (late.ranks.empty()) return no_culprit();
    const bool host = late.ranks.size() > 1;
    std::string title =
        fmt::format("{} arrive{} last in {} of {} collectives and hold{} the others up for {} per step",
                    host ? fmt::format("the {} ranks of host {}", late.ranks.size(), late.host)
                         : fmt::format("rank {}", late.ranks[0]),
                    host ? "" : "s", late.times_last, late.collectives, host ? "" : "s", time_text(late.cost));
    // A pipeline's slack may hide what a rank takes longer.
    const bool hidden = late.is_hidden(diagnosis_.median_step);
    if (hidden) {
      title = fmt::format("{} take{} {} per step longer than ranks that do the same, of which the others feel {}",
                          host ? fmt::format("the {} ranks of host {}", late.ranks.size(), late.host)
                               : fmt::format("rank {}", late.ranks[0]),
                          host ? "" : "s", time_text(late.longer), time_text(late.cost));
    }
    // The largest cause that has a name of its own.
    for (const Cause& cause : diagnosis_.causes) {
      if (cause.what.starts_with("many small")) continue;
      title += ": " + cause.what;
      break;
    }
    Finding& finding = add(host ? "late_host" : "late_rank", std::move(title), late.cost);
    finding.rank = host ? -1 : static_cast<std::int32_t>(late.ranks[0]);
    finding.host = late.host;
    finding.fault = late.fault;
    finding.pattern = late.pattern;
    if (late.fault != Fault::kNone) {
      finding.evidence.push_back(
          fmt::format("class {} (inferred): {}", fault_entry(late.fault).name, fault_entry(late.fault).sign));
    }
    for (const Cause& cause : diagnosis_.causes) {
      finding.evidence.push_back(fmt::format("{}: {} per step more than on the other ranks, {} of the lateness",
                                             cause.what, time_text(cause.per_step),
                                             base::format_percent(cause.share, 0)));
    }
    finding.evidence.push_back(pattern_text(late.pattern));
    if (!host) {
      const RankDiagnosis& row = *rank_row(static_cast<std::int32_t>(late.ranks[0]));
      std::int64_t worst = 0;
      for (const CollectiveRow& each : diagnosis_.collectives) {
        if (each.last_rank == row.rank) worst = std::max(worst, each.behind);
      }
      finding.evidence.push_back(
          fmt::format("it waits {} per step in collectives, its peers {}; at worst it came {} behind their median",
                      time_text(row.mean.exposed_wait), time_text(wait_of_others(row)), time_text(worst)));
    }
    finding.remedy = remedy_for(late);
  }

  void no_culprit() {
    if (shared_collectives() == 0) return;
    Finding& finding = add("no_culprit", "no single rank holds the others up", 0);
    finding.evidence.push_back(fmt::format(
        "of {} collectives no rank comes last more often than chance explains at a cost above 1 % of a step",
        shared_collectives()));
    finding.evidence.push_back(fmt::format("waiting for one another takes {} per step, the mean over ranks",
                                           time_text(mean_over_ranks(&StepParts::exposed_wait))));
  }

  void rotating() {
    const Late& late = diagnosis_.late;
    Finding& finding =
        add("rotating_late_rank",
            fmt::format("{} ranks take turns at holding the others up, {} per step: no single rank is at "
                        "fault",
                        late.rotating.size(), time_text(late.cost)),
            late.cost);
    finding.pattern = Pattern::kRotating;
    std::string ranks;
    constexpr std::size_t kShown = 12;
    for (std::size_t i = 0; i < std::min(late.rotating.size(), kShown); ++i) {
      ranks += fmt::format("{}{}", i ? ", " : "", late.rotating[i]);
    }
    finding.evidence.push_back(
        fmt::format("in each step one rank costs most of the waiting, but another each time: {}{}", ranks,
                    late.rotating.size() > kShown ? ", ..." : ""));
    finding.remedy = "look for work that moves between ranks: garbage collection, logging, checkpoints, uneven batches";
  }

  static std::string pattern_text(Pattern pattern) {
    switch (pattern) {
      case Pattern::kPersistent:
        return "persistent: in most of the steps";
      case Pattern::kIntermittent:
        return "intermittent: in some of the steps only";
      case Pattern::kOutlier:
        return "a single outlier: one step holds most of it";
      default:
        return "fewer than 5 steps: cannot tell a habit from a single event";
    }
  }

  /// One group of ranks whose transfers are slow, found by comparing it with groups that do the same.
  void slow_link() {
    const std::optional<SlowLinks> links = find_slow_links(trace_, diagnosis_.step_count);
    if (!links || links->cost * 100 < diagnosis_.median_step) return;
    Finding& finding = add("slow_link",
                           fmt::format("transfers of group {} take {:.2f} times as long as those of groups like it{}{}",
                                       links->group, links->ratio, links->where.empty() ? "" : ", ", links->where),
                           links->cost);
    finding.fault = links->scope;
    finding.measured = links->known_hosts;
    finding.evidence.push_back(
        fmt::format("{} more per step, waiting for late ranks taken off, hidden or not; {} ranks, "
                    "from rank {}",
                    time_text(links->cost), links->ranks.size(), links->ranks.front()));
    if (links->groups > 1) finding.evidence.push_back(fmt::format("{} groups are slow alike", links->groups));
    if (!links->known_hosts) finding.evidence.push_back("hosts are not known: --hosts tells where the traffic runs");
    finding.remedy = std::string(fault_entry(links->scope).cure);
  }

  std::int64_t wait_of_others(const RankDiagnosis& late) const {
    std::int64_t sum = 0;
    for (const RankDiagnosis& rank : diagnosis_.ranks) sum += &rank == &late ? 0 : rank.mean.exposed_wait;
    return sum / static_cast<std::int64_t>(std::max<std::size_t>(diagnosis_.ranks.size() - 1, 1));
  }

  std::string remedy_for(const Late& late) const {
    const std::string who = late.ranks.size() > 1 ? "host " + late.host : fmt::format("rank {}", late.ranks.front());
    if (diagnosis_.causes.empty()) return fmt::format("look at what {} does before its collectives", who);
    const Cause& cause = diagnosis_.causes.front();
    if (cause.fault == Fault::kLateStart) {
      return fmt::format("look at what {} does before its first recorded step; record more steps to see it", who);
    }
    const std::string look = fmt::format("look at '{}' on {}; the other ranks take less time for it", cause.what, who);
    return late.fault == Fault::kNone ? look : look + "; usual cure: " + std::string(fault_entry(late.fault).cure);
  }

  bool is_late(std::uint32_t rank) const {
    const auto& ranks = diagnosis_.late.ranks;
    return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
  }

  /// The rank that a look at communication time alone would blame.
  void waiting_victim() {
    const auto most = std::max_element(
        diagnosis_.ranks.begin(), diagnosis_.ranks.end(),
        [](const RankDiagnosis& a, const RankDiagnosis& b) { return a.mean.communication < b.mean.communication; });
    if (most == diagnosis_.ranks.end() || most->wait + most->transfer == 0) return;
    const std::int64_t in_collectives = most->wait + most->transfer;
    if (is_late(most->rank) || most->wait * 2 < in_collectives) return;
    if (most->mean.exposed_wait * 20 < most->mean.duration) return;
    Finding& finding =
        add("waiting_victim",
            fmt::format("rank {} spends the most time in communication, but {} of it is waiting for others", most->rank,
                        share_text(most->wait, in_collectives)),
            0);
    finding.rank = static_cast<std::int32_t>(most->rank);
    finding.evidence.push_back(fmt::format("{} per step in collectives: {} waiting, {} transfer",
                                           time_text(in_collectives), time_text(most->wait),
                                           time_text(most->transfer)));
    finding.remedy = "nothing to mend on this rank";
  }

  std::int64_t mean_over_ranks(std::int64_t StepParts::* field) const {
    std::int64_t sum = 0;
    for (const RankDiagnosis& rank : diagnosis_.ranks) sum += rank.mean.*field;
    return diagnosis_.ranks.empty() ? 0 : sum / static_cast<std::int64_t>(diagnosis_.ranks.size());
  }

  /// `field` as a finding when it takes at least `percent` of a step on average.
  Finding* share_finding(const char* kind, std::int64_t time, int percent, const std::string& title) {
    const std::int64_t step = mean_over_ranks(&StepParts::duration);
    if (step == 0 || time * 100 < step * percent) return nullptr;
    return &add(kind, fmt::format("{}: {} per step, {} of it", title, time_text(time), share_text(time, step)), time);
  }

  void exposed_transfer() {
    const std::int64_t time = mean_over_ranks(&StepParts::exposed_transfer);
    if (Finding* finding = share_finding("exposed_transfer", time, 3, "transfers are not hidden behind computation")) {
      finding->evidence.push_back(
          fmt::format("mean over {} ranks, waiting for late ranks not counted", diagnosis_.ranks.size()));
      if (diagnosis_.has_device) exposure(*finding);
      finding->remedy = finding->fault == Fault::kNone
                            ? "start collectives earlier (smaller buckets, overlap with backward) or send less"
                            : std::string(fault_entry(finding->fault).cure);
    }
  }

  /// Of several alike in a step the first gathering and the last reduction: before the one and behind the other there
  /// is no computation that could hide them.
  static std::vector<bool> edges(const trace::RankSummary& rank, const std::vector<std::uint32_t>& group_of) {
    std::vector<bool> edge(rank.collectives.size(), false);
    struct Row {
      std::size_t first, last;
    };
    std::map<std::pair<std::uint32_t, trace::CollectiveKind>, Row> rows;  // of the step
    const auto close = [&] {
      for (const auto& [key, row] : rows) {
        const bool gathers = key.second == trace::CollectiveKind::kAllGather;
        if (row.first != row.last) edge[gathers ? row.first : row.last] = true;
      }
      rows.clear();
    };
    std::size_t step = 0;
    for (std::size_t e = 0; e < edge.size(); ++e) {
      const std::size_t before = step;
      while (step + 1 < rank.steps.size() && rank.steps[step + 1].begin <= rank.collectives[e].begin) ++step;
      if (step != before) close();
      rows.try_emplace({group_of[e], rank.collectives[e].kind}, Row{e, e}).first->second.last = e;
    }
    close();
    return edge;
  }

  /// Whether the exposed transfers begin while computation still runs, queue behind such or have none to hide behind
  /// (too big), or begin only after it (issued late).
  void exposure(Finding& finding) const {
    std::vector<std::vector<std::int64_t>> transfer_of(trace_.ranks.size());
    std::vector<std::vector<std::uint32_t>> group_of(trace_.ranks.size());
    for (std::size_t i = 0; i < trace_.ranks.size(); ++i) {
      transfer_of[i].assign(trace_.ranks[i].collectives.size(), 0);
      group_of[i].assign(trace_.ranks[i].collectives.size(), 0);
    }
    for (const trace::Collective& collective : trace_.collectives) {
      for (std::uint32_t m = collective.members_begin; m < collective.members_end; ++m) {
        const trace::Member& member = trace_.members[m];
        transfer_of[member.rank][member.event] = collective.transfer;
        group_of[member.rank][member.event] = collective.group;
      }
    }
    struct Exposed {
      std::int64_t early = 0, late = 0;
      std::int64_t sum() const { return early + late; }
    };
    std::map<std::uint32_t, Exposed> of_group;
    for (std::size_t i = 0; i < trace_.ranks.size(); ++i) {
      constexpr std::int64_t kQueued = 50'000;  // ns between one collective and the next on a busy stream
      const auto& hidden = trace_.ranks[i].compute_in_collectives;
      std::int64_t busy_until = std::numeric_limits<std::int64_t>::min();
      bool in_time = false;
      const std::vector<bool> edge = edges(trace_.ranks[i], group_of[i]);
      for (std::size_t e = 0; e < trace_.ranks[i].collectives.size(); ++e) {
        const trace::CommEvent& event = trace_.ranks[i].collectives[e];
        const bool queued = event.begin - kQueued <= busy_until;
        in_time = (queued && in_time) || total_within(hidden, {event.begin, event.end}) > 0;
        const trace::Interval transfer{event.end - transfer_of[i][e], event.end};
        Exposed& exposed = of_group[group_of[i][e]];
        (in_time || edge[e] ? exposed.early : exposed.late) += transfer.length() - total_within(hidden, transfer);
        busy_until = std::max(busy_until, event.end);
      }
    }
    // Some groups (tensor parallel) cannot overlap; the one with the largest share says what is to be done. Groups of
    // one size stand for one another.
    std::map<std::size_t, Exposed> of_size;
    std::map<std::uint32_t, std::size_t> sizes;
    for (const trace::Collective& collective : trace_.collectives) sizes[collective.group] = collective.size();
    for (const auto& [group, exposed] : of_group) {
      of_size[sizes[group]].early += exposed.early;
      of_size[sizes[group]].late += exposed.late;
    }
    const auto main = std::max_element(of_size.begin(), of_size.end(),
                                       [](const auto& a, const auto& b) { return a.second.sum() < b.second.sum(); });
    if (main == of_size.end()) return;
    finding.fault = main->second.late >= main->second.early ? Fault::kIssuedLate : Fault::kTooBig;
    finding.evidence.push_back(
        fmt::format("groups of {}: {} of it in collectives that begin only after the computation, {} in such as "
                    "outlast it or have none "
                    "to hide behind",
                    main->first, share_text(main->second.late, main->second.sum()),
                    share_text(main->second.early, main->second.sum())));
  }

  /// Exposed waiting, per step and rank, for members whose collective began as soon as their host had launched it: the
  /// hosts, none ahead of its device, are late in turn.
  std::int64_t wait_for_hosts() const {
    constexpr std::int64_t kAtOnce = 20'000;  // ns from a launch to its start on an idle device
    std::int64_t sum = 0;
    for (const trace::Collective& collective : trace_.collectives) {
      const trace::CommEvent& last = trace_.event(trace_.members[collective.last]);
      if (collective.size() < 2 || !last.on_device || last.begin - last.issued > kAtOnce) continue;
      for (std::uint32_t m = collective.members_begin; m < collective.members_end; ++m) {
        const trace::CommEvent& event = trace_.event(trace_.members[m]);
        const trace::Interval wait{event.begin, event.end - collective.transfer};
        if (wait.length() <= 0) continue;
        sum += wait.length() - total_within(trace_.ranks[trace_.members[m].rank].compute_in_collectives, wait);
      }
    }
    return sum / steps() / static_cast<std::int64_t>(std::max<std::size_t>(trace_.ranks.size(), 1));
  }

  void host_bound() {
    // Gaps between kernels that are launched just in time are the host's too.
    std::int64_t time = mean_over_ranks(&StepParts::idle_host) + mean_over_ranks(&StepParts::idle_gap);
    const bool nobody = diagnosis_.late.ranks.empty() && diagnosis_.late.rotating.empty();
    const std::int64_t waiting = nobody ? wait_for_hosts() : 0;
    time += waiting;
    const char* title = diagnosis_.has_device ? "the device runs dry because the host launches too late"
                                              : "the host runs neither operators nor collectives";
    if (Finding* finding = share_finding("host_bound", time, 8, title)) {
      finding->evidence.push_back(
          "idle time whose next work was launched only after it had begun, and short gaps between kernels");
      if (waiting > 0) {
        finding->evidence.push_back(fmt::format(
            "{} of it waiting in collectives for one another's hosts, none of which is late more than others",
            time_text(waiting)));
      }
      if (diagnosis_.has_device) finding->fault = Fault::kLaunchBound;
      finding->remedy =
          diagnosis_.has_device
              ? "launch fewer, larger kernels (CUDA graphs, torch.compile) or shorten the Python between them"
              : "look at what runs between the operators: data loading, Python, sleeping";
    }
  }

  void copies() {
    const std::int64_t time = mean_over_ranks(&StepParts::exposed_copies);
    if (Finding* finding = share_finding("copies", time, 3, "copies and fills are not hidden")) {
      finding->remedy = "pin host memory and copy on a stream of its own, one batch ahead";
    }
  }

  void mismatches() {
    if (trace_.mismatches.empty()) return;
    Finding& finding =
        add("mismatch", fmt::format("{} collectives are not the same on all ranks", trace_.mismatches.size()), 0);
    constexpr std::size_t kShown = 5;
    for (std::size_t i = 0; i < std::min(trace_.mismatches.size(), kShown); ++i) {
      const trace::Mismatch& mismatch = trace_.mismatches[i];
      finding.evidence.push_back(fmt::format("rank {}, group {}: {}", *trace_.ranks[mismatch.rank].rank,
                                             trace_.groups[mismatch.group], mismatch.what));
    }
    finding.remedy = "record the same steps on all ranks; if they are, a rank skips a collective and the job may hang";
  }

  void causality() {
    if (trace_.causality_violations == 0) return;
    Finding& finding = add("causality",
                           fmt::format("{} times a rank left a collective before another had entered it, by up to {}",
                                       trace_.causality_violations, time_text(trace_.worst_violation)),
                           0);
    finding.measured = false;
    finding.remedy = "the clocks of the hosts could not be brought together; treat differences of this size with care";
  }

  void missing_ranks() {
    if (trace_.ranks.size() >= diagnosis_.world_size) return;
    Finding& finding = add("missing_ranks",
                           fmt::format("{} of {} ranks are here; a late rank may be among the missing",
                                       trace_.ranks.size(), diagnosis_.world_size),
                           0);
    finding.remedy = "give the traces of all ranks";
  }

  const trace::Trace& trace_;
  Diagnosis& diagnosis_;
};

}  // namespace

void find_findings(const trace::Trace& trace, Diagnosis& diagnosis) {
  Finder(trace, diagnosis).run();
}

}  // namespace paceline::diagnose
