#include "paceline/trace/chakra/chakra.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <set>
#include <tuple>

#include "paceline/base/file.h"
#include "paceline/base/rng.h"

namespace paceline::trace::chakra {
namespace {

RankTrace read_text(std::string_view text) {
  const auto source = base::memory_source(text);
  return read_document("memory", *source);
}

Node node(std::uint64_t id, std::string name, std::int64_t thread, std::uint64_t duration,
          std::vector<std::uint64_t> after = {}) {
  Node node;
  node.id = id;
  node.name = std::move(name);
  node.type = NodeType::kCompute;
  node.data = std::move(after);
  node.duration_us = duration;
  node.attributes = {Attribute::of_bool("is_cpu_op", true), Attribute::of_int("tid", thread)};
  return node;
}

using Times = std::map<std::string, std::pair<std::int64_t, std::int64_t>>;  // start and end, us

Times times(const RankTrace& trace) {
  Times all;
  for (Row row = 0; row < trace.slices.size(); ++row) {
    all[std::string(trace.name(row))] = {trace.slices.start[row] / 1000, trace.slices.end(row) / 1000};
  }
  return all;
}

TEST(Chakra, ReadsWhatItWrote) {
  constexpr std::uint64_t kSeed = 3;
  base::Rng rng(kSeed);
  const auto text = [&] { return std::string(rng.below(6), static_cast<char>('a' + rng.below(26))); };
  for (int round = 0; round < 300; ++round) {
    ExecutionTrace trace;
    trace.version = text();
    trace.metadata = {Attribute::of_text("schema", "1.0.1"), Attribute::of_int("pid", -5)};
    for (std::uint64_t id = 0; id < rng.below(20); ++id) {
      Node one =
          node(rng.below(2) == 0 ? id : ~id, text(), static_cast<std::int64_t>(rng.below(9)) - 4, rng.below(1000));
      one.type = static_cast<NodeType>(rng.below(11));
      for (std::uint64_t i = 0; i < rng.below(4); ++i) one.control.push_back(rng.below(1u << 30));
      for (std::uint64_t i = 0; i < rng.below(4); ++i) one.data.push_back(rng.below(1u << 30));
      one.start_us = rng.below(1u << 30);
      one.inputs = {text(), text(), text()};
      one.outputs.types = text();
      one.attributes.push_back(Attribute::of_text("name", text()));
      one.attributes.push_back({"fixed64", {21, WireType::kFixed64, rng.below(1u << 30) << 33, {}}, {}});
      one.attributes.push_back({"fixed32", {19, WireType::kFixed32, rng.below(1u << 30), {}}, {}});
      trace.nodes.push_back(std::move(one));
    }
    const ExecutionTrace back = parse(serialise(trace));
    EXPECT_EQ(back, trace) << "seed " << kSeed << " round " << round;
    EXPECT_EQ(back.broken_nodes, 0u);
    EXPECT_FALSE(back.cut);
  }
}

// protobuf.dev/programming-guides/encoding: sint32 and sint64 are zigzag, negative int32 and int64 ten bytes.
TEST(Chakra, ReadsEveryKindOfWholeNumber) {
  const auto value = [](std::uint32_t field, WireType type, std::uint64_t raw) {
    return Attribute{"x", {field, type, raw, {}}, {}}.integer();
  };
  const auto minus_two = static_cast<std::uint64_t>(std::int64_t{-2});
  for (const std::uint32_t field : {7u, 9u}) EXPECT_EQ(value(field, WireType::kVarint, minus_two), -2);
  for (const std::uint32_t field : {15u, 17u}) EXPECT_EQ(value(field, WireType::kVarint, 3), -2);
  for (const std::uint32_t field : {15u, 17u}) EXPECT_EQ(value(field, WireType::kVarint, 4), 2);
  EXPECT_EQ(value(23, WireType::kFixed32, 0xFFFFFFFE), -2);
  EXPECT_EQ(value(25, WireType::kFixed64, minus_two), -2);
  EXPECT_EQ(value(11, WireType::kVarint, 7), 7);
  EXPECT_EQ(value(27, WireType::kVarint, 1), 1);
  EXPECT_EQ(value(3, WireType::kFixed64, 7), std::nullopt);  // a double
}

TEST(Chakra, WithoutStartsRunsEachAsEarlyAsItsDependenciesAndItsLaneAllow) {
  ExecutionTrace trace;
  // d stands before what it depends on; b and c share a lane; e waits for both.
  trace.nodes = {node(5, "d", 3, 10, {2}), node(1, "a", 1, 100), node(2, "b", 2, 50, {1}), node(3, "c", 2, 20, {1}),
                 node(4, "e", 1, 5, {2, 3})};
  const RankTrace read = read_text(serialise(trace));
  EXPECT_EQ(times(read),
            (Times{{"a", {0, 100}}, {"b", {100, 150}}, {"c", {150, 170}}, {"d", {150, 160}}, {"e", {170, 175}}}));
  EXPECT_EQ(read.repairs.count(Repair::kInferredTime), 5);
  EXPECT_FALSE(read.repairs.lost_data());
}

TEST(Chakra, BreaksCirclesOfDependenciesAtTheFirstInTheFile) {
  ExecutionTrace trace;
  trace.nodes = {node(1, "a", 1, 10, {1}), node(2, "b", 1, 10, {3}), node(3, "c", 2, 10, {2})};
  EXPECT_EQ(times(read_text(serialise(trace))), (Times{{"a", {0, 10}}, {"b", {10, 20}}, {"c", {20, 30}}}));
}

TEST(Chakra, TakesRecordedStartsAsTheyAre) {
  ExecutionTrace trace;
  trace.nodes = {node(1, "a", 1, 10), node(2, "b", 1, 10, {1})};
  trace.nodes[0].start_us = 1000;
  trace.nodes[1].start_us = 1500;
  const RankTrace read = read_text(serialise(trace));
  EXPECT_EQ(times(read), (Times{{"a", {1000, 1010}}, {"b", {1500, 1510}}}));
  EXPECT_FALSE(read.repairs.any());
}

constexpr std::string_view kKineto = R"({"baseTimeNanoseconds":1700000000000000000,
"distributedInfo":{"backend":"nccl","rank":3,"world_size":8},"traceEvents":[
{"ph":"X","cat":"user_annotation","name":"ProfilerStep#1","pid":7,"tid":7,"ts":0.5,"dur":900.125},
{"ph":"X","cat":"cpu_op","name":"aten::mm","pid":7,"tid":7,"ts":1,"dur":100,"args":{"Input Dims":[[2,3],[3,4]]}},
{"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":7,"tid":7,"ts":10,"dur":5,"args":{"correlation":11}},
{"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":7,"tid":7,"ts":20,"dur":5,"args":{"correlation":12}},
{"ph":"X","cat":"kernel","name":"gemm","pid":0,"tid":7,"ts":30.001,"dur":50,"args":{"correlation":11}},
{"ph":"X","cat":"kernel","name":"relu","pid":0,"tid":7,"ts":90,"dur":2,"args":{"correlation":12}},
{"ph":"X","cat":"kernel","name":"ncclDevKernel_AllReduce_Sum_f32_RING_LL","pid":0,"tid":20,"ts":100,"dur":60,"args":{
 "Collective name":"allreduce","In msg nelems":1000,"Out msg nelems":1000,"Group size":8,"dtype":"Float",
 "Process Group Name":"0","Process Group Ranks":"[0, 1, 2, 3, 4, 5, 6, 7]","Seq":5}},
{"ph":"X","cat":"gpu_memcpy","name":"Memcpy HtoD","pid":0,"tid":7,"ts":200,"dur":3}
]})";

