#include "paceline/replay/what_if.h"

#include <fmt/core.h>
#include <fnmatch.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <unordered_map>

#include "paceline/base/error.h"
#include "paceline/trace/captures.h"

namespace paceline::replay {
namespace {

using base::kNone;
using taskgraph::CollectiveId;
using taskgraph::Delta;
using taskgraph::NameId;
using taskgraph::TaskGraph;
using taskgraph::TaskId;
using taskgraph::TaskKind;

struct TargetName {
  std::string_view name;
  Target target;
  bool has_pattern;
};
constexpr std::array<TargetName, 9> kTargets = {{{"kernel", Target::kKernel, true},
                                                 {"op", Target::kOp, true},
                                                 {"span", Target::kSpan, true},
                                                 {"host", Target::kHost, true},
                                                 {"rank", Target::kRank, true},
                                                 {"link", Target::kLink, true},
                                                 {"launch", Target::kLaunch, false},
                                                 {"gap", Target::kGap, false},
                                                 {"ranks", Target::kRanks, false}}};

[[noreturn]] void refuse(std::string_view text, const std::string& what) {
  throw Error(ErrorKind::kUsage, fmt::format("--set '{}'", text), what);
}

double number_in(std::string_view digits, std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc() || end != digits.data() + digits.size() || !std::isfinite(value)) {
    refuse(text, fmt::format("'{}' is no number; write a value like x0.8, 5us, +2ms or 0", digits));
  }
  return value;
}

std::int64_t time_in(std::string_view value, std::string_view text) {
  constexpr std::array<std::pair<std::string_view, double>, 4> kUnits = {
      {{"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}}};
  for (const auto& [unit, ns] : kUnits) {
    if (value.ends_with(unit)) {
      return static_cast<std::int64_t>(std::llround(number_in(value.substr(0, value.size() - unit.size()), text) * ns));
    }
  }
  if (number_in(value, text) != 0) refuse(text, fmt::format("the time '{}' has no unit; write ns, us, ms or s", value));
  return 0;
}

/// The two halves of a scope "span|operator".
std::pair<std::string_view, std::string_view> split_scope(std::string_view scope) {
  const auto bar = scope.rfind('|');
  if (bar == scope.npos) return {"", scope};
  return {scope.substr(0, bar), scope.substr(bar + 1)};
}

/// Whether names match a pattern, asked once per name.
class Matcher {
 public:
  Matcher(const TaskGraph& graph, const std::string& pattern) : graph_(graph), pattern_(pattern) {}

  template <class Part>
  bool matches(NameId name, Part part) {
    if (name == kNone<NameId>) return false;
    const auto [found, added] = known_.try_emplace(name, false);
    if (added) found->second = fnmatch(pattern_.c_str(), std::string(part(graph_.text(name))).c_str(), 0) == 0;
    return found->second;
  }

 private:
  const TaskGraph& graph_;
  const std::string& pattern_;
  std::unordered_map<NameId, bool> known_;
};

bool is_launch_call(std::string_view name) {
  return name.find("LaunchKernel") != name.npos || name.find("GraphLaunch") != name.npos ||
         name.find("LaunchCooperative") != name.npos;
}

/// Of a ring of `ranks` members each moves this many times the bytes: 2 (n - 1) / n for an all-reduce, half of that for
/// its halves (Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms", 2009).
double ring_share(std::int64_t ranks) {
  return static_cast<double>(ranks - 1) / static_cast<double>(ranks);
}

std::int64_t changed(const Edit& edit, std::int64_t duration) {
  switch (edit.change) {
    case Change::kScale:
      return std::llround(static_cast<double>(duration) * edit.factor);
    case Change::kSet:
      return edit.time;
    case Change::kAdd:
      return std::max<std::int64_t>(0, duration + edit.time);
  }
  return duration;
}

/// The names that take longest among those an edit could have meant.
std::string suggestions(const TaskGraph& graph, Target target) {
  std::unordered_map<std::string_view, std::int64_t> time;
  const auto count = [&](std::string_view name, std::int64_t ns) {
    if (!name.empty()) time[name] += ns;
  };
  if (target == Target::kLink) {
    for (const taskgraph::Collective& collective : graph.collectives())
      count(graph.text(collective.name), collective.transfer);
  }
  for (std::uint32_t i = 0; i < graph.size() && target != Target::kLink; ++i) {
    const auto task = static_cast<TaskId>(i);
    const auto [span, op] = split_scope(graph.text(graph.scope(task)));
    const TaskKind kind = graph.kind(task);
    if (target == Target::kOp) count(op, graph.duration(task));
    if (target == Target::kSpan) count(span, graph.duration(task));
    if (target == Target::kHost && (kind == TaskKind::kHost || kind == TaskKind::kHostGap)) {
      count(kind == TaskKind::kHost ? graph.text(graph.name(task)) : span, graph.duration(task));
    }
    if (target == Target::kKernel && (kind == TaskKind::kCompute || kind == TaskKind::kCopy)) {
      count(graph.text(graph.name(task)), graph.duration(task));
    }
  }
  std::vector<std::pair<std::int64_t, std::string_view>> longest;
  for (const auto& [name, ns] : time) longest.emplace_back(-ns, name);
  std::sort(longest.begin(), longest.end());
  std::string text;
  for (std::size_t i = 0; i < longest.size() && i < 4; ++i)
    text += fmt::format("{}{}", i > 0 ? ", " : "", longest[i].second.substr(0, 60));
  return text;
}

void change_transfers(const TaskGraph& graph, const Edit& edit, Delta& delta) {
  Matcher group(graph, edit.pattern), kind(graph, edit.pattern);
  const auto whole = [](std::string_view text) { return text; };
  const trace::Ranges ranks = edit.ranks.empty() ? trace::Ranges() : trace::Ranges(edit.ranks, "--set");
  for (std::uint32_t c = 0; c < graph.collectives().size(); ++c) {
    const auto id = static_cast<CollectiveId>(c);
    const taskgraph::Collective& collective = graph.collective(id);
    const auto members = graph.members(id);
    const bool in_ranks = std::any_of(members.begin(), members.end(), [&](TaskId member) {
      return ranks.contains(graph.lane(graph.lane(member)).rank);
    });
    if (!in_ranks) continue;
    if (edit.target == Target::kRanks) {
      const auto size = static_cast<std::int64_t>(members.size());
      const std::string_view name = graph.text(collective.name);
      if (size < 2 || (name != "all_reduce" && name != "all_gather" && name != "reduce_scatter")) continue;
      delta.transfers.emplace_back(
          id, std::llround(static_cast<double>(collective.transfer) * ring_share(edit.count) / ring_share(size)));
    } else if (group.matches(collective.group, whole) || kind.matches(collective.name, whole)) {
      Edit time = edit;
      time.factor = 1 / edit.factor;  // of the bandwidth
      delta.transfers.emplace_back(id, changed(time, collective.transfer));
    }
  }
}

void change_durations(const TaskGraph& graph, const Edit& edit, Delta& delta) {
  Matcher names(graph, edit.pattern), scopes(graph, edit.pattern);
  const auto whole = [](std::string_view text) { return text; };
  const auto span = [](std::string_view text) { return split_scope(text).first; };
  const auto op = [](std::string_view text) { return split_scope(text).second; };
  const std::string& rank_list = edit.target == Target::kRank ? edit.pattern : edit.ranks;
  const trace::Ranges ranks = rank_list.empty() ? trace::Ranges() : trace::Ranges(rank_list, "--set");
  std::unordered_map<NameId, bool> launches;
  const auto launching = [&](NameId name) {
    const auto [found, added] = launches.try_emplace(name, false);
    if (added) found->second = is_launch_call(graph.text(name));
    return found->second;
  };
  for (std::uint32_t i = 0; i < graph.size(); ++i) {
    const auto task = static_cast<TaskId>(i);
    const TaskKind kind = graph.kind(task);
    if (kind == TaskKind::kCollective) continue;
    const bool has_lane = graph.lane(task) != kNone<taskgraph::LaneId>;
    if (!ranks.all() && !(has_lane && ranks.contains(graph.lane(graph.lane(task)).rank))) continue;
    const bool host = kind == TaskKind::kHost || kind == TaskKind::kHostGap ||
                      (kind == TaskKind::kCompute && has_lane && !graph.lane(graph.lane(task)).device);
    bool hit = false;
    switch (edit.target) {
      case Target::kKernel:
        hit = (kind == TaskKind::kCompute || kind == TaskKind::kCopy) && names.matches(graph.name(task), whole);
        break;
      case Target::kOp:
        hit = scopes.matches(graph.scope(task), op);
        break;
      case Target::kSpan:
        hit = scopes.matches(graph.scope(task), span);
        break;
      case Target::kHost:
        hit = host && (names.matches(graph.name(task), whole) || scopes.matches(graph.scope(task), span));
        break;
      case Target::kRank:
        hit = true;
        break;
      case Target::kLaunch:
        hit = (kind == TaskKind::kDelay && !has_lane) || (kind == TaskKind::kHost && launching(graph.name(task)));
        break;
      case Target::kGap:
        hit = kind == TaskKind::kGap;
        break;
      case Target::kLink:
      case Target::kRanks:
        break;
    }
    if (hit) delta.durations.emplace_back(task, changed(edit, graph.duration(task)));
  }
}

}  // namespace

Edit parse_edit(std::string_view text) {
  Edit edit;
  edit.text = text;
  const auto equals = text.rfind('=');
  if (equals == text.npos || equals + 1 == text.size()) {
    refuse(text, "has no value; write TARGET:PATTERN=VALUE, for example 'kernel:*gemm*=x0.8' or 'host:load_batch=0'");
  }
  std::string_view target = text.substr(0, equals);
  const std::string_view value = text.substr(equals + 1);
  if (const auto at = target.rfind('@'); at != target.npos) {
    edit.ranks = target.substr(at + 1);
    trace::Ranges(edit.ranks, fmt::format("--set '{}'", text));
    target = target.substr(0, at);
  }
  const auto colon = target.find(':');
  const std::string_view name = target.substr(0, colon);
  const auto* const found =
      std::find_if(kTargets.begin(), kTargets.end(), [&](const TargetName& t) { return t.name == name; });
  if (found == kTargets.end()) {
    std::string known;
    for (const TargetName& t : kTargets) known += fmt::format("{}{}", known.empty() ? "" : ", ", t.name);
    refuse(text, fmt::format("'{}' is no target; there are {}", name, known));
  }
  edit.target = found->target;
  if (found->has_pattern == (colon == target.npos)) {
    refuse(text, found->has_pattern ? fmt::format("'{0}' needs a pattern; write {0}:PATTERN=VALUE, {0}:* for all", name)
                                    : fmt::format("'{}' takes no pattern", name));
  }
  if (found->has_pattern) edit.pattern = target.substr(colon + 1);
  if (edit.target == Target::kRank) trace::Ranges(edit.pattern, fmt::format("--set '{}'", text));
  if (edit.target == Target::kRanks) {
    edit.count = std::llround(number_in(value, text));
    if (edit.count < 2) refuse(text, "a job of fewer than 2 ranks has no collectives; write a number from 2 on");
    return edit;
  }
  if (value.front() == 'x') {
    edit.factor = number_in(value.substr(1), text);
    if (edit.factor < 0 || (edit.target == Target::kLink && edit.factor == 0)) {
      refuse(text, "the factor must be above 0");
    }
  } else if (value.front() == '+' || value.front() == '-') {
    edit.change = Change::kAdd;
    edit.time = time_in(value.substr(1), text) * (value.front() == '-' ? -1 : 1);
  } else {
    edit.change = Change::kSet;
    edit.time = time_in(value, text);
    if (edit.time < 0) refuse(text, "a time is 0 or more");
  }
  return edit;
}

Delta delta_of(const TaskGraph& graph, const Edit& edit) {
  Delta delta;
  if (edit.target == Target::kLink || edit.target == Target::kRanks) {
    change_transfers(graph, edit, delta);
  } else {
    change_durations(graph, edit, delta);
  }
  if (delta.durations.empty() && delta.transfers.empty()) {
    const std::string there = suggestions(graph, edit.target);
    refuse(edit.text, there.empty() ? "matches nothing in this job"
                                    : fmt::format("matches nothing in this job; there are {}", there));
  }
  return delta;
}

Delta delta_of(const TaskGraph& graph, const std::vector<Edit>& edits) {
  Delta all;
  if (edits.empty()) return all;
  all = delta_of(graph, edits.front());
  if (edits.size() == 1) return all;
  TaskGraph edited = taskgraph::apply(graph, all);
  for (std::size_t i = 1; i < edits.size(); ++i) {
    const Delta more = delta_of(edited, edits[i]);
    all.durations.insert(all.durations.end(), more.durations.begin(), more.durations.end());
    all.transfers.insert(all.transfers.end(), more.transfers.begin(), more.transfers.end());
    if (i + 1 < edits.size()) edited = taskgraph::apply(edited, more);
  }
  return all;
}

}  // namespace paceline::replay
