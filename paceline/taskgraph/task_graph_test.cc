#include "paceline/taskgraph/task_graph.h"

#include <gtest/gtest.h>

#include "paceline/base/error.h"
#include "paceline/taskgraph/delta.h"

namespace paceline::taskgraph {
namespace {

std::string message_of(Builder&& builder) {
  try {
    std::move(builder).build();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kBadInput);
    return error.what();
  }
  return "no error";
}

TEST(TaskGraph, NamesTheTasksOfACircle) {
  Builder builder;
  const TaskId a = builder.add_task({.name = builder.intern("forward")});
  const TaskId b = builder.add_task({.name = builder.intern("backward")});
  const TaskId c = builder.add_task({.name = builder.intern("innocent")});
  builder.add_edge(a, b), builder.add_edge(b, a), builder.add_edge(b, c);
  const std::string message = message_of(std::move(builder));
  EXPECT_NE(message.find("forward"), std::string::npos) << message;
  EXPECT_NE(message.find("backward"), std::string::npos) << message;
  EXPECT_EQ(message.find("innocent"), std::string::npos) << message;
}

TEST(TaskGraph, SeesThatTwoLanesMeetInDifferentOrder) {
  // Rank 0 calls all-reduce, then all-gather; rank 1 the other way round: both wait for ever.
  Builder builder;
  const LaneId a = builder.add_lane({.rank = 0}), b = builder.add_lane({.rank = 1});
  const CollectiveId reduce = builder.add_collective({}), gather = builder.add_collective({});
  const auto add = [&](LaneId lane, CollectiveId collective, const char* name) {
    builder.add_member(collective, builder.add_task({.lane = lane, .name = builder.intern(name)}));
  };
  add(a, reduce, "reduce on 0"), add(a, gather, "gather on 0");
  add(b, gather, "gather on 1"), add(b, reduce, "reduce on 1");
  const std::string message = message_of(std::move(builder));
  for (const char* name : {"reduce on 0", "gather on 0", "gather on 1", "reduce on 1"}) {
    EXPECT_NE(message.find(name), std::string::npos) << message;
  }
}

TEST(TaskGraph, RefusesWhatItCannotMean) {
  {
    Builder builder;
    builder.add_task({.duration = -1});
    EXPECT_NE(message_of(std::move(builder)).find("-1 ns"), std::string::npos);
  }
  {
    Builder builder;
    builder.add_edge(builder.add_task({}), static_cast<TaskId>(7));
    EXPECT_NE(message_of(std::move(builder)).find("0 -> 7"), std::string::npos);
  }
  {
    Builder builder;
    const TaskId task = builder.add_task({});
    builder.add_member(builder.add_collective({}), task);
    builder.add_member(builder.add_collective({}), task);
    EXPECT_NE(message_of(std::move(builder)).find("collectives 0 and 1"), std::string::npos);
  }
}

TEST(TaskGraph, OrderPutsEveryTaskBehindWhatItWaitsFor) {
  Builder builder;
  const LaneId lane = builder.add_lane({});
  const TaskId last = builder.add_task({});
  const TaskId first = builder.add_task({.lane = lane}), second = builder.add_task({.lane = lane});
  builder.add_edge(second, last);
  const TaskGraph graph = std::move(builder).build();
  EXPECT_EQ(std::vector<TaskId>(graph.topological_order().begin(), graph.topological_order().end()),
            (std::vector<TaskId>{first, second, last}));
  EXPECT_EQ(graph.before(second), first);
  EXPECT_EQ(graph.after(first), second);
}

TEST(Delta, InsertsDirectlyBehindAndForgetsWhatIsRemoved) {
  Builder builder;
  const LaneId lane = builder.add_lane({});
  const TaskId a = builder.add_task({.duration = 1, .lane = lane}), b = builder.add_task({.duration = 2, .lane = lane}),
               c = builder.add_task({.duration = 3, .lane = lane});
  builder.add_edge(a, c);
  const TaskGraph graph = std::move(builder).build();
  Delta delta;
  delta.removed = {b};
  delta.added = {{.task = {.duration = 10, .lane = lane}, .behind = b},
                 {.task = {.duration = 20, .lane = lane}, .behind = b}};
  const TaskGraph edited = apply(graph, delta);
  const auto first = static_cast<TaskId>(3), second = static_cast<TaskId>(4);
  EXPECT_EQ(std::vector<TaskId>(edited.tasks_of(lane).begin(), edited.tasks_of(lane).end()),
            (std::vector<TaskId>{a, second, first, c}));
  EXPECT_EQ(edited.duration(b), 0);
  EXPECT_EQ(edited.predecessors(c).size(), 1u);
}

TEST(Delta, RefusesToRemoveWhatIsNotThere) {
  Builder builder;
  builder.add_task({}), builder.add_task({});
  const TaskGraph graph = std::move(builder).build();
  Delta edge, twice;
  edge.removed_edges.push_back({TaskId{0}, TaskId{1}});
  twice.removed = {TaskId{1}, TaskId{1}};
  EXPECT_THROW(apply(graph, edge), Error);
  EXPECT_THROW(apply(graph, twice), Error);
}

}  // namespace
}  // namespace paceline::taskgraph
