#include "paceline/replay/random_graph.h"

#include <algorithm>

namespace paceline::replay {

using base::kNone;
using base::Rng;
using namespace taskgraph;

namespace {

std::int64_t random_duration(Rng& rng, std::int64_t shortest) {
  return rng.chance(0.25) ? shortest : rng.between(1, 9);
}

std::uint32_t below(Rng& rng, std::size_t bound) {
  return static_cast<std::uint32_t>(rng.below(bound));
}

}  // namespace

TaskGraph random_graph(Rng& rng, const RandomGraphOptions& options) {
  Builder builder;
  const std::uint32_t lanes = 1 + below(rng, 4);
  for (std::uint32_t l = 0; l < lanes; ++l) {
    Lane lane;
    lane.rank = l;
    if (!options.only_static) lane.order = static_cast<LaneOrder>(rng.below(3));
    builder.add_lane(lane);
  }
  const std::uint32_t resources = options.only_static ? 0 : below(rng, 3);
  for (std::uint32_t r = 0; r < resources; ++r) builder.add_resource({"", static_cast<Service>(rng.below(3))});
  const auto some_resource = [&] {
    return resources == 0 || rng.chance(0.5) ? kNone<ResourceId> : static_cast<ResourceId>(rng.below(resources));
  };

  // Edges lead from lower to higher ids and collectives take one new task per lane, so that most graphs have no circle;
  // members on lanes in recorded order meet in the same order everywhere.
  const std::uint32_t wanted = 1 + below(rng, options.max_tasks);
  while (builder.size() < wanted) {
    const auto new_task = [&](LaneId lane, bool member) {
      Task task;
      task.lane = lane;
      task.duration = member && rng.chance(0.7) ? options.shortest : random_duration(rng, options.shortest);
      task.priority = static_cast<std::int32_t>(rng.below(3));
      if (!member) task.resource = some_resource();
      const TaskId id = builder.add_task(task);
      return id;
    };
    const std::uint32_t first = builder.size();
    if (rng.chance(0.25)) {
      const CollectiveId collective =
          builder.add_collective({.transfer = random_duration(rng, options.shortest), .resource = some_resource()});
      for (std::uint32_t l = 0; l < lanes; ++l) {
        if (rng.chance(0.6) || builder.size() == first)
          builder.add_member(collective, new_task(static_cast<LaneId>(l), true));
      }
    } else {
      new_task(rng.chance(0.15) ? kNone<LaneId> : static_cast<LaneId>(rng.below(lanes)), false);
    }
    for (std::uint32_t id = first; id < builder.size() && first > 0; ++id) {
      for (std::uint64_t e = rng.below(3); e-- > 0;)
        builder.add_edge(static_cast<TaskId>(rng.below(first)), static_cast<TaskId>(id));
    }
  }
  return std::move(builder).build();
}

Delta random_edit(Rng& rng, const TaskGraph& graph, const RandomGraphOptions& options) {
  Delta delta;
  const auto some_task = [&] { return static_cast<TaskId>(rng.below(graph.size())); };
  for (std::uint64_t i = rng.below(3); i-- > 0;)
    delta.durations.emplace_back(some_task(), random_duration(rng, options.shortest));
  if (!graph.collectives().empty() && rng.chance(0.3)) {
    delta.transfers.emplace_back(static_cast<CollectiveId>(rng.below(graph.collectives().size())),
                                 random_duration(rng, options.shortest));
  }
  if (rng.chance(0.3)) return delta;
  for (std::uint64_t i = rng.below(3); i-- > 0;) {
    const TaskId task = some_task();
    if (std::find(delta.removed.begin(), delta.removed.end(), task) == delta.removed.end())
      delta.removed.push_back(task);
  }
  if (rng.chance(0.3)) {
    const TaskId task = some_task();
    if (!graph.predecessors(task).empty()) {
      delta.removed_edges.push_back({graph.predecessors(task)[rng.below(graph.predecessors(task).size())], task});
    }
  }
  const auto add = [&](LaneId lane) {
    Delta::AddedTask added;
    added.task.lane = lane;
    added.task.duration = random_duration(rng, options.shortest);
    if (lane != kNone<LaneId> && !graph.tasks_of(lane).empty() && rng.chance(0.8)) {
      added.behind = graph.tasks_of(lane)[rng.below(graph.tasks_of(lane).size())];
    }
    delta.added.push_back(added);
    return static_cast<TaskId>(graph.size() + delta.added.size() - 1);
  };
  if (rng.chance(0.3)) {
    Delta::AddedCollective collective;
    collective.collective.transfer = random_duration(rng, options.shortest);
    for (std::uint32_t l = 0; l < graph.lanes().size(); ++l) {
      if (rng.chance(0.6) || collective.members.empty()) collective.members.push_back(add(static_cast<LaneId>(l)));
    }
    delta.collectives.push_back(std::move(collective));
  }
  for (std::uint64_t i = rng.below(3); i-- > 0;) {
    add(rng.chance(0.2) ? kNone<LaneId> : static_cast<LaneId>(rng.below(graph.lanes().size())));
  }
  const std::size_t all = graph.size() + delta.added.size();
  for (std::uint64_t i = rng.below(3); i-- > 0;) {
    const auto a = static_cast<TaskId>(rng.below(all)), b = static_cast<TaskId>(rng.below(all));
    if (a != b) delta.added_edges.push_back({std::min(a, b), std::max(a, b)});
  }
  return delta;
}

TaskGraph large_graph(std::uint32_t tasks) {
  Builder builder;
  Rng rng(1);
  constexpr std::uint32_t kRanks = 8;
  std::vector<LaneId> host, compute, communication;
  for (std::uint32_t r = 0; r < kRanks; ++r) {
    host.push_back(builder.add_lane({.rank = r}));
    compute.push_back(builder.add_lane({.rank = r, .device = true}));
    communication.push_back(builder.add_lane({.rank = r, .device = true}));
  }
  std::vector<TaskId> kernel(kRanks);
  while (builder.size() < tasks) {
    for (int k = 0; k < 40; ++k) {
      for (std::uint32_t r = 0; r < kRanks; ++r) {
        const TaskId launch = builder.add_task({.duration = rng.between(2'000, 9'000), .lane = host[r]});
        const TaskId delay = builder.add_task({.duration = 5'000});
        kernel[r] = builder.add_task({.duration = rng.between(2'000, 20'000), .lane = compute[r]});
        builder.add_edge(launch, delay), builder.add_edge(delay, kernel[r]);
      }
    }
    const CollectiveId collective = builder.add_collective({.transfer = 100'000});
    for (std::uint32_t r = 0; r < kRanks; ++r) {
      const TaskId member = builder.add_task({.lane = communication[r]});
      builder.add_edge(kernel[r], member);
      builder.add_member(collective, member);
    }
  }
  return std::move(builder).build();
}

}  // namespace paceline::replay
