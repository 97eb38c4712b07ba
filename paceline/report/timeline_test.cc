#include "paceline/report/timeline.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "paceline/base/error.h"
#include "paceline/base/file.h"
#include "paceline/base/inflate.h"
#include "paceline/base/json.h"
#include "tests/support/kineto_writer.h"
#include "tests/support/synthetic_job.h"

namespace paceline::report {
namespace {

using base::Json;
using test_support::JobPlan;
using test_support::load_texts;
using test_support::make_job;
using trace::RankTrace;
using trace::Row;

std::string bytes_of(std::string_view base64) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bytes;
  std::uint32_t group = 0;
  int bits = 0;
  for (const char c : base64.substr(0, base64.find('='))) {
    group = group << 6 | static_cast<std::uint32_t>(kDigits.find(c));
    bits += 6;
    if (bits >= 8) bytes += static_cast<char>(group >> (bits -= 8) & 255);
  }
  return bytes;
}

struct Shown {
  std::uint32_t rank;
  bool device;
  std::int64_t start, duration;  // from the begin of the window
  std::string name, op;
  int kind;
};

/// A timeline read back: its slices, row after row.
struct Timeline {
  explicit Timeline(const std::string& text) : json(base::parse_json(text, "timeline")) {
    const std::string packed_bytes = bytes_of(json["data"].get<std::string>());
    const auto packed = base::memory_source(packed_bytes);
    data = base::read_all(*base::gzip_source(*packed));
    for (const Json& rank : json["ranks"]) {
      for (const Json& lane : rank["lanes"]) {
        for (const Json& count : lane["rows"]) read_row(rank, lane, count);
      }
    }
    EXPECT_EQ(at, data.size());
  }

  std::uint64_t number() {
    std::uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      const auto byte = static_cast<std::uint8_t>(data.at(at++));
      value |= static_cast<std::uint64_t>(byte & 127) << shift;
      if (byte < 128) return value;
    }
  }

  void read_row(const Json& rank, const Json& lane, std::size_t count) {
    std::vector<Shown> row(count);
    std::int64_t last = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint64_t value = number();
      last =
          i > 0 ? last + static_cast<std::int64_t>(value) : static_cast<std::int64_t>(value >> 1 ^ (0 - (value & 1)));
      row[i].start = last;
      row[i].rank = rank["rank"];
      row[i].device = lane["device"];
    }
    for (Shown& slice : row) slice.duration = static_cast<std::int64_t>(number());
    for (Shown& slice : row) {
      const std::uint64_t name = number();
      slice.name = json["names"][name];
      slice.kind = json["kinds"][name];
    }
    for (Shown& slice : row) {
      if (const std::uint64_t detail = number(); detail > 0) slice.op = json["details"][detail - 1][0];
    }
    rows.push_back(std::move(row));
  }

  Json json;
  std::string data;
  std::size_t at = 0;
  std::vector<std::vector<Shown>> rows;
};

struct Job {
  explicit Job(const JobPlan& plan) : texts(make_job(plan).texts), trace(load_texts(texts)) {
    for (std::size_t i = 0; i < trace.ranks.size(); ++i) trace.ranks[i].source = "trace " + std::to_string(i);
    diagnosis = diagnose::diagnose(trace);
  }

  /// The rows of the chosen ranks, under the sources by which the trace knows them.
  std::vector<RankTrace> rows(const TimelineChoice& choice) const {
    std::vector<RankTrace> all;
    for (const std::size_t rank : choice.ranks) {
      all.push_back(test_support::read_trace(texts[rank]));
      all.back().source = trace.ranks[rank].source;
    }
    return all;
  }

  Timeline timeline(const TimelineOptions& options = {}) const {
    const TimelineChoice choice = choose_timeline(diagnosis, trace, options);
    return Timeline(timeline_json(rows(choice), choice, diagnosis, trace, options));
  }

  std::vector<std::string> texts;
  trace::Trace trace;
  diagnose::Diagnosis diagnosis;
};

JobPlan late_plan() {
  JobPlan plan;
  plan.late_rank = 4;
  plan.late_by = 6'000'000;
  return plan;
}

std::vector<std::uint32_t> ranks_of(const Job& job, const TimelineOptions& options) {
  std::vector<std::uint32_t> ranks;
  for (const std::size_t rank : choose_timeline(job.diagnosis, job.trace, options).ranks) {
    ranks.push_back(*job.trace.ranks[rank].rank);
  }
  return ranks;
}

TEST(Timeline, HoldsEverySliceThatTouchesTheStepOnTheCommonClock) {
  JobPlan plan = late_plan();
  plan.clock_offset = {0, 3'000'000, -70'000'000, 0, 11, 0, 500'000'000, 0};
  const Job job(plan);
  const TimelineChoice choice = choose_timeline(job.diagnosis, job.trace, {});
  ASSERT_EQ(choice.ranks.size(), 8u);
  const std::vector<RankTrace> all = job.rows(choice);
  std::int64_t begin = INT64_MAX, end = INT64_MIN;
  for (const std::size_t rank : choice.ranks) {
    for (const auto& step : job.diagnosis.ranks[rank].steps) {
      if (step.number != choice.step) continue;
      begin = std::min(begin, step.begin);
      end = std::max(end, step.begin + step.duration);
    }
  }
  using Slice = std::tuple<std::uint32_t, std::int64_t, std::int64_t, std::string>;
  std::multiset<Slice> expected, found;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const trace::Clock& clock = job.trace.clocks[choice.ranks[i]];
    for (Row row = 0; row < all[i].slices.size(); ++row) {
      const std::int64_t first = clock.align(all[i].slices.start[row]), last = clock.align(all[i].slices.end(row));
      if (first >= end || last <= begin) continue;
      expected.emplace(*job.trace.ranks[choice.ranks[i]].rank, first - begin, last - first, all[i].name(row));
    }
  }
  const Timeline timeline(timeline_json(all, choice, job.diagnosis, job.trace, {}));
  EXPECT_EQ(timeline.json["length_ns"], end - begin);
  EXPECT_EQ(timeline.json["left_out"], 0);
  for (const auto& row : timeline.rows) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      found.emplace(row[i].rank, row[i].start, row[i].duration, row[i].name);
      if (i > 0) {
        EXPECT_GE(row[i].start, row[i - 1].start + row[i - 1].duration);
      }
    }
  }
  EXPECT_GT(expected.size(), 100u);
  EXPECT_EQ(found, expected);
}

