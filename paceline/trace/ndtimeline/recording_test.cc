#include "paceline/trace/ndtimeline/recording.h"

#include <gtest/gtest.h>

#include "paceline/base/error.h"
#include "tests/support/pipeline_job.h"

namespace paceline::trace::ndtimeline {
namespace {

Recording read_text(const std::string& text) {
  const auto source = base::memory_source(text);
  const std::string head = read_head(*source);
  Document document{"job.json", head, *source};
  return read(document);
}

std::string small_job() {
  return to_ndtimeline(test_support::PipelineJob{.stages = 2, .dp_ranks = 3, .micro_batches = 2}.operations());
}

TEST(NdtimelineRecording, HoldsTheWorkersOfAllProcessesAndThreads) {
  const Recording recording = read_text(small_job());
  ASSERT_EQ(recording.workers.size(), 6u);
  EXPECT_EQ(recording.workers[0], (Worker{0, 0, 0}));
  EXPECT_EQ(recording.workers[1], (Worker{0, 1, 0}));
  EXPECT_EQ(recording.workers[5], (Worker{1, 2, 0}));
  EXPECT_FALSE(recording.header.repairs.lost_data());
}

TEST(NdtimelineRecording, KeepsStepSequenceAndModelChunk) {
  const Recording recording = read_text(small_job());
  std::size_t found = 0;
  for (const Operation& operation : recording.operations) {
    if (recording.names->text(operation.name) != "forward-compute" || operation.worker != 4) continue;
    EXPECT_EQ(operation.step, static_cast<std::int32_t>(found / 2));
    EXPECT_EQ(operation.sequence, static_cast<std::int32_t>(found % 2));
    EXPECT_EQ(operation.model_chunk, 0);
    EXPECT_EQ(operation.end - operation.begin, 1'000'000);
    ++found;
  }
  EXPECT_EQ(found, 4u);
}

TEST(NdtimelineRecording, IsToldFromAProfilersTrace) {
  EXPECT_TRUE(sniff(small_job()));
  EXPECT_FALSE(sniff(R"({"traceEvents": [{"ph": "X", "name": "aten::add", "ts": 1, "dur": 2, "args": {"step": 1}}]})"));
}

TEST(NdtimelineRecording, ReadersOfRanksSayWhichCommandTakesIt) {
  const auto source = base::memory_source(R"([{"ph":"X","name":"gc","args":{"step":1,"model_chunk":0,"seq_id":0}}])");
  try {
    read_document("job.json", *source);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kBadInput);
    EXPECT_NE(std::string(error.what()).find("paceline replay"), std::string::npos) << error.what();
  }
}

TEST(NdtimelineRecording, CountsOperationsOfThreadsWithoutAStage) {
  std::string text = small_job();
  const std::string_view name = "PP rank 1, TP rank 0, compute";
  text.replace(text.find(name), name.size(), "thread 7");
  const Recording recording = read_text(text);
  // Of one worker: two forward, two backward passes, garbage collection and optimizer, in two steps.
  EXPECT_EQ(recording.header.repairs.count(Repair::kDamagedEvent), 12);
}

TEST(NdtimelineRecording, KeepsWhatIsWholeOfADamagedFile) {
  std::string text = small_job();
  const std::size_t whole = read_text(text).operations.size();
  text[text.find("\"dur\"") - 1] = '{';
  const Recording recording = read_text(text);
  EXPECT_EQ(recording.operations.size(), whole - 1);
  EXPECT_TRUE(recording.header.repairs.lost_data());
}

TEST(NdtimelineRecording, AFileWithoutStepsIsAnError) {
  try {
    read_text(R"([{"ph":"X","name":"forward-compute","pid":0,"tid":0,"ts":1,"dur":2,"args":{"mb_id":1}}])");
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kBadInput);
  }
}

}  // namespace
}  // namespace paceline::trace::ndtimeline
