#include "paceline/diagnose/links.h"

#include <fmt/core.h>

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

/// Where the group's traffic runs, by the hosts of its ranks.
std::string scope_of(const Trace& trace, const std::vector<std::uint32_t>& ranks) {
  std::set<std::string> hosts;
  std::map<std::string, std::vector<std::uint32_t>> local;  // ranks of each host, in order
  for (std::uint32_t i = 0; i < trace.ranks.size(); ++i) local[trace.ranks[i].host].push_back(i);
  std::set<std::size_t> places;
  for (const std::uint32_t rank : ranks) {
    const std::string& host = trace.ranks[rank].host;
    if (host.empty()) return "";
    hosts.insert(host);
    const auto& here = local[host];
    places.insert(static_cast<std::size_t>(std::find(here.begin(), here.end(), rank) - here.begin()));
  }
  if (hosts.size() == 1) return "inside one host";
  if (hosts.size() == ranks.size() && places.size() == 1) return fmt::format("rail {}", *places.begin());
  return "between hosts";
}

}  // namespace

std::vector<SlowLink> find_slow_links(const Trace& trace, std::size_t steps) {
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
  std::vector<SlowLink> slow;
  for (const auto& [group, sum] : sums) {
    if (sum.expected <= 0 || sum.own < kSlower * sum.expected) continue;
    const std::vector<std::uint32_t> ranks = ranks_of(trace, *example[group]);
    SlowLink link;
    link.group = trace.groups[group];
    for (const std::uint32_t rank : ranks) link.ranks.push_back(*trace.ranks[rank].rank);
    link.scope = scope_of(trace, ranks);
    link.ratio = sum.own / sum.expected;
    link.cost = static_cast<std::int64_t>(sum.excess / static_cast<double>(std::max<std::size_t>(steps, 1)));
    slow.push_back(std::move(link));
  }
  std::stable_sort(slow.begin(), slow.end(), [](const SlowLink& a, const SlowLink& b) { return a.cost > b.cost; });
  return slow;
}

}  // namespace paceline::diagnose
