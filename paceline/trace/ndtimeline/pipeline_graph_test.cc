#include "paceline/trace/ndtimeline/pipeline_graph.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "tests/support/pipeline_job.h"

namespace paceline::trace::ndtimeline {
namespace {

using taskgraph::TaskId;
using taskgraph::TaskKind;
using test_support::PipelineJob;
using test_support::PipelineOperation;

Recording recording_of(const std::vector<PipelineOperation>& operations) {
  const std::string text = to_ndtimeline(operations);
  const auto source = base::memory_source(text);
  const std::string head = read_head(*source);
  Document document{"job.json", head, *source};
  return read(document);
}

PipelineGraph graph_of(const std::vector<PipelineOperation>& operations) {
  return build_graph(recording_of(operations));
}

std::size_t delays(const taskgraph::TaskGraph& graph) {
  std::size_t count = 0;
  for (std::uint32_t task = 0; task < graph.size(); ++task) count += graph.kind(TaskId{task}) == TaskKind::kDelay;
  return count;
}

TEST(PipelineGraph, AJobThatNeverWaitsForItsHostsHasNoDelays) {
  for (const std::uint32_t chunks : {1u, 2u}) {
    for (const bool overlapped : {false, true}) {
      PipelineJob job{.chunks = chunks, .overlapped_reduction = overlapped, .idle_transfers = chunks > 1};
      const PipelineGraph result = graph_of(job.operations());
      EXPECT_EQ(delays(result.graph), 0u) << chunks << " chunks, overlapped " << overlapped;
      EXPECT_EQ(result.unpaired, 0u);
      EXPECT_EQ(result.steps.size(), 2u);
    }
  }
}

TEST(PipelineGraph, EverySendMeetsOneReceive) {
  PipelineJob job{.stages = 4, .dp_ranks = 2, .chunks = 2, .micro_batches = 8, .steps = 1, .idle_transfers = true};
  const PipelineGraph result = graph_of(job.operations());
  std::map<std::string, std::size_t> pairs;
  std::size_t alone = 0;
  for (std::uint32_t id = 0; id < result.graph.collectives().size(); ++id) {
    const auto members = result.graph.members(taskgraph::CollectiveId{id});
    std::string names;
    for (const TaskId member : members) names += std::string(result.graph.text(result.graph.name(member))) + " ";
    if (names.find("-send") == std::string::npos && names.find("-recv") == std::string::npos) continue;
    if (members.size() == 1) ++alone;
    if (members.size() == 2) ++pairs[names];
  }
  // 8 places of the model have 7 hand-overs each way, for 8 micro-batches of 2 dp ranks.
  EXPECT_EQ(pairs["forward-send forward-recv "], 7u * 8 * 2);
  EXPECT_EQ(pairs["backward-recv backward-send "], 7u * 8 * 2);
  EXPECT_EQ(pairs.size(), 2u);
  EXPECT_EQ(alone, 4u * 8 * 2);  // into the first and out of the last place, both ways
}

TEST(PipelineGraph, AStartLaterThanAllDependenciesIsADelay) {
  auto operations = PipelineJob{.stages = 1, .dp_ranks = 1, .micro_batches = 1, .steps = 1}.operations();
  for (PipelineOperation& operation : operations) {
    if (operation.name == "optimizer") operation.begin += 70, operation.end += 70;
  }
  const PipelineGraph result = graph_of(operations);
  ASSERT_EQ(delays(result.graph), 1u);
  for (std::uint32_t task = 0; task < result.graph.size(); ++task) {
    if (result.graph.kind(TaskId{task}) != TaskKind::kDelay) continue;
    EXPECT_EQ(result.graph.duration(TaskId{task}), 70'000);
    EXPECT_EQ(result.graph.text(result.graph.name(result.graph.after(TaskId{task}))), "optimizer");
  }
}

TEST(PipelineGraph, ATransferLastsFromTheLastBeginOfItsMembers) {
  PipelineJob job{.stages = 2, .dp_ranks = 1, .micro_batches = 1, .steps = 1};
  job.duration = [](const PipelineOperation& operation) { return operation.name == "forward-recv" ? 300 : 200; };
  const PipelineGraph result = graph_of(job.operations());
  for (std::uint32_t task = 0; task < result.graph.size(); ++task) {
    const auto id = result.graph.collective(TaskId{task});
    const std::string_view name = result.graph.text(result.graph.name(TaskId{task}));
    if (name != "forward-recv" && name != "forward-send") continue;
    ASSERT_EQ(result.graph.members(id).size(), 2u);
    EXPECT_EQ(result.graph.collective(id).transfer, 200'000);
    EXPECT_EQ(result.graph.duration(TaskId{task}), name == "forward-recv" ? 100'000 : 0);
  }
}

TEST(PipelineGraph, StepsThatLackOperationsAreLeftOut) {
  auto operations = PipelineJob{.stages = 2, .dp_ranks = 2, .micro_batches = 2, .steps = 5}.operations();
  std::erase_if(operations, [](const PipelineOperation& operation) {
    return (operation.step == 0 && operation.begin < 4000) ||
           (operation.step == 3 && operation.stage == 1 && operation.dp_rank == 1 && operation.name == "optimizer");
  });
  const PipelineGraph result = graph_of(operations);
  ASSERT_EQ(result.steps.size(), 3u);
  EXPECT_EQ(result.steps[0].number, 1);
  EXPECT_EQ(result.steps[2].number, 4);
  ASSERT_EQ(result.left_out.size(), 2u);
  EXPECT_EQ(result.left_out[1], "step 3: stage 1 of dp rank 1 has 0 of 1 optimizer");
}

TEST(PipelineGraph, OperationsThatNoWorkerRecordedAreDoneWithout) {
  auto operations = PipelineJob{.stages = 2, .dp_ranks = 2, .micro_batches = 2}.operations();
  std::erase_if(operations, [](const PipelineOperation& operation) {
    return operation.name == "params-all-gather" || operation.name == "gc" ||
           operation.name == "optimizer-clip-main-grad";
  });
  const PipelineGraph result = graph_of(operations);
  EXPECT_EQ(result.steps.size(), 2u);
  EXPECT_EQ(result.left_out.size(), 0u);
}

TEST(PipelineGraph, ASendWhosePeerWasNotRecordedStandsAlone) {
  auto operations = PipelineJob{.stages = 2, .dp_ranks = 1, .micro_batches = 2}.operations();
  std::erase_if(operations, [](const PipelineOperation& operation) { return operation.name == "forward-recv"; });
  const PipelineGraph result = graph_of(operations);
  EXPECT_EQ(result.unpaired, 2u * 2);
  EXPECT_EQ(result.steps.size(), 2u);
}

}  // namespace
}  // namespace paceline::trace::ndtimeline
