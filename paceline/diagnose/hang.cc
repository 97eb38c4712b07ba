#include "paceline/diagnose/hang.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <set>

#include "paceline/trace/decimal.h"

namespace paceline::diagnose {
namespace {

using base::Json;
using trace::FlightDump;
using trace::FlightEntry;
using trace::FlightState;

using Ranks = std::set<std::uint32_t>;

std::vector<std::uint32_t> list(const Ranks& ranks) {
  return {ranks.begin(), ranks.end()};
}

std::string named(const Ranks& ranks) {
  return named_ranks(list(ranks));
}

bool equal_sizes_needed(std::string_view operation) {
  constexpr std::array<std::string_view, 7> kOperations{
      "all_reduce",     "broadcast",           "reduce", "_all_gather_base", "_reduce_scatter_base",
      "reduce_scatter", "all_reduce_coalesced"};
  return std::find(kOperations.begin(), kOperations.end(), operation) != kOperations.end();
}

/// One rank's part in a group.
struct Member {
  const FlightDump* dump;
  std::int64_t last = -1;                              // its latest collective; -1 = none
  bool known = true;                                   // else its ring may have lost what it did here
  std::map<std::int64_t, const FlightEntry*> entries;  // collectives by sequence
  std::vector<const FlightEntry*> open_transfers;
};

struct Group {
  std::string name, description;
  Ranks ranks;
  std::map<std::uint32_t, Member> members;  // by rank
};

/// Groups by name and ranks: the same on all members.
std::vector<Group> groups_of(const std::vector<FlightDump>& dumps) {
  std::map<std::pair<std::string, std::vector<std::uint32_t>>, Group> groups;
  for (const FlightDump& dump : dumps) {
    std::vector<Member*> members;
    for (const trace::FlightGroup& one : dump.groups) {
      Group& group = groups[{one.name, one.ranks}];
      group.name = one.name;
      if (group.description.empty()) group.description = one.description;
      group.ranks.insert(one.ranks.begin(), one.ranks.end());
      Member& member = group.members[*dump.rank];
      member.dump = &dump;
      member.last = std::max(member.last, one.last_enqueued);
      member.known = one.last_enqueued >= 0 || dump.entries.empty() || dump.entries.front().record == 0;
      members.push_back(&member);
    }
    for (const FlightEntry& entry : dump.entries) {
      Member& member = *members[entry.group];
      if (entry.point_to_point) {
        if (entry.state != FlightState::kCompleted) member.open_transfers.push_back(&entry);
        continue;
      }
      member.entries[entry.sequence] = &entry;
      member.last = std::max(member.last, entry.sequence);
      member.known = true;
    }
  }
  std::vector<Group> result;
  for (auto& [key, group] : groups) {
    for (const auto& [rank, member] : group.members) group.ranks.insert(rank);
    result.push_back(std::move(group));
  }
  return result;
}

/// The n-th collective of a group over the ranks.
class Instance {
 public:
  Instance(const Group& group, std::int64_t sequence) : group_(group), sequence_(sequence) {
    for (const std::uint32_t rank : group.ranks) {
      const auto member = group.members.find(rank);
      if (member == group.members.end()) {
        without_dump_.insert(rank);
        continue;
      }
      const auto entry = member->second.entries.find(sequence);
      if (entry != member->second.entries.end()) {
        present_[rank] = entry->second;
        in_state_[static_cast<std::size_t>(entry->second->state)].insert(rank);
      } else if (member->second.known && member->second.last < sequence) {
        absent_.insert(rank);
      }
    }
  }

