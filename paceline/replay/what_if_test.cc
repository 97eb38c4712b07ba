#include "paceline/replay/what_if.h"

#include <gtest/gtest.h>

#include "paceline/base/error.h"
#include "paceline/replay/replay.h"

namespace paceline::replay {
namespace {

using namespace taskgraph;

std::string refusal(std::string_view text) {
  try {
    parse_edit(text);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUsage);
    return error.what();
  }
  return "accepted";
}

/// Two ranks: a host operator in "load_batch", a kernel of "aten::mm", an all-reduce.
TaskGraph small_job() {
  Builder builder;
  const CollectiveId reduce = builder.add_collective(
      {.name = builder.intern("all_reduce"), .group = builder.intern("0-1 as dp"), .bytes = 1000, .transfer = 100});
  for (std::uint32_t r = 0; r < 2; ++r) {
    const LaneId host = builder.add_lane({.rank = r}), stream = builder.add_lane({.rank = r, .device = true});
    const TaskId load = builder.add_task({.duration = 50,
                                          .lane = host,
                                          .name = builder.intern("aten::copy_"),
                                          .scope = builder.intern("load_batch|aten::copy_"),
                                          .kind = TaskKind::kHost});
    const TaskId kernel = builder.add_task({.duration = 1000,
                                            .lane = stream,
                                            .name = builder.intern("sgemm_128x64"),
                                            .scope = builder.intern("layers.3|aten::mm"),
                                            .kind = TaskKind::kCompute});
    builder.add_edge(load, kernel);
    builder.add_member(reduce, builder.add_task({.lane = stream, .kind = TaskKind::kCollective}));
  }
  return std::move(builder).build();
}

std::int64_t makespan_with(const std::vector<std::string>& texts) {
  const TaskGraph graph = small_job();
  std::vector<Edit> edits;
  for (const std::string& text : texts) edits.push_back(parse_edit(text));
  return replay(graph, delta_of(graph, edits)).makespan;
}

TEST(WhatIf, ChangesWhatTheTargetNames) {
  EXPECT_EQ(makespan_with({}), 1150);
  EXPECT_EQ(makespan_with({"kernel:*gemm*=x0.5"}), 650);
  EXPECT_EQ(makespan_with({"kernel:*gemm*@1=x0.5"}), 1150);  // the other rank still comes late
  EXPECT_EQ(makespan_with({"op:aten::mm=+1us"}), 2150);
  EXPECT_EQ(makespan_with({"span:layers.*=0"}), 150);
  EXPECT_EQ(makespan_with({"host:load_batch=0"}), 1100);
  EXPECT_EQ(makespan_with({"link:*=x2"}), 1100);  // twice the bandwidth
  EXPECT_EQ(makespan_with({"link:all_reduce=30ns"}), 1080);
  EXPECT_EQ(makespan_with({"rank:0=x2"}), 50 * 2 + 2000 + 100);
  EXPECT_EQ(makespan_with({"ranks=4"}), 1050 + 150);  // a ring of 4 moves 3/4 of the bytes twice, one of 2 moves 1/2
}

TEST(WhatIf, LaterEditsSeeWhatEarlierOnesLeft) {
  EXPECT_EQ(makespan_with({"kernel:*=x0.5", "kernel:*=x0.5"}), 50 + 250 + 100);
  EXPECT_EQ(makespan_with({"kernel:*=100ns", "span:layers.3=+1us"}), 50 + 1100 + 100);
}

TEST(WhatIf, DurationsDoNotFallBelowNothing) {
  EXPECT_EQ(makespan_with({"kernel:*=-1ms"}), 150);
}

TEST(WhatIf, SaysWhatIsWrong) {
  EXPECT_NE(refusal("kernel:*gemm*").find("has no value"), std::string::npos);
  EXPECT_NE(refusal("kernle:*=x2").find("kernel, op, span"), std::string::npos);
  EXPECT_NE(refusal("kernel=x2").find("needs a pattern"), std::string::npos);
  EXPECT_NE(refusal("launch:*=x0").find("takes no pattern"), std::string::npos);
  EXPECT_NE(refusal("kernel:*=5").find("no unit"), std::string::npos);
  EXPECT_NE(refusal("kernel:*=xfast").find("'fast' is no number"), std::string::npos);
  EXPECT_NE(refusal("kernel:*@x=x2").find("--set"), std::string::npos);
  EXPECT_NE(refusal("link:*=x0").find("above 0"), std::string::npos);
  EXPECT_NE(refusal("ranks=1").find("from 2 on"), std::string::npos);
}

TEST(WhatIf, NamesWhatThereIsWhenNothingMatches) {
  const TaskGraph graph = small_job();
  try {
    delta_of(graph, parse_edit("kernel:*conv*=x2"));
    FAIL() << "nothing is called so";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("sgemm_128x64"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace paceline::replay
