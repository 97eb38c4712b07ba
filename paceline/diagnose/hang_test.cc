#include "paceline/diagnose/hang.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "paceline/base/error.h"
#include "paceline/base/test_files.h"

namespace paceline::diagnose {
namespace {

/// One entry of a dump; `state` by its first letter: completed, started, scheduled ("w"aits).
struct Call {
  std::string group;
  int sequence;
  char state;
  std::string operation = "all_reduce";
  std::string sizes = "[[3, 4]]";
  std::string dtypes = R"(["Float"])";
};

using Groups = std::vector<std::pair<std::string, std::string>>;  // name, ranks

std::string dump_text(const Groups& groups, const std::vector<Call>& calls, int first_record = 0) {
  std::string text = R"({"version":"2.4","pg_config":{)";
  for (std::size_t i = 0; i < groups.size(); ++i) {
    text += fmt::format(R"({}"{}":{{"name":"{}","desc":"group_{}","ranks":"{}"}})", i == 0 ? "" : ",", groups[i].first,
                        groups[i].first, groups[i].first, groups[i].second);
  }
  text += R"(},"entries":[)";
  for (std::size_t i = 0; i < calls.size(); ++i) {
    const Call& call = calls[i];
    const bool transfer = call.operation.starts_with("send") || call.operation.starts_with("recv");
    text += fmt::format(
        R"({}{{"record_id":{},"process_group":["{}","group_{}"],"collective_seq_id":{},"p2p_seq_id":{},"is_p2p":{},)"
        R"("profiling_name":"nccl:{}","input_sizes":{},"input_dtypes":{},"output_sizes":{},"state":"{}",)"
        R"("time_created_ns":1700000000000000000,"frames":[)"
        R"({{"name":"all_reduce","filename":"/x/torch/distributed/c10d.py","line":9}},)"
        R"({{"name":"step","filename":"train.py","line":42}}]}})",
        i == 0 ? "" : ",", first_record + static_cast<int>(i), call.group, call.group, call.sequence, call.sequence,
        transfer, call.operation, call.sizes, call.dtypes, call.sizes,
        call.state == 'c'   ? "completed"
        : call.state == 's' ? "started"
                            : "scheduled");
  }
  return text + "]}";
}

/// A job of dumps in files named by `name` and rank.
class Job {
 public:
  void add(int rank, const std::string& text, const std::string& name = "nccl_trace_rank_") {
    folder_.write(name + std::to_string(rank), text);
  }
  HangVerdict verdict() const { return find_hang(trace::load_flight_dumps({folder_.path().string()})); }
  std::string path() const { return folder_.path().string(); }