  std::optional<HangFinding> judge() const {
    if (auto finding = mismatch(&FlightEntry::operation, HangKind::kMismatchedOperation)) return finding;
    if (equal_sizes_needed(present_.begin()->second->operation)) {
      if (auto finding = mismatch(&FlightEntry::input_sizes, HangKind::kMismatchedSize)) return finding;
    }
    if (auto finding = mismatch(&FlightEntry::dtypes, HangKind::kMismatchedType)) return finding;
    const Ranks &scheduled = in_state_[0], &started = in_state_[1], &completed = in_state_[2];
    if (scheduled.empty() && started.empty()) return std::nullopt;
    Ranks open = scheduled;
    open.insert(started.begin(), started.end());
    const std::string call = description();
    if (!absent_.empty()) {
      return finding(HangKind::kMissingRank, absent_, open,
                     fmt::format("{} {} not called {}; {} {}", named(absent_), absent_.size() == 1 ? "has" : "have",
                                 call, named(open), open.size() == 1 ? "waits" : "wait"));
    }
    if (!without_dump_.empty()) {
      return finding(HangKind::kMissingDump, without_dump_, open,
                     fmt::format("{} left no dump and may be gone; {} {} in {}", named(without_dump_), named(open),
                                 open.size() == 1 ? "waits" : "wait", call));
    }
    if (!scheduled.empty() && started.empty() && completed.empty()) {
      return finding(
          HangKind::kNotStarted, {}, open,
          fmt::format("{} is called by all its ranks and started on none: it waits behind other work", call));
    }
    if (!scheduled.empty()) {
      Ranks others = started;
      return finding(
          HangKind::kNotStarted, scheduled, others,
          fmt::format("{} called {} but did not start it: other work is before it there", named(scheduled), call));
    }
    if (!completed.empty()) {
      return finding(HangKind::kNotCompleted, started, {},
                     fmt::format("{} ended on {} but not on {}", call, named(completed), named(started)));
    }
    std::string what = fmt::format("{} runs on {} and ends on none: network or device", call, named(started));
    if (present_.size() < group_.ranks.size()) what += " (what the others did is no longer in their rings)";
    return finding(HangKind::kTransfer, {}, started, std::move(what));
  }

 private:
  std::string description() const {
    return fmt::format("{} #{} of group {}", present_.begin()->second->operation, sequence_,
                       group_.description.empty() ? group_.name : group_.description);
  }

  HangFinding finding(HangKind kind, const Ranks& blamed, const Ranks& waiting, std::string what) const {
    HangFinding found;
    found.kind = kind;
    found.group = group_.name;
    found.description = group_.description;
    found.sequence = sequence_;
    found.operation = present_.begin()->second->operation;
    found.blamed = list(blamed);
    found.waiting = list(waiting);
    found.what = std::move(what);
    for (const auto& [rank, entry] : present_) {
      if (found.where.empty()) found.where = entry->where;
    }
    return found;
  }

