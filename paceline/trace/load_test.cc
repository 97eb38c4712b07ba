#include "paceline/trace/load.h"

#include <gtest/gtest.h>

#include "paceline/base/error.h"
#include "paceline/base/test_files.h"
#include "tests/support/kineto_writer.h"

namespace paceline::trace {
namespace {

using base::test::error_of;
using base::test::TempFolder;
using test_support::Style;

/// A small trace that says its rank, or none when negative.
std::string small_trace(std::int64_t rank, std::int64_t world_size = 4) {
  base::Rng rng(5);
  return test_support::trace_text(test_support::random_slices(rng, 100), Style{}, rank, world_size);
}

Loaded load_quietly(const std::vector<std::string>& arguments) {
  return load(arguments, {.show_progress = false});
}

std::vector<std::uint32_t> ranks(const Loaded& loaded) {
  std::vector<std::uint32_t> all;
  for (const RankTrace& trace : loaded.ranks) all.push_back(*trace.rank);
  return all;
}

TEST(RankFromPath, IsTheNumberBehindRankOrWorker) {
  EXPECT_EQ(rank_from_path("rank-3.json.gz"), 3u);
  EXPECT_EQ(rank_from_path("rank_12.json"), 12u);
  EXPECT_EQ(rank_from_path("trace_rank[7].json"), 7u);
  EXPECT_EQ(rank_from_path("worker3.pt.trace.json"), 3u);
  EXPECT_EQ(rank_from_path("rank0"), 0u);
  EXPECT_EQ(rank_from_path("jobs/rank_5/trace.json"), 5u);
  EXPECT_EQ(rank_from_path("rank_5/rank_6.json"), 6u);
  EXPECT_EQ(rank_from_path("job.tar.gz/rank-2.json"), 2u);
}

TEST(RankFromPath, IsNothingWhereTheNameSaysNone) {
  for (const char* path : {"trace.json", "ranking.json", "rank--3.json", "host_1234.1700000000.pt.trace.json", "",
                           "rank99999999999.json"}) {
    EXPECT_FALSE(rank_from_path(path)) << path;
  }
}

TEST(Load, TakesTheRankThatTheTraceSaysBeforeTheFileName) {
  const TempFolder folder;
  folder.write("rank-0.json", small_trace(1));
  folder.write("rank-1.json", small_trace(0));
  const Loaded loaded = load_quietly({folder.path().string()});
  EXPECT_EQ(ranks(loaded), (std::vector<std::uint32_t>{0, 1}));
  EXPECT_TRUE(loaded.ranks[0].source.ends_with("rank-1.json"));
  EXPECT_TRUE(loaded.warnings.empty());
  EXPECT_EQ(loaded.ranks[0].world_size, 4u);
}

TEST(Load, TakesTheRankOfTheFileNameThenOfTheFolderWithAWarning) {
  const TempFolder folder;
  folder.write("rank-3.json", small_trace(-1));
  folder.write("rank_5/trace.json", small_trace(-1));
  folder.write("other.json", small_trace(-1));
  const Loaded loaded = load_quietly({folder.path().string()});
  EXPECT_EQ(ranks(loaded), (std::vector<std::uint32_t>{0, 3, 5}));
  EXPECT_EQ(loaded.warnings.size(), 3u);
}

TEST(Load, GivesEachTraceARankOfItsOwn) {
  const TempFolder folder;
  folder.write("a.json", small_trace(1));
  folder.write("b.json", small_trace(1));
  folder.write("c.json", small_trace(1));
  const Loaded loaded = load_quietly({folder.path().string()});
  EXPECT_EQ(ranks(loaded), (std::vector<std::uint32_t>{0, 1, 2}));
  EXPECT_EQ(loaded.warnings.size(), 4u);  // two that clash, each with what it was given
}

TEST(Load, ASingleTraceWithoutRankIsNoCaseForAWarning) {
  const TempFolder folder;
  const Loaded loaded = load_quietly({folder.write("trace.json", small_trace(-1)).string()});
  EXPECT_EQ(ranks(loaded), std::vector<std::uint32_t>{0});
  EXPECT_TRUE(loaded.warnings.empty());
}

TEST(Load, ReadsFoldersPatternsAndPackedFiles) {
  const TempFolder folder;
  folder.write("rank0.json", small_trace(0));
  folder.write("rank1.json.gz", base::test::gzip(small_trace(1)));
  folder.write("rank2.json.zst", base::test::zstd(small_trace(2)));
  folder.write("rank3.tgz", base::test::gzip(base::test::tar_member("rank3.json", small_trace(3)) +
                                             base::test::tar_member("rank4.json.gz", base::test::gzip(small_trace(4))) +
                                             base::test::tar_end()));
  const std::vector<std::uint32_t> all{0, 1, 2, 3, 4};
  EXPECT_EQ(ranks(load_quietly({folder.path().string()})), all);
  EXPECT_EQ(ranks(load_quietly({(folder.path() / "rank*").string()})), all);
  EXPECT_EQ(ranks(load_quietly({(folder.path() / "rank[01]*").string()})), (std::vector<std::uint32_t>{0, 1}));
}

TEST(Load, ResultsDoNotDependOnTheFormOfPacking) {
  const TempFolder folder;
  const std::string text = small_trace(0);
  const Loaded plain = load_quietly({folder.write("a.json", text).string()});
  const Loaded packed = load_quietly({folder.write("b.json.gz", base::test::gzip(text)).string()});
  EXPECT_EQ(plain.ranks[0].slices.start, packed.ranks[0].slices.start);
  EXPECT_EQ(plain.ranks[0].slices.duration, packed.ranks[0].slices.duration);
}

TEST(Load, PassesOverWhatIsNoTraceWithAWarning) {
  const TempFolder folder;
  folder.write("rank0.json", small_trace(0));
  folder.write("notes.md", "hello");
  folder.write("config.json", "{\"lr\": 0.1}");
  folder.write("empty.json", "{\"traceEvents\": []}");
  const Loaded loaded = load_quietly({folder.path().string()});
  EXPECT_EQ(ranks(loaded), std::vector<std::uint32_t>{0});
  ASSERT_EQ(loaded.warnings.size(), 2u);
  EXPECT_NE(loaded.warnings[0].find("config.json"), std::string::npos);
  EXPECT_NE(loaded.warnings[1].find("holds no events"), std::string::npos);
  EXPECT_FALSE(loaded.damaged);
}

TEST(Load, NothingToReadIsAnErrorThatNamesTheFile) {
  const TempFolder folder;
  const std::string other = folder.write("config.json", "{\"lr\": 0.1}").string();
  EXPECT_NE(error_of([&] { load_quietly({other}); }).find("config.json: not a trace"), std::string::npos);
  const std::string cut = folder.write("cut.json", small_trace(0).substr(0, 200)).string();
  const std::string message = error_of([&] { load_quietly({cut}); });
  EXPECT_NE(message.find("cut.json: byte 200: holds no whole event"), std::string::npos) << message;
}

TEST(Load, KeepsWhatCouldBeInflatedOfADamagedFile) {
  const TempFolder folder;
  base::Rng rng(6);
  const std::string text = test_support::trace_text(test_support::random_slices(rng, 2000), Style{});
  const std::string packed = base::test::gzip(text);
  const Loaded loaded = load_quietly({folder.write("rank0.json.gz", packed.substr(0, packed.size() / 2)).string()});
  const RankTrace& trace = loaded.ranks[0];
  EXPECT_GT(trace.slices.size(), 500u);
  EXPECT_EQ(trace.repairs.count(Repair::kDamagedCompression), 1);
  EXPECT_NE(trace.repairs.row(Repair::kDamagedCompression).first_detail.find("byte"), std::string::npos);
  EXPECT_TRUE(trace.repairs.lost_data());
}

TEST(Load, ALostMemberOfAnArchiveIsDamage) {
  const TempFolder folder;
  std::string archive = base::test::tar_member("rank0.json", small_trace(0));
  const std::size_t header = archive.size();
  archive += base::test::tar_member("rank1.json", small_trace(1)) +
             base::test::tar_member("rank2.json", small_trace(2)) + base::test::tar_end();
  archive[header + 3] = 'X';
  const Loaded loaded = load_quietly({folder.write("job.tar", archive).string()});
  EXPECT_EQ(ranks(loaded), (std::vector<std::uint32_t>{0, 2}));
  EXPECT_TRUE(loaded.damaged);
  EXPECT_EQ(loaded.warnings.size(), 1u);
}

}  // namespace
}  // namespace paceline::trace