TEST(Chakra, OfARecordedRankKeepsEverySliceToTheNanosecond) {
  const RankTrace before = read_text(kKineto);
  const ExecutionTrace trace = from_rank(before);
  const RankTrace after = read_text(serialise(trace));
  EXPECT_EQ(after.format, "Chakra");
  EXPECT_EQ(after.rank, before.rank);
  EXPECT_EQ(after.world_size, before.world_size);
  EXPECT_EQ(after.backend, before.backend);
  EXPECT_FALSE(after.repairs.any());
  ASSERT_EQ(after.slices.size(), before.slices.size());
  const auto fact = [](const RankTrace& from, Row row) {
    const Lane& lane = from.lanes[base::index(from.slices.lane[row])];
    const NameId shapes = from.slices.shapes[row];
    return std::tuple(std::string(from.name(row)), lane.process, lane.thread, lane.device, from.slices.start[row],
                      from.slices.duration[row], from.slices.category[row], from.slices.correlation[row],
                      std::string(shapes == base::kNone<NameId> ? "" : from.names.text(shapes)));
  };
  for (Row row = 0; row < before.slices.size(); ++row) EXPECT_EQ(fact(after, row), fact(before, row));
  ASSERT_EQ(after.collective_args.size(), 1u);
  const CollectiveArgs &a = after.collective_args[0], &b = before.collective_args[0];
  EXPECT_EQ(after.name(a.row), before.name(b.row));
  EXPECT_EQ(after.names.text(a.collective), before.names.text(b.collective));
  EXPECT_EQ(after.names.text(a.group), before.names.text(b.group));
  EXPECT_EQ(after.names.text(a.group_ranks), before.names.text(b.group_ranks));
  EXPECT_EQ(after.names.text(a.dtype), before.names.text(b.dtype));
  EXPECT_EQ(std::tuple(a.in_elements, a.out_elements, a.sequence, a.group_size),
            std::tuple(b.in_elements, b.out_elements, b.sequence, b.group_size));
}