TEST(Timeline, ShowsTheStepWhoseMeanIsTheMedian) {
  const Job job(late_plan());
  std::map<std::int64_t, std::int64_t> sums;
  for (const auto& rank : job.diagnosis.ranks) {
    for (const auto& step : rank.steps) sums[step.number] += step.duration;
  }
  std::vector<std::pair<std::int64_t, std::int64_t>> means;
  for (const auto& [number, sum] : sums) means.emplace_back(sum / 8, number);
  std::sort(means.begin(), means.end());
  EXPECT_EQ(choose_timeline(job.diagnosis, job.trace, {}).step, means[(means.size() - 1) / 2].second);
  EXPECT_EQ(job.timeline({.step = 1}).json["step"], 1);
}

TEST(Timeline, OfManyRanksShowsTheLateOneAndWhoWaitsLongest) {
  JobPlan plan = late_plan();
  plan.ranks = 24;
  plan.late_rank = 17;
  plan.groups = true;
  const Job job(plan);
  ASSERT_EQ(job.diagnosis.late_rank(), 17);
  std::map<std::uint32_t, std::int64_t> waits;
  for (const auto& row : job.diagnosis.collectives) {
    if (row.last_rank != 17) continue;
    for (std::size_t m = 0; m < row.members.size(); ++m) waits[row.members[m]] += row.waits[m];
  }
  const std::vector<std::uint32_t> shown = ranks_of(job, {});
  EXPECT_EQ(shown.size(), 8u);
  EXPECT_TRUE(std::find(shown.begin(), shown.end(), 17u) != shown.end());
  for (const auto& [rank, wait] : waits) {
    if (std::find(shown.begin(), shown.end(), rank) != shown.end()) continue;
    for (const std::uint32_t other : shown) {
      if (other != 17) {
        EXPECT_LE(wait, waits[other]) << rank << " and " << other;
      }
    }
  }
  EXPECT_EQ(ranks_of(job, {.ranks = trace::Ranges("2,5-6", "--timeline")}), (std::vector<std::uint32_t>{2, 5, 6}));
}

TEST(Timeline, TiesItsCollectivesToThoseOfTheDiagnosis) {
  const Job job(late_plan());
  const Timeline timeline = job.timeline();
  std::size_t communication = 0;
  for (const auto& row : timeline.rows) {
    communication += static_cast<std::size_t>(
        std::count_if(row.begin(), row.end(), [](const Shown& slice) { return slice.kind == 1; }));
  }
  EXPECT_EQ(timeline.json["collectives"].size(), communication);
  EXPECT_GE(communication, 8u * 4u);
  for (const Json& link : timeline.json["collectives"]) {
    const Shown& slice = timeline.rows[link[0]][link[1]];
    const auto& collective = job.diagnosis.collectives[link[2]];
    const auto member = std::find(collective.members.begin(), collective.members.end(), slice.rank);
    ASSERT_NE(member, collective.members.end());
    // Its time is waiting and the transfer.
    EXPECT_EQ(slice.duration,
              collective.waits[static_cast<std::size_t>(member - collective.members.begin())] + collective.transfer);
  }
}

TEST(Timeline, NamesTheOperatorThatLaunchedAKernel) {
  const Timeline timeline = Job(late_plan()).timeline();
  std::map<std::string, std::set<std::string>> ops;
  for (const auto& row : timeline.rows) {
    for (const Shown& slice : row) {
      if (slice.device && slice.kind == 0) ops[slice.name].insert(slice.op);
    }
  }
  ASSERT_FALSE(ops.empty());
  for (const auto& [kernel, launchers] : ops) {
    EXPECT_EQ(launchers.size(), 1u) << kernel;
    EXPECT_NE(*launchers.begin(), "") << kernel;
  }
}

TEST(Timeline, CutsTheEndOffBeyondTheLimitAndSaysHowMuch) {
  const Job job(late_plan());
  const auto count = [](const Timeline& timeline) {
    std::size_t sum = 0;
    for (const auto& row : timeline.rows) sum += row.size();
    return sum;
  };
  const Timeline whole = job.timeline(), cut = job.timeline({.most_slices = 200});
  EXPECT_LE(count(cut), 200u);
  EXPECT_GT(count(cut), 150u);
  EXPECT_EQ(cut.json["left_out"].get<std::size_t>(), count(whole) - count(cut));
  EXPECT_LT(cut.json["length_ns"], whole.json["length_ns"]);
}

TEST(Timeline, RefusesAStepThatNobodyRecorded) {
  const Job job(late_plan());
  EXPECT_THROW(choose_timeline(job.diagnosis, job.trace, {.step = 60}), Error);
  EXPECT_THROW(choose_timeline(job.diagnosis, job.trace, {.ranks = trace::Ranges("40", "--timeline")}), Error);
}

}  // namespace
}  // namespace paceline::report