 private:
  base::test::TempFolder folder_;
};

using Ranks = std::vector<std::uint32_t>;
const Groups kWorld{{"0", "[0, 1, 2, 3]"}};

TEST(Hang, FindsTheRankThatSkippedOne) {
  Job job;
  for (const int rank : {0, 1, 3}) job.add(rank, dump_text(kWorld, {{"0", 1, 'c'}, {"0", 2, 's'}, {"0", 3, 'w'}}));
  job.add(2, dump_text(kWorld, {{"0", 1, 'c'}}));
  EXPECT_TRUE(trace::are_flight_dumps({job.path()}));
  const HangVerdict verdict = job.verdict();
  ASSERT_EQ(verdict.findings.size(), 1u);
  EXPECT_EQ(verdict.findings[0].kind, HangKind::kMissingRank);
  EXPECT_EQ(verdict.findings[0].sequence, 2);
  EXPECT_EQ(verdict.findings[0].blamed, Ranks{2});
  EXPECT_EQ(verdict.findings[0].waiting, (Ranks{0, 1, 3}));
  EXPECT_EQ(verdict.findings[0].where, "train.py:42 step");
  EXPECT_EQ(verdict.sentence, "rank 2 has not called all_reduce #2 of group group_0; ranks 0-1, 3 wait");
}

TEST(Hang, TakesAMissingDumpAsEvidence) {
  Job job;
  for (const int rank : {0, 1, 3}) job.add(rank, dump_text(kWorld, {{"0", 1, 'c'}, {"0", 2, 's'}}));
  job.add(2, "");  // the process died when it wrote it
  const HangVerdict verdict = job.verdict();
  EXPECT_EQ(verdict.missing, Ranks{2});
  ASSERT_EQ(verdict.unreadable.size(), 1u);
  ASSERT_EQ(verdict.findings.size(), 1u);
  EXPECT_EQ(verdict.findings[0].kind, HangKind::kMissingDump);
  EXPECT_EQ(verdict.findings[0].blamed, Ranks{2});
  EXPECT_TRUE(verdict.sentence.ends_with("no dump of rank 2")) << verdict.sentence;
}

TEST(Hang, NamesTheRankWithAnotherOperationSizeOrType) {
  const auto run = [](const Call& other) {
    Job job;
    for (const int rank : {0, 1, 3}) job.add(rank, dump_text(kWorld, {{"0", 1, 'c'}, {"0", 2, 's'}}));
    job.add(2, dump_text(kWorld, {{"0", 1, 'c'}, other}));
    return job.verdict();
  };
  for (const auto& [other, kind] :
       {std::pair{Call{"0", 2, 's', "broadcast"}, HangKind::kMismatchedOperation},
        std::pair{Call{"0", 2, 's', "all_reduce", "[[3, 5]]"}, HangKind::kMismatchedSize},
        std::pair{Call{"0", 2, 's', "all_reduce", "[[3, 4]]", R"(["Half"])"}, HangKind::kMismatchedType}}) {
    const HangVerdict verdict = run(other);
    ASSERT_EQ(verdict.findings.size(), 1u);
    EXPECT_EQ(verdict.findings[0].kind, kind) << verdict.sentence;
    EXPECT_EQ(verdict.findings[0].blamed, Ranks{2});
    EXPECT_EQ(verdict.findings[0].sequence, 2);
  }
}

TEST(Hang, DoesNotBlameUnequalSizesWhereTheyAreAllowed) {
  Job job;
  for (int rank = 0; rank < 4; ++rank) {
    job.add(rank, dump_text(kWorld, {{"0", 1, 'c', "all_to_all", fmt::format("[[{}]]", rank)}}));
  }
  EXPECT_TRUE(job.verdict().findings.empty());
}

TEST(Hang, TellsNotStartedFromNotCompletedFromAStuckTransfer) {
  const auto run = [](const std::string& states) {
    Job job;
    for (int rank = 0; rank < 4; ++rank) {
      job.add(rank, dump_text(kWorld, {{"0", 1, states[static_cast<std::size_t>(rank)]}}));
    }
    return job.verdict();
  };
  const HangVerdict not_started = run("swss");
  ASSERT_EQ(not_started.findings.size(), 1u);
  EXPECT_EQ(not_started.findings[0].kind, HangKind::kNotStarted);
  EXPECT_EQ(not_started.findings[0].blamed, Ranks{1});
  EXPECT_EQ(not_started.findings[0].waiting, (Ranks{0, 2, 3}));
  const HangVerdict not_completed = run("cccs");
  ASSERT_EQ(not_completed.findings.size(), 1u);
  EXPECT_EQ(not_completed.findings[0].kind, HangKind::kNotCompleted);
  EXPECT_EQ(not_completed.findings[0].blamed, Ranks{3});
  const HangVerdict transfer = run("ssss");
  ASSERT_EQ(transfer.findings.size(), 1u);
  EXPECT_EQ(transfer.findings[0].kind, HangKind::kTransfer);
  EXPECT_TRUE(run("cccc").findings.empty());
}

TEST(Hang, PassesOverRanksThatAreHeldUpThemselves) {
  // Rank 1 waits for rank 0 in the pair; the world waits for rank 1. Rank 0 is the cause.
  const Groups groups{{"0", "[0, 1, 2]"}, {"5", "[0, 1]"}};
  Job job;
  job.add(0, dump_text(groups, {{"0", 1, 'c'}, {"0", 2, 's'}}));
  job.add(1, dump_text(groups, {{"0", 1, 'c'}, {"5", 1, 's'}}));
  job.add(2, dump_text({groups[0]}, {{"0", 1, 'c'}, {"0", 2, 's'}}));
  // In that form both wait for each other: the order differs between ranks.
  const HangVerdict circle = job.verdict();
  ASSERT_EQ(circle.findings.size(), 2u);
  EXPECT_TRUE(circle.findings[0].cause && circle.findings[1].cause);
  EXPECT_NE(circle.sentence.find("different order"), std::string::npos) << circle.sentence;
  // Without the call of rank 0 to the world, it is the cause, and the world's waiting follows.
  Job chain;
  chain.add(0, dump_text(groups, {{"0", 1, 'c'}}));
  chain.add(1, dump_text(groups, {{"0", 1, 'c'}, {"5", 1, 's'}}));
  chain.add(2, dump_text({groups[0]}, {{"0", 1, 'c'}, {"0", 2, 's'}}));
  const HangVerdict verdict = chain.verdict();
  ASSERT_EQ(verdict.findings.size(), 2u);
  EXPECT_TRUE(verdict.findings[0].cause);
  EXPECT_EQ(verdict.findings[0].group, "5");
  EXPECT_EQ(verdict.findings[0].blamed, Ranks{0});
}

TEST(Hang, DoesNotHoldAgainstARankWhatItsRingLost) {
  Job job;
  for (const int rank : {0, 1, 3}) job.add(rank, dump_text(kWorld, {{"0", 1, 'c'}, {"0", 2, 'c'}}));
  job.add(2, dump_text(kWorld, {{"0", 2, 'c'}}, 100));
  EXPECT_TRUE(job.verdict().findings.empty());
}

TEST(Hang, FindsTheSilentPeerOfATransfer) {
  Job job;
  job.add(0, dump_text(kWorld, {{"0", 1, 's', "send 0->1"}}));
  job.add(1, dump_text(kWorld, {{"0", 1, 's', "recv 1<-0"}}));
  job.add(2, dump_text(kWorld, {{"0", 1, 's', "recv 2<-3"}}));
  job.add(3, dump_text(kWorld, {}));
  const HangVerdict verdict = job.verdict();
  ASSERT_EQ(verdict.findings.size(), 1u);
  EXPECT_EQ(verdict.findings[0].blamed, Ranks{3});
  EXPECT_EQ(verdict.findings[0].waiting, Ranks{2});
}

TEST(Hang, KnowsHostsAndRanksByTheNamesOfFiles) {
  Job job;
  job.add(0, dump_text(kWorld, {{"0", 1, 'c'}}), "node07_nccl_trace_rank_");
  job.add(1, dump_text(kWorld, {{"0", 1, 'c'}}), "node08-12.rank");
  job.add(2, dump_text(kWorld, {{"0", 1, 'c'}}), "gpu-a.cluster_");
  const HangVerdict verdict = job.verdict();
  EXPECT_EQ(verdict.hosts,
            (std::map<std::uint32_t, std::string>{{0, "node07"}, {1, "node08-12"}, {2, "gpu-a.cluster"}}));
  EXPECT_EQ(verdict.missing, Ranks{3});
}

TEST(Hang, ReadsWhatTheRankSaysOfItselfBeyondItsEntries) {
  // Rank 1's ring holds another group only, but its status says that it is at collective 2 of the world.
  const Groups groups{{"0", "[0, 1]"}, {"5", "[1]"}};
  std::string text = dump_text(groups, {{"5", 1, 'c'}}, 50);
  text.insert(text.find("\"entries\""), R"("pg_status":{"0":{"last_enqueued_collective":"2"}},)");
  Job job;
  job.add(0, dump_text({groups[0]}, {{"0", 2, 's'}, {"0", 3, 'w'}}));
  job.add(1, text);
  const HangVerdict verdict = job.verdict();
  ASSERT_EQ(verdict.findings.size(), 1u);
  EXPECT_EQ(verdict.findings[0].sequence, 2) << verdict.sentence;
  EXPECT_NE(verdict.findings[0].kind, HangKind::kMissingRank);
}

}  // namespace
}  // namespace paceline::diagnose