TEST(Chakra, WritesWhatSimulatorsNeed) {
  const RankTrace rank = read_text(kKineto);
  const ExecutionTrace trace = from_rank(rank);
  std::map<std::string, const Node*> named;
  std::set<std::uint64_t> ids;
  for (const Node& one : trace.nodes) {
    named[one.name] = &one;
    EXPECT_TRUE(ids.insert(one.id).second);
  }
  const Node& collective = *named["ncclDevKernel_AllReduce_Sum_f32_RING_LL"];
  EXPECT_EQ(collective.type, NodeType::kCollective);
  EXPECT_EQ(collective.integer("comm_type"), 0);  // ALL_REDUCE
  EXPECT_EQ(collective.integer("comm_size"), 4000);
  EXPECT_EQ(collective.text("pg_name"), "0");
  EXPECT_EQ(collective.integer("is_cpu_op"), 0);
  const Node& relu = *named["relu"];
  ASSERT_EQ(relu.data.size(), 1u);
  EXPECT_EQ(relu.data[0], named["gemm"]->id);
  ASSERT_EQ(relu.control.size(), 1u);
  EXPECT_EQ(named["aten::mm"]->duration_us, 90u);  // less its two calls
  // Every dependency is a node that began earlier, so that there is no circle.
  std::map<std::uint64_t, std::int64_t> starts;
  for (const Node& one : trace.nodes) starts[one.id] = *one.integer("start_ns");
  for (const Node& one : trace.nodes) {
    for (const auto* list : {&one.control, &one.data}) {
      for (const std::uint64_t id : *list) {
        ASSERT_TRUE(starts.contains(id));
        EXPECT_LE(starts[id], starts[one.id]);
        EXPECT_NE(id, one.id);
      }
    }
  }
}

TEST(Chakra, DamageCostsTheNodesItTouches) {
  ExecutionTrace trace;
  for (std::uint64_t id = 1; id <= 50; ++id) trace.nodes.push_back(node(id, fmt::format("op{}", id), 1, 10));
  const std::string whole = serialise(trace);
  const RankTrace cut = read_text(std::string_view(whole).substr(0, whole.size() - 5));
  EXPECT_EQ(cut.slices.size(), 49u);
  EXPECT_EQ(cut.repairs.count(Repair::kTruncatedInput), 1);
  std::string broken = whole;
  broken[broken.find("op20") - 1] = 127;  // the length of the name
  const RankTrace rest = read_text(broken);
  EXPECT_EQ(rest.slices.size(), 49u);
  EXPECT_EQ(rest.repairs.count(Repair::kDamagedEvent), 1);
}

// Counted with an independent reader of the wire format: 3,664 nodes of which 2,448 are of the host, 7 with comm_type.
TEST(Chakra, OfMlcommonsIsReadWholeAndWrittenBackToTheByte) {
  const char* data = std::getenv("PACELINE_DATA");
  if (data == nullptr) GTEST_SKIP() << "SKIPPED: no data";
  std::string bytes;
  base::for_each_document(std::string(data) + "/dpro/chakra/feeder_tests_trace.tar.gz",
                          [&](const std::string&, base::ByteSource& source) { bytes = base::read_all(source); });
  const ExecutionTrace trace = parse(bytes);
  EXPECT_EQ(trace.nodes.size(), 3664u);
  EXPECT_EQ(trace.broken_nodes, 0u);
  EXPECT_TRUE(serialise(trace) == bytes);
  const RankTrace rank = read_text(bytes);
  EXPECT_EQ(rank.slices.size(), 3664u);
  std::size_t host = 0;
  for (Row row = 0; row < rank.slices.size(); ++row) host += rank.slices.category[row] == Category::kCpuOp;
  EXPECT_EQ(host, 2448u);
  EXPECT_EQ(rank.collective_args.size(), 7u);
}

}  // namespace
}  // namespace paceline::trace::chakra
