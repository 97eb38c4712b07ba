#include "paceline/replay/replay.h"

#include <algorithm>

#include "paceline/base/error.h"

namespace paceline::replay {
namespace {

using base::kNone;

/// The pass in topological order over K variants; `start` may be null. K is a template argument so that the inner loops
/// become vector instructions.
template <std::size_t K>
void pass(const TaskGraph& graph, const std::int64_t* durations, const std::int64_t* transfers, std::int64_t* start,
          std::int64_t* end, std::int64_t* transfer_start) {
  std::vector<std::uint32_t> absent(graph.collectives().size());
  for (std::uint32_t c = 0; c < absent.size(); ++c) {
    absent[c] = static_cast<std::uint32_t>(graph.members(static_cast<CollectiveId>(c)).size());
  }
  std::vector<std::int64_t> arrived(absent.size() * K, 0);
  for (const TaskId task : graph.topological_order()) {
    const std::size_t at = index(task) * K;
    std::int64_t ready[K] = {};
    const auto wait_for = [&](TaskId other) {
      const std::int64_t* const ended = end + index(other) * K;
      for (std::size_t k = 0; k < K; ++k) ready[k] = std::max(ready[k], ended[k]);
    };
    if (graph.before(task) != kNone<TaskId>) wait_for(graph.before(task));
    for (const TaskId predecessor : graph.predecessors(task)) wait_for(predecessor);
    if (start != nullptr) std::copy(ready, ready + K, start + at);
    const CollectiveId collective = graph.collective(task);
    if (collective == kNone<CollectiveId>) {
      for (std::size_t k = 0; k < K; ++k) end[at + k] = ready[k] + durations[at + k];
      continue;
    }
    const std::size_t c = index(collective) * K;
    for (std::size_t k = 0; k < K; ++k) arrived[c + k] = std::max(arrived[c + k], ready[k]);
    if (--absent[index(collective)] > 0) continue;
    if (transfer_start != nullptr) std::copy(&arrived[c], &arrived[c] + K, transfer_start + c);
    for (const TaskId member : graph.members(collective)) {
      const std::size_t m = index(member) * K;
      for (std::size_t k = 0; k < K; ++k) end[m + k] = arrived[c + k] + transfers[c + k] + durations[m + k];
    }
  }
}

template <std::size_t K>
void pass_variants(const TaskGraph& graph, const Variants& variants, VariantEnds& ends) {
  pass<K>(graph, variants.durations.data(), variants.transfers.data(), nullptr, ends.end.data(), nullptr);
  std::int64_t makespan[K] = {};
  for (std::size_t i = 0; i < ends.end.size(); i += K) {
    for (std::size_t k = 0; k < K; ++k) makespan[k] = std::max(makespan[k], ends.end[i + k]);
  }
  ends.makespan.assign(makespan, makespan + K);
}

}  // namespace

Timeline replay(const TaskGraph& graph) {
  if (!graph.is_static()) return replay_by_events(graph);
  Timeline timeline;
  timeline.start.resize(graph.size());
  timeline.end.resize(graph.size());
  timeline.transfer_start.assign(graph.collectives().size(), -1);
  std::vector<std::int64_t> transfers;
  for (const taskgraph::Collective& collective : graph.collectives()) transfers.push_back(collective.transfer);
  pass<1>(graph, graph.durations().data(), transfers.data(), timeline.start.data(), timeline.end.data(),
          timeline.transfer_start.data());
  for (const std::int64_t end : timeline.end) timeline.makespan = std::max(timeline.makespan, end);
  return timeline;
}

Timeline replay(const TaskGraph& graph, const Delta& delta) {
  return replay(taskgraph::apply(graph, delta));
}

Variants Variants::of(const TaskGraph& graph, std::size_t count) {
  Variants variants;
  variants.count = count;
  variants.durations.reserve(graph.size() * count);
  for (const std::int64_t duration : graph.durations()) {
    variants.durations.insert(variants.durations.end(), count, duration);
  }
  for (const taskgraph::Collective& collective : graph.collectives()) {
    variants.transfers.insert(variants.transfers.end(), count, collective.transfer);
  }
  return variants;
}

void replay_variants(const TaskGraph& graph, const Variants& variants, VariantEnds& ends) {
  PL_CHECK(graph.is_static());
  const std::size_t count = variants.count;
  PL_CHECK(variants.durations.size() == graph.size() * count);
  PL_CHECK(variants.transfers.size() == graph.collectives().size() * count);
  ends.end.resize(graph.size() * count);
  ends.makespan.assign(count, 0);
  switch (count) {
    case 1:
      return pass_variants<1>(graph, variants, ends);
    case 2:
      return pass_variants<2>(graph, variants, ends);
    case 4:
      return pass_variants<4>(graph, variants, ends);
    case 8:
      return pass_variants<8>(graph, variants, ends);
    default:
      throw Error(ErrorKind::kBug, "replay", "the number of variants is 1, 2, 4 or 8");
  }
}

}  // namespace paceline::replay
