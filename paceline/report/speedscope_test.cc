#include "paceline/report/speedscope.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "paceline/base/file.h"
#include "paceline/base/json.h"
#include "paceline/base/rng.h"
#include "tests/support/kineto_writer.h"
#include "tests/support/synthetic_job.h"

namespace paceline::report {
namespace {

using test_support::KinetoWriter;
using test_support::TrueSlice;

base::Json written(std::vector<trace::RankTrace>& ranks, const std::vector<trace::Clock>& clocks) {
  const auto path = std::filesystem::temp_directory_path() / ("paceline_speedscope_" + std::to_string(::getpid()));
  for (std::uint32_t i = 0; i < ranks.size(); ++i) ranks[i].rank = i;
  write_speedscope(ranks, clocks, path.string());
  const std::string text = base::read_text_file(path);
  std::filesystem::remove(path);
  return base::parse_json(text, "the written file");
}

/// The rules of the format: times rise within [startValue, endValue], every frame that closes is the one opened last,
/// none stays open. Returns the time that each frame is open, summed by name.
std::map<std::string, std::int64_t> check_rules(const base::Json& json) {
  EXPECT_EQ(json["$schema"], "https://www.speedscope.app/file-format-schema.json");
  std::map<std::string, std::int64_t> open_time;
  for (const auto& profile : json["profiles"]) {
    EXPECT_EQ(profile["type"], "evented");
    EXPECT_EQ(profile["unit"], "nanoseconds");
    std::vector<std::pair<std::int64_t, std::int64_t>> open;  // frame and time
    auto now = profile["startValue"].get<std::int64_t>();
    for (const auto& event : profile["events"]) {
      const auto at = event["at"].get<std::int64_t>(), frame = event["frame"].get<std::int64_t>();
      EXPECT_GE(at, now);
      now = at;
      if (event["type"] == "O") {
        open.emplace_back(frame, at);
        continue;
      }
      if (open.empty() || open.back().first != frame) {
        ADD_FAILURE() << "frame " << frame << " closes at " << at << " and is not the one opened last";
        return open_time;
      }
      const auto name = json["shared"]["frames"][static_cast<std::size_t>(frame)]["name"].get<std::string>();
      open_time[name] += at - open.back().second;
      open.pop_back();
    }
    EXPECT_TRUE(open.empty());
    EXPECT_LE(now, profile["endValue"].get<std::int64_t>());
  }
  return open_time;
}

TEST(Speedscope, EventsNestAndKeepEveryNanosecond) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    base::Rng rng(seed);
    std::vector<TrueSlice> slices = test_support::random_slices(rng, 300);
    // Two that overlap without nesting, and one without duration.
    slices.push_back({"first", "cpu_op", 5, 5, KinetoWriter::kBaseTime + 1'000, 700});
    slices.push_back({"second \"quoted\"", "cpu_op", 5, 5, KinetoWriter::kBaseTime + 1'500, 700});
    slices.push_back({"nothing", "cpu_op", 5, 5, KinetoWriter::kBaseTime + 1'600, 0});
    std::vector<trace::RankTrace> ranks;
    ranks.push_back(test_support::read_trace(test_support::trace_text(slices, {})));
    std::map<std::string, std::int64_t> expected;
    for (trace::Row row = 0; row < ranks[0].slices.size(); ++row) {
      expected[std::string(ranks[0].name(row))] += ranks[0].slices.duration[row];
    }
    EXPECT_EQ(check_rules(written(ranks, {})), expected) << "seed " << seed;
  }
}

TEST(Speedscope, PutsRanksOnOneClock) {
  std::vector<trace::RankTrace> ranks;
  for (const std::int64_t start : {0, 5'000}) {
    ranks.push_back(test_support::read_trace(
        test_support::trace_text({{"work", "cpu_op", 1, 1, KinetoWriter::kBaseTime + start, 100}}, {})));
  }
  std::vector<trace::Clock> clocks(2);
  clocks[1].offset = 5'000;
  const base::Json json = written(ranks, clocks);
  ASSERT_EQ(json["profiles"].size(), 2u);
  EXPECT_EQ(json["profiles"][0]["startValue"], json["profiles"][1]["startValue"]);
}

}  // namespace
}  // namespace paceline::report
