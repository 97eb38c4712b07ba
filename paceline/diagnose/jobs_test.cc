// Whole simulated jobs of known truth, through the reader to the verdict.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "paceline/diagnose/diagnosis.h"
#include "tests/support/modern_job.h"

namespace paceline::diagnose {
namespace {

using test_support::JobTruth;
using test_support::ModernJob;
using test_support::Topology;
using JobFault = test_support::Fault;

struct Verdict {
  std::string kind;
  std::int32_t rank;
  std::string host;
  Fault fault;
  bool operator==(const Verdict&) const = default;
};

std::ostream& operator<<(std::ostream& out, const Verdict& verdict) {
  return out << verdict.kind << " rank " << verdict.rank << " host " << verdict.host << " class "
             << fault_entry(verdict.fault).name;
}

class JobDiagnosis : public testing::Test {
 protected:
  /// The diagnosis of a job; its hosts are given as by --hosts.
  Diagnosis diagnosed(const ModernJob& job) {
    truth_ = test_support::write_job(job, folder());
    trace::JobOptions options;
    options.load.show_progress = false;
    trace::Trace trace = trace::load_job({folder().string()}, options);
    std::filesystem::remove_all(folder());
    for (trace::RankSummary& rank : trace.ranks) rank.host = truth_.host_of_rank[*rank.rank];
    return diagnose(trace);
  }
  Verdict verdict(const ModernJob& job) {
    const Diagnosis diagnosis = diagnosed(job);
    const Finding& main = *main_finding(diagnosis);
    return {main.kind, main.rank, main.host, main.fault};
  }
  static ModernJob of(Topology topology, JobFault fault, std::uint64_t seed = 1) {
    ModernJob job;
    job.topology = topology;
    job.fault = fault;
    job.seed = seed;
    job.steps = 5;
    job.layers = 4;
    return job;
  }
  JobTruth truth_;

 private:
  static std::filesystem::path folder() {
    const std::string name = testing::UnitTest::GetInstance()->current_test_info()->name();
    return std::filesystem::path(testing::TempDir()) / (name + "_" + std::to_string(::getpid()));
  }
};

TEST_F(JobDiagnosis, NamesTheSlowRankOfAPipelineAndNotTheStagesThatWaitForIt) {
  for (const auto& [fault, known] :
       {std::pair{JobFault::kClock, Fault::kClock}, std::pair{JobFault::kHostPause, Fault::kHostPause},
        std::pair{JobFault::kMemoryBandwidth, Fault::kMemoryBandwidth}}) {
    for (const std::uint64_t seed : {2, 3}) {
      const Verdict found = verdict(of(Topology::kPipeline, fault, seed));
      EXPECT_EQ(found, (Verdict{"late_rank", truth_.rank, "", known})) << "seed " << seed;
    }
  }
}

TEST_F(JobDiagnosis, SaysOfASlowRankThatThePipelinesSlackHidesThatNobodyFeelsIt) {
  ModernJob job = of(Topology::kPipeline, JobFault::kAllocator, 11);
  job.ranks = 16;
  const Diagnosis diagnosis = diagnosed(job);
  ASSERT_LT(truth_.step_ns * 1000, truth_.clean_step_ns * 1002);  // the job is no slower
  EXPECT_EQ(diagnosis.late_rank(), truth_.rank);
  EXPECT_LT(diagnosis.late.cost * 100, diagnosis.median_step);
  EXPECT_GT(diagnosis.late.longer * 100, diagnosis.median_step);
  EXPECT_NE(main_finding(diagnosis)->title.find("longer than ranks that do the same"), std::string::npos);
}

TEST_F(JobDiagnosis, OfTwoStagesHoldsEachRankAgainstItsOwnStage) {
  ModernJob job = of(Topology::kPipeline, JobFault::kAllocator, 14);
  job.ranks = 4;
  job.gpus_per_host = 2;
  const Verdict found = verdict(job);
  EXPECT_EQ(found, (Verdict{"late_rank", truth_.rank, "", Fault::kAllocator}));
}

TEST_F(JobDiagnosis, CallsALinkBetweenHostsOfOneDeviceNoRail) {
  ModernJob job = of(Topology::kHsdp, JobFault::kLinkInter, 15);
  job.gpus_per_host = 1;
  EXPECT_EQ(verdict(job).fault, Fault::kLinkInter);
}

TEST_F(JobDiagnosis, NamesTheHostThatIsAStageByThePaceOfItsKernels) {
  const Verdict found = verdict(of(Topology::kPipeline, JobFault::kWholeHost, 2));
  EXPECT_EQ(found, (Verdict{"late_host", -1, truth_.fault_hosts[0], Fault::kWholeHost}));
}

TEST_F(JobDiagnosis, NamesTheWholeHostThoughItsRanksTakeTurnsAtComingLast) {
  const Verdict found = verdict(of(Topology::kFsdp2, JobFault::kWholeHost, 3));
  EXPECT_EQ(found, (Verdict{"late_host", -1, truth_.fault_hosts[0], Fault::kWholeHost}));
}

TEST_F(JobDiagnosis, OfHostsThatAreLateInTurnIsHostBoundAndBlamesNobody) {
  for (const std::uint64_t seed : {1, 2, 3}) {
    EXPECT_EQ(verdict(of(Topology::kTpFsdp, JobFault::kLaunchBound, seed)),
              (Verdict{"host_bound", -1, "", Fault::kLaunchBound}))
        << "seed " << seed;
  }
}

TEST_F(JobDiagnosis, TellsTransfersThatAreTooBigFromTransfersIssuedLate) {
  for (const Topology topology : {Topology::kDdp, Topology::kFsdp2, Topology::kTpFsdp}) {
    EXPECT_EQ(verdict(of(topology, JobFault::kTooBig)).fault, Fault::kTooBig) << name_of(topology);
    EXPECT_EQ(verdict(of(topology, JobFault::kIssuedLate)).fault, Fault::kIssuedLate) << name_of(topology);
  }
}

TEST_F(JobDiagnosis, IsTheSameWithAndWithoutCudaGraphs) {
  for (const Topology topology : {Topology::kFsdp2, Topology::kPipeline}) {
    for (const JobFault fault : {JobFault::kClock, JobFault::kImbalance, JobFault::kHostPause}) {
      ModernJob job = of(topology, fault, 5);
      const Verdict without = verdict(job);
      job.cuda_graphs = true;
      EXPECT_EQ(verdict(job), without) << name_of(topology) << ' ' << name_of(fault);
    }
  }
}

TEST_F(JobDiagnosis, BlamesNobodyInCleanJobs) {
  for (const Topology topology :
       {Topology::kDdp, Topology::kFsdp2, Topology::kHsdp, Topology::kTpFsdp, Topology::kPipeline}) {
    EXPECT_EQ(verdict(of(topology, JobFault::kNone, 6)), (Verdict{"no_culprit", -1, "", Fault::kNone}))
        << name_of(topology);
  }
}

}  // namespace
}  // namespace paceline::diagnose
