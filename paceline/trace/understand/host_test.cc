#include "paceline/trace/understand/host.h"

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

TrueSlice op(std::string name, std::int64_t thread, std::int64_t begin_us, std::int64_t end_us) {
  return {std::move(name), "cpu_op", 1, thread, kTime + begin_us * 1000, (end_us - begin_us) * 1000};
}

std::vector<Segment> walked(Segments segments) {
  std::vector<Segment> all;
  for (Segment segment{}; segments(segment);) all.push_back(segment);
  return all;
}

/// "a:2 -:1 b:4": what ran for how many microseconds.
std::string shown(const RankTrace& trace, const std::vector<Segment>& timeline) {
  std::string text;
  for (const Segment& segment : timeline) {
    text += (text.empty() ? "" : " ") + (segment.row == kNoRow ? "-" : std::string(trace.name(segment.row))) + ":" +
            std::to_string((segment.end - segment.begin) / 1000);
  }
  return text;
}

TEST(MainThread, IsTheOneThatDrivesTheSteps) {
  const RankTrace trace =
      read({op("busy", 8, 0, 90), op("a", 9, 0, 5), {"ProfilerStep#3", "user_annotation", 1, 9, kTime, 10'000}});
  EXPECT_EQ(trace.lanes[base::index(*main_thread(trace))].thread, "9");
}

TEST(MainThread, WithoutStepsIsTheBusiestInOperators) {
  // Nested operators count once: thread 8 is busy for 10, thread 9 for 12 us.
  const RankTrace trace = read({op("a", 8, 0, 10), op("b", 8, 0, 10), op("c", 9, 0, 12)});
  EXPECT_EQ(trace.lanes[base::index(*main_thread(trace))].thread, "9");
}

TEST(MainThread, IsNobodyWhereNoOperatorRan) {
  const RankTrace trace = read({{"kernel", "kernel", 0, 7, kTime, 1'000, 5, "\"stream\": 7"}});
  EXPECT_FALSE(main_thread(trace));
  EXPECT_TRUE(walked(host_timeline(trace)).empty());
}

TEST(HostTimeline, ShowsTheInnermostSlice) {
  const RankTrace trace = read({op("a", 9, 0, 10), op("b", 9, 2, 5), op("c", 9, 3, 4), op("d", 9, 12, 13)});
  EXPECT_EQ(shown(trace, walked(host_timeline(trace))), "a:2 b:1 c:1 b:1 a:5 -:2 d:1");
}

TEST(HostTimeline, CutsSlicesThatOverlapWithoutNesting) {
  const RankTrace trace = read({op("a", 9, 0, 10), op("b", 9, 5, 15)});
  EXPECT_EQ(shown(trace, walked(host_timeline(trace))), "a:5 b:10");
}

TEST(HostTimeline, FollowsAutogradWhileTheMainThreadWaits) {
  const std::string backward = "autograd::engine::evaluate_function: MulBackward0";
  const RankTrace trace =
      read({op("forward", 9, 0, 10), op("aten::loss", 9, 14, 40), op(backward, 20, 12, 16), op(backward, 20, 20, 22)});
  EXPECT_EQ(shown(trace, walked(host_timeline(trace))),
            "forward:10 -:2 " + backward + ":4 aten::loss:4 " + backward + ":2 aten::loss:18");
}

TEST(HostTimeline, LeavesHostCollectivesOut) {
  const RankTrace trace = read({op("a", 9, 0, 10),
                                op("gloo:all_reduce", 9, 10, 30),
                                {"gloo:all_reduce", "user_annotation", 1, 9, kTime + 30'000, 5'000},
                                op("b", 9, 40, 41)});
  EXPECT_EQ(shown(trace, walked(host_timeline(trace))), "a:10 -:30 b:1");
}

Segments from(std::vector<Segment> segments) {
  return [segments = std::move(segments), at = std::size_t{0}](Segment& segment) mutable {
    if (at == segments.size()) return false;
    segment = segments[at++];
    return true;
  };
}

TEST(Overlay, ShowsTheFirstSourceInASliceAndTheHolesOfTheLast) {
  const std::vector<Segment> shown = walked(overlay({from({{4, 6, 1}, {6, 9, kNoRow}, {9, 11, 2}}), from({{5, 7, 3}}),
                                                     from({{0, 5, 4}, {5, 8, kNoRow}, {8, 10, 5}, {20, 21, 6}})}));
  const std::vector<Segment> expected{{0, 4, 4, 2}, {4, 6, 1, 0},  {6, 7, 3, 1},        {7, 8, kNoRow, 2},
                                      {8, 9, 5, 2}, {9, 11, 2, 0}, {11, 20, kNoRow, 2}, {20, 21, 6, 2}};
  ASSERT_EQ(shown.size(), expected.size());
  for (std::size_t i = 0; i < shown.size(); ++i) {
    EXPECT_EQ(shown[i].begin, expected[i].begin);
    EXPECT_EQ(shown[i].end, expected[i].end);
    EXPECT_EQ(shown[i].row, expected[i].row);
    EXPECT_EQ(shown[i].source, expected[i].source);
  }
}

TEST(Overlay, OfNothingIsNothing) {
  EXPECT_TRUE(walked(overlay({})).empty());
  EXPECT_TRUE(walked(overlay({from({}), from({})})).empty());
}

/// The naive version: at every microsecond the shortest slice around it.
TEST(HostTimeline, AgreesWithANaiveOneOnRandomNestings) {
  base::Rng rng(4);
  for (int round = 0; round < 200; ++round) {
    std::vector<TrueSlice> slices;
    std::vector<std::pair<std::int64_t, std::int64_t>> open{{0, 80}};
    while (!open.empty()) {  // distinct starts and ends, so that "innermost" is not a matter of taste
      const auto [begin, end] = open.back();
      open.pop_back();
      if (end - begin < 6 || slices.size() > 12) continue;
      const std::int64_t from = rng.between(begin + 1, end - 3), to = rng.between(from + 1, end - 1);
      slices.push_back(op("op" + std::to_string(slices.size()), 9, from, to));
      open.emplace_back(from, to);
      open.emplace_back(to, end);
    }
    const RankTrace trace = read(slices);
    const std::vector<Segment> timeline = walked(host_timeline(trace));
    for (std::size_t i = 0; i < timeline.size(); ++i) {
      if (i > 0) {
        ASSERT_EQ(timeline[i].begin, timeline[i - 1].end) << "a hole in round " << round;
      }
      for (std::int64_t at = timeline[i].begin; at < timeline[i].end; at += 1000) {
        Row naive = kNoRow;
        for (Row row = 0; row < trace.slices.size(); ++row) {
          const bool around = trace.slices.start[row] <= at && at < trace.slices.end(row);
          if (around && (naive == kNoRow || trace.slices.duration[row] < trace.slices.duration[naive])) naive = row;
        }
        ASSERT_EQ(timeline[i].row, naive) << "round " << round;
      }
    }
  }
}

}  // namespace
}  // namespace paceline::trace
