#include "paceline/diagnose/own_time.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <tuple>
#include <utility>

#include "paceline/base/statistics.h"

namespace paceline::diagnose {
namespace {

using trace::Activity;
using trace::Collective;
using trace::SlotItem;
using trace::Trace;

/// Kind, elements and number of members of a collective (of a pair, which end), and how many of them in a step.
using Part = std::tuple<trace::CollectiveKind, std::int64_t, std::uint32_t>;
using Role = std::map<Part, std::int64_t>;

/// A kernel on what it works, comparable between ranks.
using Kernel = std::tuple<std::string_view, std::string_view, std::string_view>;
struct Times {
  std::int64_t count = 0, total = 0;
  double mean() const { return static_cast<double>(total) / static_cast<double>(std::max<std::int64_t>(count, 1)); }
};

std::map<Kernel, Times> kernels_of(const trace::RankSummary& rank) {
  const auto text = [&](base::NameId id) {
    return id == base::kNone<base::NameId> ? std::string_view{} : rank.names.text(id);
  };
  std::map<Kernel, Times> kernels;
  for (const SlotItem& item : rank.slot_items) {
    if (item.activity != Activity::kCompute || item.name == base::kNone<base::NameId>) continue;
    Times& times = kernels[{text(item.name), text(item.op), text(item.shape)}];
    times.count += item.count;
    times.total += item.time;
  }
  return kernels;
}

/// Median of `sorted` with one `value` of it left out; that value where it is the only one.
double median_of_others(const std::vector<double>& sorted, double value) {
  if (sorted.size() < 2) return value;
  const auto left_out =
      static_cast<std::size_t>(std::lower_bound(sorted.begin(), sorted.end(), value) - sorted.begin());
  const auto other = [&](std::size_t i) { return sorted[i < left_out ? i : i + 1]; };
  const std::size_t count = sorted.size() - 1;
  return (other((count - 1) / 2) + other(count / 2)) / 2;
}

}  // namespace

OwnTime::OwnTime(const Trace& trace, const Diagnosis& diagnosis) : trace_(trace), diagnosis_(diagnosis) {
  find_roles();
  by_step_ =
      beyond_peers([](const StepParts& parts) { return parts.duration - parts.exposed_wait - parts.exposed_transfer; });
  host_by_step_ = beyond_peers([](const StepParts& parts) { return parts.idle_host + parts.lead; });
  excess_.reserve(by_step_.size());
  for (const std::vector<double>& excess : by_step_) excess_.push_back(excess.empty() ? 0.0 : base::mean(excess));
}

void OwnTime::find_roles() {
  std::vector<Role> roles(trace_.ranks.size());
  for (const Collective& collective : trace_.collectives) {
    // Of these every rank may have its own size.
    const bool own_size = collective.kind == trace::CollectiveKind::kAllToAll;
    for (std::uint32_t m = collective.members_begin; m < collective.members_end; ++m) {
      const trace::Member& member = trace_.members[m];
      const std::int64_t elements = own_size ? -1 : trace_.event(member).elements;
      // Which end of a pair: the first of two stages and the last have the same transfers.
      const bool pair = collective.kind == trace::CollectiveKind::kSendRecv && collective.size() == 2;
      const std::uint32_t size = pair ? m - collective.members_begin : collective.size();
      ++roles[member.rank][{collective.kind, elements, size}];
    }
  }
  std::map<Role, std::uint32_t> numbers;
  for (std::uint32_t rank = 0; rank < roles.size(); ++rank) {
    // Rounded: one that is missing in one step, or that a recording begins or ends with, makes no other role.
    const auto steps = static_cast<std::int64_t>(std::max<std::size_t>(trace_.ranks[rank].steps.size(), 1));
    Role role;
    for (const auto& [part, count] : roles[rank]) {
      if (const std::int64_t of_step = (count + steps / 2) / steps; of_step > 0) role[part] = of_step;
    }
    role_.push_back(numbers.try_emplace(role, static_cast<std::uint32_t>(numbers.size())).first->second);
  }
  ranks_of_.resize(numbers.size());
  for (std::uint32_t rank = 0; rank < role_.size(); ++rank) ranks_of_[role_[rank]].push_back(rank);
}

std::vector<std::uint32_t> OwnTime::peers(std::uint32_t rank) const {
  std::vector<std::uint32_t> peers;
  for (std::uint32_t other = 0; other < role_.size(); ++other) {
    if (other != rank && (!has_peers(rank) || same_role(rank, other))) peers.push_back(other);
  }
  return peers;
}

template <class Part>
std::vector<std::vector<double>> OwnTime::beyond_peers(Part part_of) const {
  std::vector<std::vector<double>> beyond(role_.size(), std::vector<double>(diagnosis_.step_count, 0.0));
  std::vector<double> own(role_.size());
  for (std::size_t step = 0; step < diagnosis_.step_count; ++step) {
    for (std::size_t rank = 0; rank < own.size(); ++rank) {
      const RankDiagnosis& row = diagnosis_.ranks[rank];
      own[rank] = static_cast<double>(part_of(row.steps[row.first_common + step]));
    }
    std::vector<double> all = own;
    std::sort(all.begin(), all.end());
    for (const std::vector<std::uint32_t>& ranks : ranks_of_) {
      std::vector<double> sorted;
      sorted.reserve(ranks.size());
      for (const std::uint32_t rank : ranks) sorted.push_back(own[rank]);
      std::sort(sorted.begin(), sorted.end());
      const std::vector<double>& compared = ranks.size() > 1 ? sorted : all;
      for (const std::uint32_t rank : ranks) beyond[rank][step] = own[rank] - median_of_others(compared, own[rank]);
    }
  }
  return beyond;
}

std::vector<double> OwnTime::slower_than_other_roles() const {
  std::vector<std::map<Kernel, Times>> kernels;
  kernels.reserve(trace_.ranks.size());
  for (const trace::RankSummary& rank : trace_.ranks) kernels.push_back(kernels_of(rank));
  std::map<Kernel, std::map<std::uint32_t, std::vector<double>>> means;  // by role
  for (std::uint32_t rank = 0; rank < kernels.size(); ++rank) {
    for (const auto& [kernel, times] : kernels[rank]) means[kernel][role_[rank]].push_back(times.mean());
  }
  std::vector<double> slower(role_.size(), 0.0);
  for (std::uint32_t rank = 0; rank < kernels.size(); ++rank) {
    std::vector<std::pair<double, double>> paces;  // ratio and weight
    double compared = 0, all = 0;
    for (const auto& [kernel, times] : kernels[rank]) {
      const auto weight = static_cast<double>(times.total);
      all += weight;
      std::vector<double> others;
      for (const auto& [role, of_ranks] : means[kernel]) {
        if (role != role_[rank]) others.push_back(base::median(of_ranks));
      }
      if (others.empty()) continue;
      paces.emplace_back(times.mean() / std::max(base::median(others), 1.0), weight);
      compared += weight;
    }
    if (2 * compared < all || paces.empty()) continue;
    std::sort(paces.begin(), paces.end());
    double below = 0;
    for (const auto& [pace, weight] : paces) {
      below += weight;
      if (2 * below < compared) continue;
      slower[rank] = (1.0 - 1.0 / pace) * all / static_cast<double>(std::max<std::size_t>(diagnosis_.step_count, 1));
      break;
    }
  }
  return slower;
}

}  // namespace paceline::diagnose
