#include "paceline/trace/select.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <unordered_set>

#include "paceline/base/error.h"
#include "paceline/trace/decimal.h"

namespace paceline::trace {
namespace {

constexpr std::string_view kStep = "ProfilerStep#";

/// Replaces the rows of `to` by those of `from` that `keep` marks, in their order.
void take_rows(const RankTrace& from, const std::vector<bool>& keep, RankTrace& to) {
  const Slices& slices = from.slices;
  std::vector<Row> new_row(slices.size(), kNoRow);
  Slices taken;
  for (Row row = 0; row < slices.size(); ++row) {
    if (!keep[row]) continue;
    new_row[row] = taken.size();
    taken.start.push_back(slices.start[row]);
    taken.duration.push_back(slices.duration[row]);
    taken.name.push_back(slices.name[row]);
    taken.lane.push_back(slices.lane[row]);
    taken.correlation.push_back(slices.correlation[row]);
    taken.shapes.push_back(slices.shapes[row]);
    taken.category.push_back(slices.category[row]);
  }
  std::vector<CollectiveArgs> args;
  for (CollectiveArgs one : from.collective_args) {
    one.row = new_row[one.row];
    if (one.row != kNoRow) args.push_back(one);
  }
  to.slices = std::move(taken);
  to.collective_args = std::move(args);
  for (Lane& lane : to.lanes) lane.begin = lane.end = 0;
  for (Row row = 0; row < to.slices.size(); ++row) {
    Lane& lane = to.lanes[base::index(to.slices.lane[row])];
    if (lane.begin == lane.end) lane.begin = row;
    lane.end = row + 1;
  }
}

std::optional<std::uint32_t> number_behind_rank(std::string_view text) {
  const std::size_t at = text.find("ank");
  if (at == std::string_view::npos || at == 0 || (text[at - 1] != 'r' && text[at - 1] != 'R')) return std::nullopt;
  std::size_t begin = at + 3;
  while (begin < text.size() && std::string_view(" -_:#[=").find(text[begin]) != std::string_view::npos) ++begin;
  std::uint32_t rank = 0;
  const auto [end, code] = std::from_chars(text.data() + begin, text.data() + text.size(), rank);
  return code == std::errc{} && end != text.data() + begin ? std::optional(rank) : std::nullopt;
}

/// The rank of every lane, nothing for those that name none.
std::vector<std::optional<std::uint32_t>> ranks_of_lanes(const RankTrace& trace) {
  std::vector<std::optional<std::uint32_t>> ranks;
  std::map<std::string, std::uint32_t> labels;  // "[TP03]"
  for (const Lane& lane : trace.lanes) {
    if (lane.process.starts_with('[')) labels.emplace(lane.process.substr(0, lane.process.find(']')), 0);
  }
  std::uint32_t next = 0;
  for (auto& [label, rank] : labels) rank = next++;
  for (const Lane& lane : trace.lanes) {
    auto rank = number_behind_rank(lane.process);
    if (!rank) rank = number_behind_rank(lane.process_name);
    if (!rank && lane.process.starts_with('[')) rank = labels[lane.process.substr(0, lane.process.find(']'))];
    ranks.push_back(rank);
  }
  return ranks;
}

}  // namespace

std::vector<RankTrace> split_ranks(RankTrace&& trace) {
  const auto ranks = ranks_of_lanes(trace);
  std::map<std::uint32_t, std::size_t> place;
  for (const auto& rank : ranks) {
    if (rank) place.emplace(*rank, 0);
  }
  std::vector<RankTrace> parts;
  if (place.size() < 2) {
    parts.push_back(std::move(trace));
    return parts;
  }
  for (const auto& [rank, _] : place) {
    RankTrace part;
    static_cast<RankHeader&>(part) = trace;
    if (!parts.empty()) {  // counted once
      part.events = {};
      part.repairs = {};
    }
    part.rank = rank;
    if (part.world_size == 0) part.world_size = static_cast<std::uint32_t>(place.size());
    part.source = fmt::format("{} (rank {})", trace.source, rank);
    for (std::uint32_t id = 0; id < trace.names.size(); ++id) part.names.intern(trace.names.text(NameId{id}));
    part.lanes = trace.lanes;
    std::vector<bool> keep(trace.slices.size());
    for (Row row = 0; row < trace.slices.size(); ++row) {
      const auto& of_lane = ranks[base::index(trace.slices.lane[row])];
      keep[row] = of_lane ? *of_lane == rank : parts.empty();
    }
    take_rows(trace, keep, part);
    for (const Instant& instant : trace.instants) {
      const auto& of_lane = ranks[base::index(instant.lane)];
      if (of_lane ? *of_lane == rank : parts.empty()) part.instants.push_back(instant);
    }
    for (const AllocatorEvent& event : trace.allocator) {
      const auto& of_lane = ranks[base::index(event.lane)];
      if (of_lane ? *of_lane == rank : parts.empty()) part.allocator.push_back(event);
    }
    parts.push_back(std::move(part));
  }
  return parts;
}

void keep_rows(RankTrace& trace, const std::vector<bool>& keep) {
  RankTrace kept;
  kept.lanes = trace.lanes;
  take_rows(trace, keep, kept);
  trace.lanes = std::move(kept.lanes);
  trace.slices = std::move(kept.slices);
  trace.collective_args = std::move(kept.collective_args);
}

void keep_steps(RankTrace& trace, const Ranges& steps) {
  if (steps.all()) return;
  const Slices& slices = trace.slices;
  struct Window {
    std::int64_t begin, end;
  };
  std::vector<Window> windows;
  std::vector<std::int64_t> others;
  const auto step_number = [&](Row row) -> std::optional<std::int64_t> {
    if (slices.category[row] != Category::kUserAnnotation || !trace.name(row).starts_with(kStep)) return std::nullopt;
    return parse_integer(trace.name(row).substr(kStep.size())).value_or(-1);
  };
  for (Row row = 0; row < slices.size(); ++row) {
    const auto number = step_number(row);
    if (!number) continue;
    if (steps.contains(*number)) {
      windows.push_back({slices.start[row], slices.end(row)});
    } else {
      others.push_back(*number);
    }
  }
  if (windows.empty() && others.empty()) return;
  if (windows.empty()) {
    const auto [low, high] = std::minmax_element(others.begin(), others.end());
    throw Error(ErrorKind::kUsage, "--steps",
                fmt::format("{} has the steps {}-{}, none of those asked for", trace.source, *low, *high));
  }
  std::sort(windows.begin(), windows.end(), [](const Window& a, const Window& b) { return a.begin < b.begin; });
  const auto inside = [&](std::int64_t time) {
    const auto after = std::upper_bound(windows.begin(), windows.end(), time,
                                        [](std::int64_t at, const Window& window) { return at < window.begin; });
    return after != windows.begin() && time < std::prev(after)->end;
  };
  std::vector<bool> keep(slices.size());
  std::unordered_set<std::uint32_t> kept_launches, launches;
  for (Row row = 0; row < slices.size(); ++row) {
    if (slices.category[row] != Category::kRuntime || slices.correlation[row] == 0) continue;
    launches.insert(slices.correlation[row]);
    if (inside(slices.start[row])) kept_launches.insert(slices.correlation[row]);
  }
  for (Row row = 0; row < slices.size(); ++row) {
    const bool launched = is_device_work(slices.category[row]) && launches.contains(slices.correlation[row]);
    keep[row] = launched ? kept_launches.contains(slices.correlation[row]) : inside(slices.start[row]);
    if (const auto number = step_number(row)) keep[row] = steps.contains(*number);
  }
  keep_rows(trace, keep);
  std::erase_if(trace.instants, [&](const Instant& instant) { return !inside(instant.time); });
}

}  // namespace paceline::trace
