#include "paceline/diagnose/excerpt.h"

#include <algorithm>
#include <limits>
#include <set>

#include "paceline/diagnose/links.h"
#include "paceline/trace/select.h"
#include "paceline/trace/understand/launches.h"
#include "paceline/trace/understand/names.h"

namespace paceline::diagnose {
namespace {

using trace::Category;
using trace::Row;

/// Indices into Trace::ranks of those that the finding is about.
std::vector<std::uint32_t> ranks_in(const trace::Trace& trace, const Diagnosis& diagnosis, const Finding& finding) {
  std::vector<std::uint32_t> ranks;
  std::vector<std::uint32_t> of_links;
  if (finding.kind == "slow_link") {
    if (const auto links = find_slow_links(trace, diagnosis.step_count)) of_links = links->ranks;
  }
  for (std::uint32_t i = 0; i < trace.ranks.size(); ++i) {
    const std::uint32_t number = *trace.ranks[i].rank;
    const bool named = finding.rank >= 0 && number == static_cast<std::uint32_t>(finding.rank);
    const bool on_host = finding.rank < 0 && !finding.host.empty() && trace.ranks[i].host == finding.host;
    const bool on_link = std::find(of_links.begin(), of_links.end(), number) != of_links.end();
    if (named || on_host || on_link) ranks.push_back(i);
  }
  if (ranks.empty()) ranks.push_back(0);
  return ranks;
}

/// All ranks, those of the finding first, then by the smallest group that they share with one of those.
std::vector<std::uint32_t> by_closeness(const trace::Trace& trace, const std::vector<std::uint32_t>& first) {
  std::vector<std::uint32_t> distance(trace.ranks.size(), std::numeric_limits<std::uint32_t>::max());
  for (const trace::Collective& collective : trace.collectives) {
    const auto members = std::span(trace.members).subspan(collective.members_begin, collective.size());
    const bool shared = std::any_of(members.begin(), members.end(), [&](const trace::Member& member) {
      return std::find(first.begin(), first.end(), member.rank) != first.end();
    });
    if (!shared) continue;
    for (const trace::Member& member : members) {
      distance[member.rank] = std::min(distance[member.rank], collective.size());
    }
  }
  for (const std::uint32_t rank : first) distance[rank] = 0;
  std::vector<std::uint32_t> order(trace.ranks.size());
  for (std::uint32_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return distance[a] < distance[b]; });
  return order;
}

/// Numbers of the steps that all of these ranks have, ascending.
std::vector<std::int64_t> common_steps(const trace::Trace& trace, const std::vector<std::uint32_t>& numbers) {
  std::set<std::int64_t> common;
  bool any = false;
  for (const trace::RankSummary& rank : trace.ranks) {
    if (std::find(numbers.begin(), numbers.end(), *rank.rank) == numbers.end()) continue;
    std::set<std::int64_t> here;
    for (const trace::StepSummary& step : rank.steps) {
      if (rank.marks_steps && step.number >= 0 && (!any || common.contains(step.number))) here.insert(step.number);
    }
    common = std::move(here);
    any = true;
  }
  return {common.begin(), common.end()};
}

/// Place of the step in `steps` that took longest on any rank: an outlier, when there is one.
std::size_t longest_step(const Diagnosis& diagnosis, const std::vector<std::int64_t>& steps) {
  std::int64_t longest = -1;
  std::size_t place = 0;
  for (const RankDiagnosis& rank : diagnosis.ranks) {
    for (const StepParts& step : rank.steps) {
      const auto found = std::lower_bound(steps.begin(), steps.end(), step.number);
      if (found == steps.end() || *found != step.number || step.duration <= longest) continue;
      longest = step.duration;
      place = static_cast<std::size_t>(found - steps.begin());
    }
  }
  return place;
}

class Search {
 public:
  Search(const trace::Trace& trace, const Diagnosis& diagnosis, const Finding& finding,
         const std::function<bool(const Selection&)>& shows)
      : trace_(trace), diagnosis_(diagnosis), finding_(finding), shows_(shows) {}

  std::optional<Selection> run() {
    if (!choose_ranks()) return std::nullopt;
    choose_steps();
    if (selection_.ranks.size() <= kFew) spare_ranks();
    return selection_;
  }

 private:
  static constexpr std::size_t kFew = 16;

  Selection first_ranks(const std::vector<std::uint32_t>& order, std::size_t count) const {
    Selection selection;
    for (std::size_t i = 0; i < count; ++i) selection.ranks.push_back(*trace_.ranks[order[i]].rank);
    std::sort(selection.ranks.begin(), selection.ranks.end());
    return selection;
  }

