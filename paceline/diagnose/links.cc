#include "paceline/diagnose/links.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "paceline/base/statistics.h"

namespace paceline::diagnose {
namespace {

using trace::Collective;
using trace::Trace;

constexpr double kSlower = 1.25;

/// What makes two collectives comparable.
using Signature = std::tuple<trace::CollectiveKind, std::int64_t, std::uint32_t>;

std::vector<std::uint32_t> ranks_of(const Trace& trace, const Collective& collective) {
  std::vector<std::uint32_t> ranks;
  for (std::uint32_t m = collective.members_begin; m < collective.members_end; ++m) {
    ranks.push_back(trace.members[m].rank);
  }
  return ranks;
}

/// Where the traffic of the slow groups runs, by the hosts of their ranks and the ranks' places on their hosts.
void find_scope(const Trace& trace, const std::vector<std::vector<std::uint32_t>>& groups, SlowLinks& links) {
  std::map<std::string, std::vector<std::uint32_t>> local;  // ranks of each host, in order
  for (std::uint32_t i = 0; i < trace.ranks.size(); ++i) local[trace.ranks[i].host].push_back(i);
  const bool several_places =
      std::any_of(local.begin(), local.end(), [](const auto& host) { return host.second.size() > 1; });
  std::set<std::size_t> places;
  std::set<std::string> hosts;
  bool inside = true, one_place_each = true;
  for (const auto& ranks : groups) {
    std::set<std::string> of_group;
    std::set<std::size_t> places_of_group;
    for (const std::uint32_t rank : ranks) {
      const std::string& host = trace.ranks[rank].host;
      if (host.empty()) return;
      const auto& here = local[host];
      of_group.insert(host);
      places_of_group.insert(static_cast<std::size_t>(std::find(here.begin(), here.end(), rank) - here.begin()));
    }
    inside = inside && of_group.size() == 1;
    one_place_each = one_place_each && places_of_group.size() == 1;
    places.insert(places_of_group.begin(), places_of_group.end());
    hosts.insert(of_group.begin(), of_group.end());
  }
  links.known_hosts = true;
  if (inside) {
    links.scope = Fault::kLinkIntra;
    links.where = fmt::format("inside host {}", fmt::join(hosts, ", "));
  } else if (one_place_each && places.size() == 1 && several_places) {
    links.scope = Fault::kLinkRail;
    links.where = fmt::format("rail {}", *places.begin());
  } else {
    links.scope = Fault::kLinkInter;
    links.where = fmt::format("between {}", fmt::join(hosts, ", "));
  }
}

}  // namespace

std::optional<SlowLinks> find_slow_links(const Trace& trace, std::size_t steps) {
  std::map<Signature, std::map<std::uint32_t, std::vector<double>>> transfers;
  std::map<std::uint32_t, const Collective*> example;
  for (const Collective& collective : trace.collectives) {
    if (collective.size() < 2 || collective.transfer <= 0) continue;
    const std::int64_t elements = trace.event(trace.members[collective.members_begin]).elements;
    transfers[{collective.kind, elements, collective.size()}][collective.group].push_back(
        static_cast<double>(collective.transfer));
    example.emplace(collective.group, &collective);
  }
  struct Sum {
    double excess = 0, own = 0, expected = 0;
  };
  std::map<std::uint32_t, Sum> sums;
  for (const auto& [signature, groups] : transfers) {
    if (groups.size() < 2) continue;
    std::map<std::uint32_t, double> medians;
    for (const auto& [group, times] : groups) medians[group] = base::median(times);
    for (const auto& [group, median] : medians) {
      std::vector<double> others;
      for (const auto& [other, theirs] : medians) {
        if (other != group) others.push_back(theirs);
      }
      const double expected = base::median(others);
      const auto count = static_cast<double>(groups.at(group).size());
      Sum& sum = sums[group];
      sum.own += median * count;
      sum.expected += expected * count;
      sum.excess += (median - expected) * count;
    }
  }
  const auto is_slow = [](const Sum& sum) { return sum.expected > 0 && sum.own >= kSlower * sum.expected; };
  std::optional<std::uint32_t> slowest;
  for (const auto& [group, sum] : sums) {
    if (is_slow(sum) && (!slowest || sum.excess > sums[*slowest].excess)) slowest = group;
  }
  if (!slowest) return std::nullopt;
  SlowLinks links;
  std::vector<std::vector<std::uint32_t>> groups;
  for (const auto& [group, sum] : sums) {
    if (is_slow(sum) && 3 * sum.excess >= sums[*slowest].excess) groups.push_back(ranks_of(trace, *example[group]));
  }
  links.group = trace.groups[*slowest];
  for (const std::uint32_t rank : ranks_of(trace, *example[*slowest])) links.ranks.push_back(*trace.ranks[rank].rank);
  links.groups = groups.size();
  links.ratio = sums[*slowest].own / sums[*slowest].expected;
  links.cost = static_cast<std::int64_t>(sums[*slowest].excess / static_cast<double>(std::max<std::size_t>(steps, 1)));
  find_scope(trace, groups, links);
  return links;
}

}  // namespace paceline::diagnose
