#include "paceline/diagnose/anonymise.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "paceline/diagnose/diagnosis.h"
#include "paceline/diagnose/faults.h"
#include "paceline/trace/understand/names.h"
#include "tests/support/kineto_writer.h"
#include "tests/support/synthetic_job.h"

namespace paceline::diagnose {
namespace {

using test_support::KinetoWriter;
using test_support::TrueSlice;

std::vector<trace::RankTrace> read_all(const std::vector<std::string>& texts) {
  std::vector<trace::RankTrace> ranks;
  for (const std::string& text : texts) {
    ranks.push_back(test_support::read_trace(text));
    ranks.back().rank = ranks.back().rank.value_or(static_cast<std::uint32_t>(ranks.size() - 1));
  }
  return ranks;
}

TEST(Anonymise, LeavesNoTextOfTheTraceButWhatTheRulesGoBy) {
  std::vector<TrueSlice> slices;
  std::int64_t time = KinetoWriter::kBaseTime;
  const auto add = [&](std::string name, std::string category, std::string args = "", std::int64_t correlation = 0) {
    slices.push_back({std::move(name), std::move(category), 31000, 31000, time += 1000, 500, correlation, args});
  };
  add("ProfilerStep#3", "user_annotation");
  add("ProfilerStep#3 of secret run", "user_annotation");
  add("secret::operator", "cpu_op", R"("Input Dims": [["secret"], [4, 5]])");
  add("secret_load_batch", "user_annotation");
  add("autograd::engine::evaluate_function: SecretBackward0", "cpu_op");
  add("nccl:secret_all_reduce", "user_annotation");
  add("record_param_comms", "cpu_op",
      R"("Collective name": "secret_allreduce", "Process Group Name": "secret_dp", "dtype": "SecretType", )"
      R"("Process Group Ranks": "[secret]")");
  add("cudaLaunchKernel", "cuda_runtime", "", 7);
  add("secret_call", "cuda_runtime");
  add("ncclDevKernel_AllReduce_Sum_secret(ncclDevKernelArgs)", "kernel");
  add("secret_gemm_kernel<Secret>", "kernel", "", 7);
  add("Memcpy secret", "gpu_memcpy");
  std::vector<trace::RankTrace> ranks = read_all({test_support::trace_text(slices, {})});
  ranks[0].host = "secret-host";
  ranks[0].backend = "secret";
  ranks[0].source = "/home/secret/trace.json";
  ranks[0].devices.push_back({0, "secret"});
  ranks[0].lanes[0].name = ranks[0].lanes[0].process_name = ranks[0].lanes[0].process = "secret";
  anonymise(ranks);
  const trace::RankTrace& trace = ranks[0];
  std::string all = trace.host + trace.backend + trace.source;
  for (std::uint32_t id = 0; id < trace.names.size(); ++id) all.append(" ").append(trace.names.text(base::NameId{id}));
  for (const trace::Lane& lane : trace.lanes) {
    all.append(lane.name).append(lane.process_name).append(lane.process).append(lane.thread);
  }
  for (const std::string_view word : {"secret", "Secret"}) EXPECT_EQ(all.find(word), std::string::npos) << all;
  EXPECT_TRUE(trace.devices.empty());
  for (const std::string_view kept :
       {"ProfilerStep#3", "record_param_comms", "cudaLaunchKernel", "nccl:all_reduce", "ncclDevKernel_all_reduce"}) {
    EXPECT_NE(all.find(kept), std::string::npos) << kept << " in " << all;
  }
  EXPECT_EQ(*std::min_element(trace.slices.start.begin(), trace.slices.start.end()), 0);
}

TEST(Anonymise, KeepsTheClassOfEveryName) {
  for (const std::string name : {"DataLoader.__next__", "my_load_batch", "ampere_sgemm_128x64", "flash_fwd_kernel",
                                 "cudaMallocAsync", "cudaDeviceSynchronize", "aten::add_", "vectorized_elementwise"}) {
    for (const char* category : {"cpu_op", "user_annotation", "kernel", "cuda_runtime"}) {
      std::vector<trace::RankTrace> ranks =
          read_all({test_support::trace_text({{name, category, 1, 1, KinetoWriter::kBaseTime, 10}}, {})});
      anonymise(ranks);
      const std::string_view now = ranks[0].name(0);
      EXPECT_EQ(is_input(now), is_input(name)) << now;
      EXPECT_EQ(is_compute_bound(now), is_compute_bound(name)) << now;
      EXPECT_EQ(is_allocator_call(now), is_allocator_call(name)) << now;
      EXPECT_EQ(is_synchronisation(now), is_synchronisation(name)) << now;
    }
  }
}

TEST(Anonymise, ChangesNothingOfADiagnosisButNames) {
  test_support::JobPlan plan;
  plan.late_rank = 3;
  plan.late_by = 2'000'000;
  plan.groups = true;
  const std::vector<std::string> texts = test_support::make_job(plan).texts;
  std::vector<trace::RankTrace> plain = read_all(texts), hashed = read_all(texts);
  anonymise(hashed);
  const auto diagnosed = [](std::vector<trace::RankTrace>& ranks) {
    std::vector<trace::RankSummary> summaries;
    for (trace::RankTrace& rank : ranks) summaries.push_back(trace::reduce(std::move(rank)));
    return diagnose(trace::assemble(std::move(summaries)));
  };
  const Diagnosis before = diagnosed(plain), after = diagnosed(hashed);
  ASSERT_EQ(after.findings.size(), before.findings.size());
  for (std::size_t i = 0; i < before.findings.size(); ++i) {
    EXPECT_EQ(after.findings[i].kind, before.findings[i].kind);
    EXPECT_EQ(after.findings[i].fault, before.findings[i].fault);
    EXPECT_EQ(after.findings[i].rank, before.findings[i].rank);
    EXPECT_EQ(after.findings[i].cost, before.findings[i].cost);
  }
  EXPECT_EQ(after.late.ranks, std::vector<std::uint32_t>{3});
}

}  // namespace
}  // namespace paceline::diagnose