  /// Doubles the number of others until the finding shows, then halves the last stretch.
  bool choose_ranks() {
    const std::vector<std::uint32_t> own = ranks_in(trace_, diagnosis_, finding_);
    const std::vector<std::uint32_t> order = by_closeness(trace_, own);
    std::size_t failed = 0, count = own.size();
    for (std::size_t more = 1;; more *= 2) {
      count = std::min(own.size() + more, order.size());
      if (shows_(first_ranks(order, count))) break;
      if (count == order.size()) return false;
      failed = count;
    }
    while (failed > 0 && count - failed > 1) {
      const std::size_t middle = failed + (count - failed) / 2;
      (shows_(first_ranks(order, middle)) ? count : failed) = middle;
    }
    selection_ = first_ranks(order, count);
    return true;
  }

  /// The shortest run of steps of 1, 2, 3, 5, 8, ... around the longest step, at the beginning or at the end.
  void choose_steps() {
    const std::vector<std::int64_t> steps = common_steps(trace_, selection_.ranks);
    const std::size_t longest = longest_step(diagnosis_, steps);
    for (std::size_t length = 1, next = 2; length < steps.size(); next = std::exchange(length, next) + next) {
      const std::size_t last = steps.size() - length;
      std::set<std::size_t> tried;
      for (const std::size_t begin : {std::min(longest - std::min(longest, length / 2), last), std::size_t{0}, last}) {
        if (!tried.insert(begin).second) continue;
        Selection shorter = selection_;
        shorter.steps = {steps[begin], steps[begin + length - 1]};
        if (!shows_(shorter)) continue;
        selection_ = shorter;
        return;
      }
    }
  }

  void spare_ranks() {
    for (std::size_t i = selection_.ranks.size(); i-- > 0 && selection_.ranks.size() > 1;) {
      if (static_cast<std::int32_t>(selection_.ranks[i]) == finding_.rank) continue;
      Selection fewer = selection_;
      fewer.ranks.erase(fewer.ranks.begin() + static_cast<std::ptrdiff_t>(i));
      if (shows_(fewer)) selection_ = fewer;
    }
  }

  const trace::Trace& trace_;
  const Diagnosis& diagnosis_;
  const Finding& finding_;
  const std::function<bool(const Selection&)>& shows_;
  Selection selection_;
};

}  // namespace

const Finding* same_finding(const Diagnosis& diagnosis, const Finding& finding, bool verdict) {
  const Finding* const main = main_finding(diagnosis);
  for (const Finding& other : diagnosis.findings) {
    const bool alike = other.kind == finding.kind && other.fault == finding.fault && other.rank == finding.rank &&
                       other.host == finding.host && other.pattern == finding.pattern;
    if (verdict && &other != main) continue;
    if (alike && 2 * other.cost >= finding.cost && other.cost <= 2 * finding.cost) return &other;
  }
  return nullptr;
}

std::optional<Selection> smallest_selection(const trace::Trace& trace, const Diagnosis& diagnosis,
                                            const Finding& finding,
                                            const std::function<bool(const Selection&)>& shows) {
  return Search(trace, diagnosis, finding, shows).run();
}

void drop_rows(trace::RankTrace& trace, HostRows level) {
  trace.instants.clear();
  if (level == HostRows::kEverything) return;
  const trace::Slices& slices = trace.slices;
  const std::vector<Row> launcher = trace::link_launches(trace), parent = trace::link_parents(trace);
  std::vector<bool> keep(slices.size());
  for (const trace::CollectiveArgs& args : trace.collective_args) keep[args.row] = true;
  const auto inside_operator = [&](Row row) {
    for (row = parent[row]; row != trace::kNoRow; row = parent[row]) {
      if (slices.category[row] == Category::kCpuOp) return true;
    }
    return false;
  };
  for (Row row = 0; row < slices.size(); ++row) {
    const Category category = slices.category[row];
    const std::string_view name = trace.name(row);
    const bool annotation = category == Category::kUserAnnotation, op = category == Category::kCpuOp;
    const bool call = category == Category::kRuntime;
    if (trace::is_device_work(category)) keep[row] = true;
    if (launcher[row] != trace::kNoRow) keep[launcher[row]] = true;
    if (annotation && name.starts_with("ProfilerStep#")) keep[row] = true;
    if ((annotation || op) && (trace::is_communication_span(name) || is_input(name))) keep[row] = true;
    if (call && (is_allocator_call(name) || is_synchronisation(name))) keep[row] = true;
    if (level >= HostRows::kOutermost && (annotation || (op && !inside_operator(row)))) keep[row] = true;
    if (level >= HostRows::kOperators && (op || call)) keep[row] = true;
  }
  // Parents come before their children, so one pass backwards reaches all that stands around a kept row.
  for (Row row = slices.size(); row-- > 0;) {
    const bool host = parent[row] != trace::kNoRow && slices.category[parent[row]] != Category::kPython;
    if (keep[row] && host) keep[parent[row]] = true;
  }
  trace::keep_rows(trace, keep);
}

}  // namespace paceline::diagnose
