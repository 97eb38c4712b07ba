// Whole simulated jobs through the reader: groups, layouts, selections.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "paceline/base/error.h"
#include "paceline/base/parallel.h"
#include "paceline/trace/understand/trace.h"
#include "tests/support/modern_job.h"

namespace paceline::trace {
namespace {

using test_support::JobTruth;
using test_support::Layout;
using test_support::ModernJob;
using test_support::Topology;

using Ranks = std::vector<int>;

/// How many collectives each set of ranks had under each group name; sends and receives not counted.
using Groups = std::map<std::pair<Ranks, std::string>, std::int64_t>;

Groups found_groups(const Trace& trace) {
  Groups groups;
  for (const Collective& collective : trace.collectives) {
    if (collective.kind == CollectiveKind::kSendRecv) continue;
    Ranks ranks;
    for (std::uint32_t m = collective.members_begin; m < collective.members_end; ++m) {
      ranks.push_back(static_cast<int>(*trace.ranks[trace.members[m].rank].rank));
    }
    std::sort(ranks.begin(), ranks.end());
    const std::string& name = trace.groups[collective.group];
    ++groups[{ranks, name.substr(name.find(kGroupAs) + kGroupAs.size())}];
  }
  return groups;
}

Groups true_groups(const JobTruth& truth) {
  Groups groups;
  for (const auto& group : truth.groups) {
    if (group.collectives > 0) groups[{group.ranks, group.name}] = group.collectives;
  }
  return groups;
}

JobOptions quiet() {
  JobOptions options;
  options.load.show_progress = false;
  return options;
}

class Jobs : public testing::Test {
 protected:
  JobTruth write(ModernJob job, const std::string& below = "job") {
    job.layers = 2;
    return test_support::write_job(job, folder() / below);
  }
  Trace read(const JobOptions& options = quiet(), const std::string& below = "job") {
    return load_job({(folder() / below).string()}, options);
  }
  std::filesystem::path folder() const {
    const std::string name = testing::UnitTest::GetInstance()->current_test_info()->name();
    return std::filesystem::path(testing::TempDir()) / (name + "_" + std::to_string(::getpid()));
  }
  void TearDown() override { std::filesystem::remove_all(folder()); }
};

TEST_F(Jobs, GroupsOfManyRanksAreWholeHoweverMuchOfThemIsCut) {
  for (const Topology topology : {Topology::kFsdp2, Topology::kHsdp, Topology::kTpFsdp, Topology::kPipeline}) {
    for (const int variant : {0, 5, 6}) {
      ModernJob job;
      job.topology = topology;
      job.ranks = 32;
      job.steps = 1;
      job.shard_hosts = topology == Topology::kHsdp || topology == Topology::kTpFsdp ? 4 : 0;
      job.sequence = (variant & 1) != 0;
      job.global_ranks = job.group_config = (variant & 2) != 0;
      job.sibling_names = job.kernel_args = (variant & 4) != 0;
      const JobTruth truth = write(job);
      const Trace trace = read();
      EXPECT_EQ(found_groups(trace), true_groups(truth)) << name_of(topology) << ' ' << variant;
      EXPECT_TRUE(trace.mismatches.empty()) << name_of(topology) << ' ' << variant;
    }
  }
}

TEST_F(Jobs, SendsAndReceivesArePairsOfNeighbours) {
  ModernJob job;
  job.topology = Topology::kPipeline;
  job.steps = 1;
  write(job);
  const Trace trace = read();
  int pairs = 0;
  for (const Collective& collective : trace.collectives) {
    if (collective.kind != CollectiveKind::kSendRecv) continue;
    ++pairs;
    ASSERT_EQ(collective.size(), 2u);
    const Member &a = trace.members[collective.members_begin], &b = trace.members[collective.members_begin + 1];
    EXPECT_EQ(b.rank - a.rank, 2u) << "stages of two ranks";
    EXPECT_LT(std::abs(a.end - b.end), 30'000) << "both ends of one transfer";
  }
  // Of each of the 2 x 3 pairs: 8 batches forward and 8 back, joined where a stage has sent all of its warm-up.
  EXPECT_EQ(pairs, 2 * ((16 - 5) + (16 - 6) + (16 - 7)));
}

TEST_F(Jobs, RanksAndHostsAreFoundInEveryLayout) {
  for (const Layout layout :
       {Layout::kFlat, Layout::kTorchtitan, Layout::kTensorBoard, Layout::kBrackets, Layout::kMerged}) {
    ModernJob job;
    job.steps = 2;
    job.layout = layout;
    const JobTruth truth = write(job);
    const Trace trace = read();
    ASSERT_EQ(trace.ranks.size(), 8u);
    for (std::uint32_t rank = 0; rank < 8; ++rank) {
      EXPECT_EQ(trace.ranks[rank].rank, rank);
      EXPECT_EQ(trace.ranks[rank].steps.size(), 2u);
      const std::string host = layout == Layout::kTensorBoard ? truth.host_of_rank[rank] : "";
      EXPECT_EQ(trace.ranks[rank].host, host);
    }
    EXPECT_EQ(found_groups(trace), true_groups(truth));
    std::filesystem::remove_all(folder());
  }
}

TEST_F(Jobs, OfSeveralCapturesTheLastIsReadAndTheOthersAreNamed) {
  ModernJob job;
  job.steps = 2;
  for (const int iteration : {9, 10}) {
    job.first_step = iteration;
    write(job, "job/iteration_" + std::to_string(iteration));
  }
  const Trace last = read();
  ASSERT_EQ(last.ranks.size(), 8u);
  EXPECT_EQ(last.ranks[0].steps.front().number, 10);
  EXPECT_TRUE(std::any_of(last.warnings.begin(), last.warnings.end(), [](const std::string& warning) {
    return warning.find("iteration_9, iteration_10") != std::string::npos;
  }));
  JobOptions options = quiet();
  options.load.capture = "iteration_9";
  EXPECT_EQ(read(options).ranks[0].steps.front().number, 9);
}

TEST_F(Jobs, RanksStepsAndFilesAreSelected) {
  ModernJob job;
  job.steps = 4;
  write(job);
  JobOptions options = quiet();
  options.load.ranks = Ranges("2-3,7", "--ranks");
  options.load.steps = Ranges("11-12", "--steps");
  options.load.glob = "rank-*.json";
  options.load.hosts = "node[1-4]";
  const Trace trace = read(options);
  ASSERT_EQ(trace.ranks.size(), 3u);
  EXPECT_EQ(trace.ranks[2].rank, 7u);
  EXPECT_EQ(trace.ranks[2].host, "node4");
  ASSERT_EQ(trace.ranks[0].steps.size(), 2u);
  EXPECT_EQ(trace.ranks[0].steps[0].number, 11);
  EXPECT_TRUE(trace.mismatches.empty());
  const Trace whole = read();
  EXPECT_EQ(trace.collectives.size() * 2, whole.collectives.size());
  EXPECT_EQ(trace.ranks[0].steps[0].compute, whole.ranks[2].steps[1].compute);
  options.load.steps = Ranges("99", "--steps");
  EXPECT_THROW(read(options), Error);
}

TEST_F(Jobs, CanBeLookedAtWhileTheyAreRead) {
  ModernJob job;
  job.ranks = 32;
  write(job);
  base::set_threads(1);
  JobOptions options = quiet();
  options.load.hosts = "node[1-4]";
  std::vector<std::size_t> looks;
  options.preview.first_after = std::chrono::milliseconds(0);
  options.preview.show = [&](const Trace& part, std::size_t files, std::size_t all) {
    looks.push_back(files);
    EXPECT_EQ(all, 33u);  // with truth.json
    EXPECT_LE(part.ranks.size(), files);
    EXPECT_GE(part.ranks.size() + 1, files);
    for (std::size_t r = 0; r < part.ranks.size(); ++r) {
      EXPECT_EQ(part.ranks[r].rank, r);
      EXPECT_FALSE(part.ranks[r].host.empty());
    }
    EXPECT_FALSE(part.collectives.empty());
  };
  const Trace looked_at = read(options);
  base::set_threads(0);
  ASSERT_FALSE(looks.empty());
  EXPECT_EQ(looks[0], 8u);
  options.preview.show = {};
  const Trace read_at_once = read(options);
  ASSERT_EQ(looked_at.ranks.size(), 32u);
  EXPECT_EQ(looked_at.collectives.size(), read_at_once.collectives.size());
  for (std::size_t r = 0; r < looked_at.ranks.size(); ++r) {
    EXPECT_EQ(looked_at.ranks[r].source, read_at_once.ranks[r].source);
    EXPECT_EQ(looked_at.ranks[r].collectives.size(), read_at_once.ranks[r].collectives.size());
    EXPECT_EQ(looked_at.clocks[r].offset, read_at_once.clocks[r].offset);
  }
}

TEST_F(Jobs, AreNotLookedAtBeforeTheirRanksAreKnown) {
  ModernJob job;
  job.ranks = 16;
  write(job);
  base::set_threads(1);
  JobOptions options = quiet();
  options.load.rank_regex = "rank-([0-9]+)";
  options.preview = {[](const Trace&, std::size_t, std::size_t) { FAIL(); }, std::chrono::milliseconds(0)};
  EXPECT_EQ(read(options).ranks.size(), 16u);
  base::set_threads(0);
}

TEST_F(Jobs, TheUsersExpressionNamesTheRank) {
  ModernJob job;
  job.steps = 1;
  job.ranks = 4;
  write(job);
  for (int rank = 0; rank < 4; ++rank) {
    std::filesystem::rename(folder() / "job" / ("rank-" + std::to_string(rank) + ".json"),
                            folder() / "job" / ("gpu" + std::to_string(3 - rank) + "_of_4.json"));
  }
  JobOptions options = quiet();
  options.load.rank_regex = "gpu([0-9]+)_of";
  const Trace trace = read(options);
  ASSERT_EQ(trace.ranks.size(), 4u);
  EXPECT_NE(trace.ranks[0].source.find("gpu0_of_4"), std::string::npos);
  options.load.rank_regex = "gpu[0-9]+";
  EXPECT_THROW(read(options), Error);
}

}  // namespace
}  // namespace paceline::trace
