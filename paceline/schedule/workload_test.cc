#include "paceline/schedule/workload.h"

#include <gtest/gtest.h>

#include "paceline/base/error.h"
#include "paceline/base/file.h"
#include "paceline/schedule/test_data.h"

namespace paceline::schedule {
namespace {

Workload read_text(const std::string& name, const std::string& text) {
  const std::filesystem::path path = std::filesystem::path(::testing::TempDir()) / name;
  base::write_text_file(path, text);
  return read_workload(path);
}

TEST(Workloads, BadLinesAreNamedAndTheRestIsKept) {
  const Workload workload = read_text("bad.csv",
                                      "name,time,application,num_replicas,batch_size\n"
                                      "a,5,bert,2,24\n"
                                      "b,-1,bert,2,24\n"
                                      "c,7,bert,zero,24\n"
                                      "d,8\n"
                                      "e,1,bert,1,12\n");
  ASSERT_EQ(workload.jobs.size(), 2u);
  EXPECT_EQ(workload.jobs[0].name, "e");  // by submission
  ASSERT_EQ(workload.problems.size(), 3u);
  EXPECT_TRUE(workload.problems[0].where.ends_with("bad.csv:3"));
  EXPECT_EQ(workload.problems[0].what, "time '-1' is not a number of seconds from 0");
  EXPECT_TRUE(workload.problems[2].where.ends_with("bad.csv:5"));
}

TEST(Workloads, ReadsSacct) {
  const Workload workload =
      read_text("sacct.txt",
                "JobID|JobName|Partition|Submit|Start|End|Timelimit|AllocTRES|State\n"
                "7|train|gpu|2025-01-31T23:59:00|2025-02-01T00:00:30|2025-02-01T01:00:30|1-00:00:00|billing=8,gres/"
                "gpu=8,gres/gpu:a100=8|COMPLETED\n"
                "7.batch|batch||2025-01-31T23:59:00|2025-02-01T00:00:30|2025-02-01T01:00:30|||COMPLETED\n"
                "8|cpu|cpu|2025-01-31T23:59:00|2025-02-01T00:00:30|2025-02-01T01:00:30|60|cpu=4|COMPLETED\n"
                "9|wait|gpu|2025-01-31T23:59:00|Unknown|Unknown|60|gres/gpu=1|PENDING\n"
                "10|odd|gpu|2025-01-31T23:59:00|2025-01-30T00:00:00|2025-02-01T01:00:30|60|gres/gpu=1|COMPLETED\n");
  ASSERT_EQ(workload.jobs.size(), 1u);
  EXPECT_EQ(workload.jobs[0].gpus, 8);
  EXPECT_EQ((workload.jobs[0].start - workload.jobs[0].submit).count(), 90'000'000'000);
  EXPECT_EQ(workload.jobs[0].limit.count(), 86400LL * 1'000'000'000);
  ASSERT_EQ(workload.problems.size(), 1u);
  EXPECT_EQ(workload.problems[0].what, "started before it was submitted");
}

TEST(Workloads, WhatIsWrittenAsSacctIsReadBack) {
  Workload workload{"w", {}, {}};
  JobRequest job;
  job.name = "1", job.gpus = 4, job.submit = *parse_timestamp("2025-03-01T00:00:00");
  job.start = job.submit + std::chrono::seconds(60), job.end = job.start + std::chrono::seconds(3600);
  job.limit = std::chrono::seconds(7200);
  workload.jobs.push_back(job);
  const Workload back = read_text("written.txt", to_sacct(workload));
  ASSERT_EQ(back.jobs.size(), 1u);
  EXPECT_EQ(back.jobs[0].submit, job.submit);
  EXPECT_EQ(back.jobs[0].end, job.end);
  EXPECT_EQ(back.jobs[0].limit, job.limit);
}

TEST(Workloads, SlurmDurations) {
  EXPECT_EQ(parse_slurm_duration("90")->count(), 5400LL * 1'000'000'000);
  EXPECT_EQ(parse_slurm_duration("01:30")->count(), 90LL * 1'000'000'000);
  EXPECT_EQ(parse_slurm_duration("2-03")->count(), 51LL * 3600 * 1'000'000'000);
  EXPECT_FALSE(parse_slurm_duration("UNLIMITED").has_value());
}

TEST(Workloads, ReadsSwf) {
  const Workload workload = read_text("log.swf",
                                      "; Version: 2.2\n"
                                      "1 0 10 100 4 -1 -1 4 200 -1 1 1 1 -1 2 1 -1 -1\n"
                                      "2 5 -1 -1 4 -1 -1 4 200 -1 0 1 1 -1 2 1 -1 -1\n"
                                      "3 6 0 x 4 -1 -1 4 200 -1 0 1 1 -1 2 1 -1 -1\n");
  ASSERT_EQ(workload.jobs.size(), 1u);
  EXPECT_EQ(workload.jobs[0].gpus, 4);
  ASSERT_EQ(workload.problems.size(), 1u);
  EXPECT_TRUE(workload.problems[0].where.ends_with("log.swf:4"));
}

TEST(Workloads, UnknownFilesAreRefusedWithTheFormatsThatAreKnown) {
  EXPECT_THROW(read_text("x.csv", "hello,world\n"), Error);
}

// Counts of jobs: the data's README and dl2.md section 4.
TEST(Workloads, ReadsThePublishedTraces) {
  PACELINE_SCHEDULE_DATA(data);
  EXPECT_EQ(read_workload(data / "pollux/philly.csv.gz").jobs.size(), 82247u);  // and an empty last line
  EXPECT_EQ(read_workload(data / "traces/tiresias/60_job.csv").jobs.size(), 60u);
  EXPECT_EQ(read_workload(data / "pollux/workloads/workload-6.csv").jobs.size(), 160u);
  const Workload alibaba = read_workload(data / "traces/alibaba_gpu_v2023/openb_pod_list_default.csv.gz");
  EXPECT_GT(alibaba.jobs.size(), 6000u);
  for (const auto& entry : std::filesystem::recursive_directory_iterator(data))
    if (entry.is_regular_file() && entry.path().string().find(".trace") != std::string::npos) {
      const Workload workload = read_workload(entry.path());
      EXPECT_FALSE(workload.jobs.empty()) << entry.path();
      EXPECT_TRUE(workload.problems.empty()) << entry.path() << ": " << workload.problems.front().what;
    }
}

}  // namespace
}  // namespace paceline::schedule
