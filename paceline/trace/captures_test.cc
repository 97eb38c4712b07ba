#include "paceline/trace/captures.h"

#include <gtest/gtest.h>

#include "paceline/base/error.h"

namespace paceline::trace {
namespace {

using Strings = std::vector<std::string>;

const auto kNothingRecorded = [](std::size_t) { return std::optional<std::uint32_t>{}; };

TEST(Paths, NameTheirRankInEveryFormThatTrainersUse) {
  EXPECT_EQ(rank_from_path("job/rank-3.json.gz"), 3u);
  EXPECT_EQ(rank_from_path("profile_trace/iteration_10/rank12_trace.json"), 12u);
  EXPECT_EQ(rank_from_path("trace.rank[5].json"), 5u);
  EXPECT_EQ(rank_from_path("rank_3/trace.json"), 3u);
  EXPECT_EQ(rank_from_path("logs/worker7/host.1735.pt.trace.json"), 7u);
  EXPECT_EQ(rank_from_path("iteration_10/trace.json"), std::nullopt);
}

TEST(Paths, OfTheTensorBoardHandlerNameHostAndTime) {
  const auto worker = worker_from_path("log/gpu_node-07.cluster_4711.1735776000123.pt.trace.json.gz");
  ASSERT_TRUE(worker);
  EXPECT_EQ(worker->host, "gpu_node-07.cluster");
  EXPECT_EQ(worker->worker, "gpu_node-07.cluster_4711");
  EXPECT_EQ(worker->milliseconds, 1735776000123);
  for (const char* path : {"rank-0.json", "host_12.pt.trace.json", "host.17.pt.trace.json", ".pt.trace.json"}) {
    EXPECT_FALSE(worker_from_path(path)) << path;
  }
}

TEST(Captures, OneOfEachRankIsOneCapture) {
  const Captures captures = find_captures({"a/rank-0.json", "a/rank-1.json", "README.md"}, kNothingRecorded);
  EXPECT_EQ(captures.names.size(), 1u);
  EXPECT_EQ(choose_capture(captures, ""), 0u);
}

TEST(Captures, OfIterationsAreKeptApartInTheirOrder) {
  const Captures captures = find_captures({"t/iteration_100/rank0_trace.json", "t/iteration_100/rank1_trace.json",
                                           "t/iteration_20/rank0_trace.json", "t/iteration_20/rank1_trace.json"},
                                          kNothingRecorded);
  EXPECT_EQ(captures.names, (Strings{"iteration_20", "iteration_100"}));
  EXPECT_EQ(captures.of_path, (std::vector<std::size_t>{1, 1, 0, 0}));
  EXPECT_EQ(choose_capture(captures, ""), 1u);
  EXPECT_EQ(choose_capture(captures, "20"), 0u);
  EXPECT_THROW(choose_capture(captures, "iteration"), Error);
  EXPECT_THROW(choose_capture(captures, "30"), Error);
}

TEST(Captures, OfTheTensorBoardHandlerEndWhenAWorkerWritesAgain) {
  const Captures captures = find_captures(
      {"n1_10.1000.pt.trace.json", "n2_20.1007.pt.trace.json", "n1_10.5000.pt.trace.json", "n2_20.4990.pt.trace.json"},
      kNothingRecorded);
  EXPECT_EQ(captures.names, (Strings{"1000", "4990"}));
  EXPECT_EQ(captures.of_path, (std::vector<std::size_t>{0, 0, 1, 1}));
}

TEST(Captures, RanksOfHostsAreNoCapturesWhenTheTracesSaySo) {
  const Strings paths{"host0/rank0.json", "host0/rank1.json", "host1/rank0.json", "host1/rank1.json"};
  const auto recorded = [](std::size_t i) { return std::optional(static_cast<std::uint32_t>(i)); };
  EXPECT_EQ(find_captures(paths, recorded).names.size(), 1u);
  EXPECT_EQ(find_captures(paths, kNothingRecorded).names.size(), 2u);
}

TEST(Ranges, HoldWhatTheyName) {
  const Ranges ranges("0-7,16", "--ranks");
  EXPECT_TRUE(ranges.contains(0));
  EXPECT_TRUE(ranges.contains(7));
  EXPECT_FALSE(ranges.contains(8));
  EXPECT_TRUE(ranges.contains(16));
  EXPECT_TRUE(Ranges().contains(12345));
  for (const char* text : {"", "a", "3-1", "1,", "-2", "1-2-3", "4 5"}) {
    EXPECT_THROW(Ranges(text, "--ranks"), Error) << text;
  }
}

}  // namespace
}  // namespace paceline::trace
