#include "paceline/diagnose/compare.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "paceline/base/error.h"
#include "paceline/diagnose/path.h"

namespace paceline::diagnose {
namespace {

using base::Json;
using trace::Activity;
using trace::SlotItem;

struct Label {
  std::string group, what;
  std::string op = {};
  auto operator<=>(const Label&) const = default;
};

/// The name of the process group of the collective called `name` that runs all through the slot; nothing when unknown.
/// Names last from run to run, ranks do not.
std::string group_in(const trace::RankSummary& rank, const trace::Slot& slot, base::NameId name) {
  const auto after = std::partition_point(rank.collectives.begin(), rank.collectives.end(),
                                          [&](const trace::CommEvent& event) { return event.begin <= slot.begin; });
  for (auto event = after; event != rank.collectives.begin();) {
    --event;
    if (event->end < slot.end || event->name != name) continue;
    if (event->group == base::kNone<base::NameId>) return {};
    const std::string_view text = rank.names.text(event->group);
    const std::size_t as = text.find(trace::kGroupAs);
    return std::string(as == std::string_view::npos ? text : text.substr(as + trace::kGroupAs.size()));
  }
  return {};
}

/// What an item is, comparable between runs.
Label label_of(const SlotItem& item, const trace::RankSummary& rank, const trace::Slot& slot) {
  const base::InternTable& names = rank.names;
  const bool has_device = rank.has_device;
  const auto text = [&](base::NameId id) {
    return id == base::kNone<base::NameId> ? std::string() : std::string(names.text(id));
  };
  const std::string name = text(item.name);
  const std::string inside =
      item.span != base::kNone<base::NameId> && item.span != item.name ? " in " + text(item.span) : "";
  const std::string shape = item.shape == base::kNone<base::NameId> ? "" : " " + text(item.shape);
  switch (item.activity) {
    case Activity::kCompute: {
      if (item.name == base::kNone<base::NameId>) return {"kernels", "many small"};
      const bool known = has_device && item.op != base::kNone<base::NameId>;
      std::string op = known ? text(item.op) : name;
      return {"kernels", op + shape + inside, op};
    }
    case Activity::kCommunication: {
      trace::CollectiveKind kind = has_device ? trace::kind_of_kernel(name) : trace::kind_of_span(name);
      const std::string group = group_in(rank, slot, item.name);
      return {"communication",
              std::string(trace::collective_name(kind)) + (group.empty() ? "" : " of group " + group) + inside};
    }
    case Activity::kCopy:
      return {"copies", name + inside};
    case Activity::kHostOp:
      if (is_allocator_call(name) || is_synchronisation(name)) return {"allocator", name + inside};
      if (is_input(name) || is_input(inside)) return {"input", name + inside};
      return {"host", (name.empty() ? "many small" : name) + inside};
    case Activity::kHostGap:
      return {is_input(inside) ? "input" : "host", "no operator" + inside};
    case Activity::kLaunchGap:
      return {"gaps", "between kernels launched in time"};
    case Activity::kHeldBack:
      return {"gaps", "held back by a dependency"};
  }
  return {};
}

std::int64_t per_step(std::int64_t total, std::int64_t steps) {
  return total / std::max<std::int64_t>(steps, 1);
}

}  // namespace

Profile profile_of(const trace::Trace& trace, const std::string& source) {
  Profile profile;
  profile.source = source;
  for (const trace::RankSummary& rank : trace.ranks) {
    profile.ranks = std::max(profile.ranks, *rank.rank + 1);
    const auto steps = static_cast<std::int64_t>(rank.steps.size());
    profile.steps = profile.steps == 0 ? steps : std::min(profile.steps, steps);
  }
  const CriticalPath path = critical_path(trace);
  profile.length = path.length;
  std::map<Label, Profile::Charge> charges;
  for (const PathSegment& segment : path.segments) {
    const trace::RankSummary& rank = trace.ranks[segment.rank];
    auto slot = std::partition_point(rank.slots.begin(), rank.slots.end(),
                                     [&](const trace::Slot& candidate) { return candidate.begin < segment.begin; });
    for (; slot != rank.slots.end() && slot->end <= segment.end; ++slot) {
      for (std::uint32_t i = slot->items_begin; i < slot->items_end; ++i) {
        const SlotItem& item = rank.slot_items[i];
        Profile::Charge& charge = charges[label_of(item, rank, *slot)];
        charge.time_of_rank.resize(profile.ranks);
        charge.time_of_rank[*rank.rank] += item.time;
        charge.time += item.time;
        charge.count += item.count;
      }
    }
  }
  if (path.late_start > 0 && !path.segments.empty()) {
    const std::uint32_t first = *trace.ranks[path.segments.back().rank].rank;
    Profile::Charge& charge = charges[{"host", "before the first step: it began later"}];
    charge.time_of_rank.resize(profile.ranks);
    charge.time_of_rank[first] = charge.time = path.late_start;
    charge.count = 1;
  }
  std::int64_t charged = 0;
  for (auto& [label, charge] : charges) {
    charge.group = label.group;
    charge.what = label.what;
    charge.op = label.op;
    charged += charge.time;
    profile.charges.push_back(std::move(charge));
  }
  profile.clock_error = profile.length - charged;
  std::set<std::string_view> names;
  for (const trace::RankSummary& rank : trace.ranks) {
    for (const auto* totals : {&rank.operators, &rank.kernels}) {
      for (const trace::NameTotal& total : *totals) names.insert(rank.names.text(total.name));
    }
  }
  profile.names.assign(names.begin(), names.end());
  return profile;
}

Json to_json(const Profile& profile) {
  Json json = base::make_result("baseline", 1);
  json["source"] = profile.source;
  json["ranks"] = profile.ranks;
  json["steps"] = profile.steps;
  json["length_ns"] = profile.length;
  json["clock_error_ns"] = profile.clock_error;
  json["charges"] = Json::array();
  for (const Profile::Charge& charge : profile.charges) {
    Json ranks = Json::object();
    for (std::size_t rank = 0; rank < charge.time_of_rank.size(); ++rank) {
      if (charge.time_of_rank[rank] != 0) ranks[std::to_string(rank)] = charge.time_of_rank[rank];
    }
    Json row = {{"group", charge.group}, {"what", charge.what}};
    if (!charge.op.empty()) row["op"] = charge.op;
    row["time_ns"] = charge.time;
    row["count"] = charge.count;
    row["ranks"] = std::move(ranks);
    json["charges"].push_back(std::move(row));
  }
  json["names"] = profile.names;
  return json;
}

Profile read_profile(const std::string& path) {
  const Json json = base::read_json_file(path, "baseline", 1);
  Profile profile;
  try {
    profile.source = json.at("source");
    profile.ranks = json.at("ranks");
    profile.steps = json.at("steps");
    profile.length = json.at("length_ns");
    profile.clock_error = json.at("clock_error_ns");
    for (const Json& row : json.at("charges")) {
      Profile::Charge charge;
      charge.group = row.at("group");
      charge.what = row.at("what");
      charge.op = row.value("op", "");
      charge.time = row.at("time_ns");
      charge.count = row.at("count");
      charge.time_of_rank.resize(profile.ranks);
      for (const auto& [rank, time] : row.at("ranks").items()) {
        const std::size_t at = std::strtoull(rank.c_str(), nullptr, 10);
        if (at < charge.time_of_rank.size()) charge.time_of_rank[at] = time;
      }
      profile.charges.push_back(std::move(charge));
    }
    profile.names = json.at("names").get<std::vector<std::string>>();
    std::sort(profile.names.begin(), profile.names.end());
  } catch (const nlohmann::json::exception& fault) {
    throw Error(
        ErrorKind::kBadInput, path,
        std::string("a field is missing or of another kind (") + fault.what() + "); write it again with --save");
  }
  return profile;
}

namespace {

bool knows(const Profile& profile, const std::string& op) {
  return op.empty() || std::binary_search(profile.names.begin(), profile.names.end(), op);
}

/// The rank on which at least nine tenths of the time lies; or of the change, when that is most of the time and the
/// other ranks need no more than there was without it.
std::int64_t rank_of_change(const Change& change, const Profile::Charge* before, const Profile::Charge* after,
                            std::int64_t steps) {
  // Which rank the path runs on changes from run to run; the one that has the time now (or had it) is named.
  const Profile::Charge* shown = change.change > 0 ? after : before;
  if (shown == nullptr || shown->time <= 0) return -1;
  const auto most = std::max_element(shown->time_of_rank.begin(), shown->time_of_rank.end());
  const std::int64_t size = std::abs(change.change);
  const bool new_time = 2 * size >= per_step(shown->time, steps);
  const bool holds = 10 * *most >= 9 * shown->time || (new_time && 10 * per_step(*most, steps) >= 9 * size);
  return holds ? most - shown->time_of_rank.begin() : -1;
}

}  // namespace

Comparison compare(const Profile& before, const Profile& after) {
  Comparison comparison;
  comparison.step_before = per_step(before.length, before.steps);
  comparison.step_after = per_step(after.length, after.steps);
  comparison.change = comparison.step_after - comparison.step_before;
  std::map<Label, std::pair<const Profile::Charge*, const Profile::Charge*>> rows;
  for (const Profile::Charge& charge : before.charges) rows[{charge.group, charge.what}].first = &charge;
  for (const Profile::Charge& charge : after.charges) rows[{charge.group, charge.what}].second = &charge;
  std::map<std::string, Change> groups;
  std::int64_t explained = 0;
  for (const auto& [label, pair] : rows) {
    Change change;
    const Profile::Charge& shown = pair.second == nullptr ? *pair.first : *pair.second;
    change.group = !knows(before, shown.op) ? "added work" : !knows(after, shown.op) ? "removed work" : label.group;
    change.what = label.what;
    change.before = pair.first == nullptr ? 0 : per_step(pair.first->time, before.steps);
    change.after = pair.second == nullptr ? 0 : per_step(pair.second->time, after.steps);
    change.change = change.after - change.before;
    change.rank = rank_of_change(change, pair.first, pair.second, change.change > 0 ? after.steps : before.steps);
    Change& group = groups[change.group];
    group.group = change.group;
    group.before += change.before;
    group.after += change.after;
    group.change += change.change;
    explained += change.change;
    comparison.changes.push_back(std::move(change));
  }
  for (auto& [name, group] : groups) comparison.groups.push_back(std::move(group));
  comparison.not_explained = comparison.change - explained;
  const auto larger = [](const Change& a, const Change& b) { return std::abs(a.change) > std::abs(b.change); };
  std::stable_sort(comparison.groups.begin(), comparison.groups.end(), larger);
  std::stable_sort(comparison.changes.begin(), comparison.changes.end(), larger);
  return comparison;
}

Json to_json(const Comparison& comparison) {
  Json json = base::make_result("comparison", 1);
  json["step_before_ns"] = comparison.step_before;
  json["step_after_ns"] = comparison.step_after;
  json["change_ns"] = comparison.change;
  json["not_explained_ns"] = comparison.not_explained;
  const auto rows = [](const std::vector<Change>& changes) {
    Json list = Json::array();
    for (const Change& change : changes) {
      Json row = {{"group", change.group}};
      if (!change.what.empty()) row["what"] = change.what;
      row["before_ns"] = change.before;
      row["after_ns"] = change.after;
      row["change_ns"] = change.change;
      if (change.rank >= 0) row["rank"] = change.rank;
      list.push_back(std::move(row));
    }
    return list;
  };
  json["groups"] = rows(comparison.groups);
  json["changes"] = rows(comparison.changes);
  return json;
}

}  // namespace paceline::diagnose
