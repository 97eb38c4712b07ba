#include "paceline/trace/understand/launches.h"

#include <gtest/gtest.h>

#include "paceline/base/rng.h"
#include "tests/support/kineto_writer.h"
#include "tests/support/synthetic_job.h"

namespace paceline::trace {
namespace {

using test_support::KinetoWriter;
using test_support::TrueSlice;

constexpr std::int64_t kTime = KinetoWriter::kBaseTime;

RankTrace read(const std::vector<TrueSlice>& slices) {
  return test_support::read_trace(test_support::trace_text(slices, {}));
}

TEST(Launches, OneGraphLaunchHasManyKernels) {
  std::vector<TrueSlice> slices{{"cudaGraphLaunch", "cuda_runtime", 1, 1, kTime, 10'000, 77}};
  for (int i = 0; i < 5; ++i) {
    slices.push_back({"kernel", "kernel", 0, 7, kTime + 20'000 + 5'000 * i, 4'000, 77, "\"stream\": 7"});
  }
  const RankTrace trace = read(slices);
  const std::vector<Row> launcher = link_launches(trace);
  int linked = 0;
  for (Row row = 0; row < trace.slices.size(); ++row) {
    if (launcher[row] == kNoRow) continue;
    EXPECT_EQ(trace.name(launcher[row]), "cudaGraphLaunch");
    ++linked;
  }
  EXPECT_EQ(linked, 5);
}

TEST(Launches, OfSeveralCallsWithOneIdTheLastWins) {
  const RankTrace trace = read({{"cudaMalloc", "cuda_runtime", 1, 1, kTime, 1'000, 5},
                                {"cudaLaunchKernel", "cuda_runtime", 1, 1, kTime + 2'000, 1'000, 5},
                                {"kernel", "kernel", 0, 7, kTime + 9'000, 1'000, 5, "\"stream\": 7"}});
  const std::vector<Row> launcher = link_launches(trace);
  EXPECT_EQ(trace.name(launcher[2]), "cudaLaunchKernel");
}

TEST(Launches, AKernelWhoseCallIsNotRecordedHasNone) {
  const RankTrace trace = read({{"cudaLaunchKernel", "cuda_runtime", 1, 1, kTime, 1'000, 4},
                                {"kernel", "kernel", 0, 7, kTime + 9'000, 1'000, 5, "\"stream\": 7"},
                                {"kernel", "kernel", 0, 7, kTime + 19'000, 1'000, 0, "\"stream\": 7"}});
  for (const Row launcher : link_launches(trace)) EXPECT_EQ(launcher, kNoRow);
}

/// Slices that nest: splits [begin, end) at random, to a random depth.
void nest(base::Rng& rng, std::int64_t begin, std::int64_t end, int depth, std::vector<TrueSlice>& slices) {
  if (depth == 0 || end - begin < 4) return;
  std::int64_t at = begin;
  while (at < end) {
    const std::int64_t from = rng.between(at, end - 1), to = rng.between(from, end);
    if (to > from) {
      slices.push_back({"op" + std::to_string(rng.below(5)), "cpu_op", 1, 1, kTime + from * 1000, (to - from) * 1000});
      nest(rng, from, to, depth - 1, slices);
    }
    at = to + 1;
  }
}

TEST(Parents, AreTheShortestSliceAroundOnRandomNestings) {
  base::Rng rng(3);
  for (int round = 0; round < 200; ++round) {
    std::vector<TrueSlice> slices;
    nest(rng, 0, 60, 4, slices);
    if (slices.empty()) continue;
    const RankTrace trace = read(slices);
    const std::vector<Row> parent = link_parents(trace);
    for (Row row = 0; row < trace.slices.size(); ++row) {
      Row naive = kNoRow;
      for (Row other = 0; other < row; ++other) {  // parents come first
        const bool around =
            trace.slices.start[other] <= trace.slices.start[row] && trace.slices.end(other) >= trace.slices.end(row);
        if (around && (naive == kNoRow || trace.slices.duration[other] <= trace.slices.duration[naive])) naive = other;
      }
      ASSERT_EQ(parent[row], naive) << "round " << round << " row " << row;
    }
  }
}

}  // namespace
}  // namespace paceline::trace