  /// The ranks that differ from what most ranks say; of two equal halves both.
  std::optional<HangFinding> mismatch(std::string FlightEntry::* field, HangKind kind) const {
    std::map<std::string, Ranks> values;
    for (const auto& [rank, entry] : present_) {
      if (!((*entry).*field).empty()) values[(*entry).*field].insert(rank);
    }
    if (values.size() < 2) return std::nullopt;
    const auto most = std::max_element(values.begin(), values.end(),
                                       [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
    Ranks blamed, waiting;
    std::string what = fmt::format("ranks disagree about #{} of group {}:", sequence_,
                                   group_.description.empty() ? group_.name : group_.description);
    if (kind != HangKind::kMismatchedOperation) what = fmt::format("ranks disagree about {}:", description());
    std::string_view separator = " ";
    const bool tie = std::count_if(values.begin(), values.end(),
                                   [&](const auto& value) { return value.second.size() == most->second.size(); }) > 1;
    for (const auto& [value, ranks] : values) {
      what += fmt::format("{}{} on {}", separator, value, named(ranks));
      separator = ", ";
      if (tie || value != most->first) blamed.insert(ranks.begin(), ranks.end());
    }
    for (const auto& [rank, entry] : present_) {
      if (!blamed.contains(rank) && entry->state != FlightState::kCompleted) waiting.insert(rank);
    }
    return finding(kind, blamed, waiting, std::move(what));
  }

  const Group& group_;
  std::int64_t sequence_;
  std::map<std::uint32_t, const FlightEntry*> present_;
  std::array<Ranks, 3> in_state_;
  Ranks absent_, without_dump_;
};

std::optional<HangFinding> first_stuck(const Group& group) {
  std::set<std::int64_t> sequences;
  for (const auto& [rank, member] : group.members) {
    for (const auto& [sequence, entry] : member.entries) sequences.insert(sequence);
  }
  for (const std::int64_t sequence : sequences) {
    if (auto finding = Instance(group, sequence).judge()) return finding;
  }
  return std::nullopt;
}

/// "send 0->1", "recv 1<-0": members by their place in the group.
struct Transfer {
  bool send;
  std::uint32_t self, peer;  // ranks
};
std::optional<Transfer> transfer_of(const Group& group, const FlightEntry& entry) {
  const std::string& text = entry.operation;
  const bool send = text.starts_with("send ");
  const std::size_t arrow = text.find(send ? "->" : "<-");
  if ((!send && !text.starts_with("recv ")) || arrow == std::string::npos) return std::nullopt;
  const auto self = trace::parse_integer(std::string_view(text).substr(5, arrow - 5));
  const auto peer = trace::parse_integer(std::string_view(text).substr(arrow + 2));
  const auto size = static_cast<std::int64_t>(group.ranks.size());
  if (!self || !peer || *self < 0 || *peer < 0 || *self >= size || *peer >= size) return std::nullopt;
  return Transfer{send, *std::next(group.ranks.begin(), *self), *std::next(group.ranks.begin(), *peer)};
}

/// Transfers that wait for a peer which has no open counterpart.
std::vector<HangFinding> stuck_transfers(const Group& group) {
  std::vector<HangFinding> findings;
  std::set<std::tuple<bool, std::uint32_t, std::uint32_t>> open;  // send, from, to
  for (const auto& [rank, member] : group.members) {
    for (const FlightEntry* entry : member.open_transfers) {
      if (const auto transfer = transfer_of(group, *entry)) {
        open.emplace(transfer->send, transfer->send ? transfer->self : transfer->peer,
                     transfer->send ? transfer->peer : transfer->self);
      }
    }
  }
  for (const auto& [rank, member] : group.members) {
    if (member.open_transfers.empty()) continue;
    const FlightEntry& entry = *member.open_transfers.front();
    const auto transfer = transfer_of(group, entry);
    if (!transfer) continue;
    const auto from = transfer->send ? transfer->self : transfer->peer;
    const auto to = transfer->send ? transfer->peer : transfer->self;
    if (open.contains({!transfer->send, from, to})) continue;
    HangFinding found;
    const bool dumped = group.members.contains(transfer->peer);
    found.kind = dumped ? HangKind::kMissingRank : HangKind::kMissingDump;
    found.group = group.name;
    found.description = group.description;
    found.sequence = entry.sequence;
    found.operation = entry.operation;
    found.blamed = {transfer->peer};
    found.waiting = {rank};
    found.where = entry.where;
    found.what = fmt::format("rank {} waits to {} rank {}, which {}", rank, transfer->send ? "send to" : "receive from",
                             transfer->peer, dumped ? "has no such transfer open" : "left no dump and may be gone");
    findings.push_back(std::move(found));
  }
  return findings;
}

/// Of the ranks that hold this one up, the share that waits in another one itself.
double held_elsewhere(const std::vector<HangFinding>& findings, std::size_t own) {
  const HangFinding& finding = findings[own];
  if (finding.kind != HangKind::kMissingRank && finding.kind != HangKind::kNotStarted) return 0;
  // Started nowhere: whatever its ranks wait for elsewhere is before it.
  const std::vector<std::uint32_t>& ranks = finding.blamed.empty() ? finding.waiting : finding.blamed;
  const auto held = std::count_if(ranks.begin(), ranks.end(), [&](std::uint32_t rank) {
    for (std::size_t i = 0; i < findings.size(); ++i) {
      const auto& waiting = findings[i].waiting;
      if (i != own && std::find(waiting.begin(), waiting.end(), rank) != waiting.end()) return true;
    }
    return false;
  });
  return static_cast<double>(held) / static_cast<double>(ranks.size());
}

/// Says which findings are causes and puts first those whose ranks are held up by nothing else. True when each is held
/// up by another.
bool order_causes(std::vector<HangFinding>& findings) {
  std::vector<double> held(findings.size());
  for (std::size_t i = 0; i < findings.size(); ++i) held[i] = held_elsewhere(findings, i);
  const bool circle = !held.empty() && std::all_of(held.begin(), held.end(), [](double share) { return share == 1; });
  std::vector<std::size_t> order(findings.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return held[a] < held[b]; });
  std::vector<HangFinding> sorted;
  for (const std::size_t i : order) {
    findings[i].cause = circle || held[i] < 1;
    sorted.push_back(std::move(findings[i]));
  }
  findings = std::move(sorted);
  return circle;
}

}  // namespace

std::string_view hang_kind_name(HangKind kind) {
  static constexpr std::array<std::string_view, 8> kNames{"mismatched_operation", "mismatched_size", "mismatched_type",
                                                          "missing_rank",         "missing_dump",    "not_started",
                                                          "not_completed",        "transfer"};
  return kNames[static_cast<std::size_t>(kind)];
}

std::string named_ranks(std::span<const std::uint32_t> ranks) {
  constexpr std::size_t kRuns = 6;
  std::string text;
  std::size_t runs = 0;
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    if (++runs > kRuns) return fmt::format("ranks {} and {} more", text, ranks.size() - i);
    text += fmt::format("{}{}", text.empty() ? "" : ", ", ranks[i]);
    if (last > i) text += fmt::format("-{}", ranks[last]);
    i = last + 1;
  }
  return (ranks.size() == 1 ? "rank " : "ranks ") + text;
}

HangVerdict find_hang(const trace::FlightDumps& dumps) {
  HangVerdict verdict;
  verdict.ranks = static_cast<std::uint32_t>(dumps.dumps.size());
  verdict.unreadable = dumps.unreadable;
  verdict.warnings = dumps.warnings;
  for (const FlightDump& dump : dumps.dumps) {
    if (!dump.host.empty()) verdict.hosts[*dump.rank] = dump.host;
  }
  const std::vector<Group> groups = groups_of(dumps.dumps);
  Ranks missing;
  for (const Group& group : groups) missing.insert(group.ranks.begin(), group.ranks.end());
  for (const FlightDump& dump : dumps.dumps) missing.erase(*dump.rank);
  verdict.missing = list(missing);
  for (const Group& group : groups) {
    if (auto finding = first_stuck(group)) verdict.findings.push_back(std::move(*finding));
    for (HangFinding& finding : stuck_transfers(group)) verdict.findings.push_back(std::move(finding));
  }
  const bool circle = order_causes(verdict.findings);
  const std::vector<HangFinding>& findings = verdict.findings;
  if (circle) {
    verdict.sentence = "ranks call the collectives of several groups in different order: " + findings[0].what +
                       ", and " + findings.back().what;
  } else if (!findings.empty()) {
    verdict.sentence = findings[0].what;
  } else {
    verdict.sentence = "no recorded collective hangs: all were completed by the ranks that left a dump";
  }
  if (!verdict.missing.empty()) verdict.sentence += fmt::format("; no dump of {}", named_ranks(verdict.missing));
  return verdict;
}

Json to_json(const HangVerdict& verdict) {
  Json result = base::make_result("hang", 1);
  result["verdict"] = verdict.sentence;
  result["ranks"] = verdict.ranks;
  result["missing_dumps"] = verdict.missing;
  Json& hosts = result["hosts"] = Json::object();
  for (const auto& [rank, host] : verdict.hosts) hosts[std::to_string(rank)] = host;
  Json& findings = result["findings"] = Json::array();
  for (const HangFinding& one : verdict.findings) {
    findings.push_back({{"kind", hang_kind_name(one.kind)},
                        {"cause", one.cause},
                        {"group", one.group},
                        {"description", one.description},
                        {"sequence", one.sequence},
                        {"operation", one.operation},
                        {"blamed", one.blamed},
                        {"waiting", one.waiting},
                        {"where", one.where},
                        {"what", one.what}});
  }
  result["unreadable"] = verdict.unreadable;
  result["warnings"] = verdict.warnings;
  return result;
}

}  // namespace paceline::diagnose
