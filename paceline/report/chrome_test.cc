#include "paceline/report/chrome.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>

#include "paceline/base/error.h"
#include "paceline/base/file.h"
#include "paceline/base/json.h"
#include "paceline/base/rng.h"
#include "tests/support/kineto_writer.h"
#include "tests/support/synthetic_job.h"

namespace paceline::report {
namespace {

using test_support::KinetoWriter;
using test_support::read_trace;
using test_support::trace_text;
using test_support::TrueSlice;
using trace::RankTrace;

constexpr std::int64_t kTime = KinetoWriter::kBaseTime;

class ChromeWriter : public testing::Test {
 protected:
  ChromeWriter()
      : path_(std::filesystem::temp_directory_path() / ("paceline_chrome_test_" + std::to_string(::getpid()))) {}
  ~ChromeWriter() override { std::filesystem::remove(path_); }

  std::string written(std::vector<RankTrace>& ranks, const std::vector<trace::Clock>& clocks = {}) {
    for (std::uint32_t i = 0; i < ranks.size(); ++i) ranks[i].rank = ranks[i].rank.value_or(i);
    write_chrome(ranks, clocks, path_.string());
    return base::read_text_file(path_);
  }

  std::filesystem::path path_;
};

/// (name, category, start, duration, correlation) of every slice, in an order of its own.
using Shown = std::tuple<std::string, int, std::int64_t, std::int64_t, std::uint32_t>;
std::vector<Shown> slices_of(const RankTrace& trace) {
  std::vector<Shown> slices;
  for (trace::Row row = 0; row < trace.slices.size(); ++row) {
    slices.emplace_back(std::string(trace.name(row)), static_cast<int>(trace.slices.category[row]),
                        trace.slices.start[row], trace.slices.duration[row], trace.slices.correlation[row]);
  }
  std::sort(slices.begin(), slices.end());
  return slices;
}

/// What Perfetto and chrome://tracing ask for; counts of each phase.
std::map<std::string, int> check_rules(const std::string& text) {
  const base::Json json = base::parse_json(text, "the written file");
  std::map<std::pair<std::int64_t, std::int64_t>, std::vector<std::pair<std::int64_t, std::int64_t>>> tracks;
  std::map<std::string, int> phases;
  std::map<std::string, std::pair<int, int>> flows;
  const auto ns = [](const base::Json& us) { return std::llround(us.get<double>() * 1000); };
  for (const auto& event : json["traceEvents"]) {
    const auto phase = event["ph"].get<std::string>();
    ++phases[phase];
    const auto track = std::pair{event["pid"].get<std::int64_t>(), event["tid"].get<std::int64_t>()};
    if (phase == "X") {
      EXPECT_GE(ns(event["ts"]), 0);
      EXPECT_GE(ns(event["dur"]), 0);
      tracks[track].emplace_back(ns(event["ts"]), ns(event["ts"]) + ns(event["dur"]));
    } else if (phase == "s" || phase == "f") {
      auto& [begins, ends] = flows[event["id"].get<std::string>()];
      ++(phase == "s" ? begins : ends);
      if (phase == "f") {
        EXPECT_EQ(event["bp"], "e");
      }
    }
  }
  for (auto& [track, slices] : tracks) {
    std::sort(slices.begin(), slices.end(), [](const auto& a, const auto& b) {
      return a.first != b.first ? a.first < b.first : a.second > b.second;
    });
    std::vector<std::int64_t> open;
    for (const auto& [begin, end] : slices) {
      while (!open.empty() && open.back() <= begin) open.pop_back();
      if (!open.empty()) {
        EXPECT_LE(end, open.back()) << "slices overlap on track " << track.first << "/" << track.second;
      }
      open.push_back(end);
    }
  }
  for (const auto& [id, ends] : flows) EXPECT_EQ(ends, (std::pair{1, 1})) << "flow " << id;
  return phases;
}

TEST_F(ChromeWriter, GivesTheSameSlicesAndTimesWhenReadAgain) {
  base::Rng rng(1);
  for (int round = 0; round < 10; ++round) {
    std::vector<RankTrace> ranks;
    ranks.push_back(read_trace(trace_text(test_support::random_slices(rng, 800), {}, 3, 8)));
    const std::string text = written(ranks);
    const auto phases = check_rules(text);
    EXPECT_GT(phases.at("s"), 100);
    const RankTrace again = read_trace(text);
    EXPECT_EQ(slices_of(again), slices_of(ranks[0]));
    EXPECT_FALSE(again.repairs.any());
    EXPECT_EQ(again.rank, 3u);
    EXPECT_EQ(again.world_size, 8u);
    ASSERT_EQ(again.collective_args.size(), ranks[0].collective_args.size());
    EXPECT_EQ(again.collective_args[0].sequence, ranks[0].collective_args[0].sequence);
    // Written once more it is the same file.
    std::vector<RankTrace> second;
    second.push_back(read_trace(text));
    EXPECT_EQ(written(second), text);
  }
}

TEST_F(ChromeWriter, PutsSlicesThatOverlapWithoutNestingOnTracksOfTheirOwn) {
  base::Rng rng(2);
  for (int round = 0; round < 50; ++round) {
    std::vector<TrueSlice> slices;
    for (int i = 0; i < 60; ++i) {
      const bool device = rng.chance(0.5);
      const std::int64_t lane = rng.between(7, 8);
      slices.push_back({"s" + std::to_string(i), device ? "kernel" : "cpu_op", device ? 0 : 4242, lane,
                        kTime + rng.between(0, 100) * 1000, rng.between(0, 30) * 1000, 0,
                        device ? "\"stream\": " + std::to_string(lane) : ""});
    }
    std::vector<RankTrace> ranks;
    ranks.push_back(read_trace(trace_text(slices, {})));
    const std::string text = written(ranks);
    check_rules(text);
    EXPECT_EQ(slices_of(read_trace(text)), slices_of(ranks[0]));
  }
}

TEST_F(ChromeWriter, KeepsTracksCleanUnderDrift) {
  test_support::JobPlan plan;
  plan.ranks = 3;
  const test_support::SyntheticJob job = test_support::make_job(plan);
  std::vector<RankTrace> ranks;
  for (const std::string& text : job.texts) ranks.push_back(read_trace(text));
  std::vector<trace::Clock> clocks(3);
  for (std::size_t i = 0; i < 3; ++i) {
    clocks[i].offset = 1'234'567 * static_cast<std::int64_t>(i);
    clocks[i].drift = 0.01 * static_cast<double>(i);
    clocks[i].since = ranks[i].slices.start[0];
  }
  check_rules(written(ranks, clocks));
}

TEST_F(ChromeWriter, BringsAllRanksOntoOneClock) {
  test_support::JobPlan plan;
  plan.clock_offset = {0, 900'000'000, -5'000'000};
  plan.ranks = 3;
  plan.end_noise = 0;
  const test_support::SyntheticJob job = test_support::make_job(plan);
  std::vector<RankTrace> ranks;
  for (const std::string& text : job.texts) ranks.push_back(read_trace(text));
  const std::string text = written(ranks, test_support::load_texts(job.texts).clocks);
  std::map<std::string, std::vector<std::int64_t>> ends;  // of collectives, by rank
  const base::Json json = base::parse_json(text, "the written file");
  for (const auto& event : json["traceEvents"]) {
    if (event["ph"] != "X" || !event["name"].get<std::string>().starts_with("nccl")) continue;
    const double end = event["ts"].get<double>() + event["dur"].get<double>();
    ends[event["pid"].dump()].push_back(std::llround(end * 1000));
  }
  ASSERT_EQ(ends.size(), 3u);
  EXPECT_EQ(ends["1"], ends["0"]);
  EXPECT_EQ(ends["2"], ends["0"]);
}

TEST_F(ChromeWriter, KeepsHostileNames) {
  const std::string hostile = "\"},{\"ph\":\"X\" \\ \n\t\x01 </script> \xE2\x82\xAC \xF0\x9F\x9A\xB4 ";
  std::vector<RankTrace> ranks;
  ranks.push_back(read_trace(trace_text({{hostile, "cpu_op", 1, 1, kTime, 1'000}}, {})));
  ranks[0].backend = "nc\"cl\n";
  const std::string text = written(ranks);
  check_rules(text);
  const RankTrace again = read_trace(text);
  ASSERT_EQ(again.slices.size(), 1u);
  EXPECT_EQ(again.name(0), hostile);
  EXPECT_EQ(again.backend, "nc\"cl\n");
}

TEST_F(ChromeWriter, OfNothingIsAValidFile) {
  std::vector<RankTrace> ranks;
  check_rules(written(ranks));
}

TEST_F(ChromeWriter, WritesToADeviceAndNeverReplacesIt) {
  std::vector<RankTrace> ranks;
  ranks.push_back(read_trace(trace_text({{"a", "cpu_op", 1, 1, kTime, 1'000}}, {})));
  write_chrome(ranks, {}, "/dev/null");
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));
  try {
    write_chrome(ranks, {}, "/dev/full");
    ADD_FAILURE() << "a full disk went unnoticed";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kSystem);
    EXPECT_EQ(error.where(), "/dev/full");
  }
}

TEST_F(ChromeWriter, LeavesNothingBehindWhereItCannotWrite) {
  std::vector<RankTrace> ranks;
  ranks.push_back(read_trace(trace_text({{"a", "cpu_op", 1, 1, kTime, 1'000}}, {})));
  EXPECT_THROW(write_chrome(ranks, {}, "/nowhere/at/all.json"), Error);
  std::filesystem::create_directory(path_);
  EXPECT_THROW(write_chrome(ranks, {}, path_.string()), Error);
  for (const auto& entry : std::filesystem::directory_iterator(path_.parent_path())) {
    EXPECT_FALSE(entry.path().string().starts_with(path_.string() + ".tmp")) << entry.path();
  }
}

}  // namespace
}  // namespace paceline::report
