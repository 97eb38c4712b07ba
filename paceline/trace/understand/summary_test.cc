#include "paceline/trace/understand/summary.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <optional>

#include "paceline/base/rng.h"
#include "paceline/trace/load.h"
#include "paceline/trace/understand/hta_truth.h"
#include "tests/support/kineto_writer.h"
#include "tests/support/synthetic_job.h"

namespace paceline::trace {
namespace {

using test_support::KinetoWriter;
using test_support::read_trace;
using test_support::trace_text;
using test_support::TrueSlice;

constexpr std::int64_t kTime = KinetoWriter::kBaseTime;

std::int64_t parts_of(const StepSummary& step) {
  return step.compute + step.exposed_communication() + step.exposed_copies + step.idle + step.lead + step.tail;
}

void expect_parts_add_up(const RankSummary& rank) {
  for (const StepSummary& step : rank.steps) {
    EXPECT_EQ(parts_of(step), step.end - step.begin);
    EXPECT_LE(step.overlap, std::min(step.compute, step.communication));
    for (const std::int64_t part : {step.compute, step.exposed_communication(), step.exposed_copies, step.idle_host,
                                    step.idle_gap, step.idle_other(), step.lead, step.tail}) {
      EXPECT_GE(part, 0);
    }
  }
}

TEST(Steps, PartsAddUpExactlyOnRandomJobs) {
  base::Rng rng(6);
  for (int round = 0; round < 40; ++round) {
    const RankTrace trace = read_trace(trace_text(test_support::random_slices(rng, 1500), {}));
    const RankSummary summary = reduce(trace);
    ASSERT_GT(summary.steps.size(), 2u);
    expect_parts_add_up(summary);
  }
}

/// Slices anywhere on any stream, overlapping as they like, steps that cut through them.
TEST(Steps, PartsAddUpExactlyOnSlicesWithoutRhymeOrReason) {
  base::Rng rng(7);
  constexpr std::array<std::pair<const char*, const char*>, 4> kWork{{{"gemm", "kernel"},
                                                                      {"ncclDevKernel_AllReduce_Sum_f32", "kernel"},
                                                                      {"Memcpy HtoD", "gpu_memcpy"},
                                                                      {"Memset (Device)", "gpu_memset"}}};
  for (int round = 0; round < 300; ++round) {
    std::vector<TrueSlice> slices;
    for (std::int64_t step = 0; step < 3; ++step) {
      slices.push_back(
          {fmt::format("ProfilerStep#{}", step), "user_annotation", 1, 1, kTime + step * 100'000, 100'000});
    }
    for (std::uint64_t i = rng.below(30); i > 0; --i) {
      const auto& [name, category] = kWork[rng.below(kWork.size())];
      const std::int64_t stream = rng.between(7, 9);
      slices.push_back({name, category, 0, stream, kTime + rng.between(-20'000, 320'000), rng.between(0, 60'000), 0,
                        fmt::format("\"stream\": {}", stream)});
    }
    expect_parts_add_up(reduce(read_trace(trace_text(slices, {}))));
  }
}

TEST(Steps, WithoutMarksAreOneFromTheFirstToTheLastSlice) {
  const RankSummary summary =
      reduce(read_trace(trace_text({{"aten::mm", "cpu_op", 1, 1, kTime + 1'000, 5'000},
                                    {"gemm", "kernel", 0, 7, kTime + 9'000, 2'000, 0, "\"stream\": 7"}},
                                   {})));
  ASSERT_EQ(summary.steps.size(), 1u);
  EXPECT_FALSE(summary.marks_steps);
  EXPECT_EQ(summary.steps[0].number, -1);
  EXPECT_EQ(summary.steps[0].end - summary.steps[0].begin, 10'000);
  EXPECT_EQ(summary.steps[0].lead, 8'000);
  EXPECT_EQ(summary.steps[0].compute, 2'000);
}

TEST(Steps, IdleTimeBelongsToTheHostWhenItLaunchesTooLate) {
  // Three kernels: the second launched after the first had ended, the third in time but 10 us later, a fourth in time
  // but 40 us later.
  const auto kernel = [](std::int64_t at, std::int64_t correlation) {
    return TrueSlice{"gemm", "kernel", 0, 7, kTime + at, 10'000, correlation, "\"stream\": 7"};
  };
  const auto launch = [](std::int64_t at, std::int64_t correlation) {
    return TrueSlice{"cudaLaunchKernel", "cuda_runtime", 1, 1, kTime + at, 1'000, correlation};
  };
  const RankSummary summary = reduce(read_trace(trace_text({{"ProfilerStep#1", "user_annotation", 1, 1, kTime, 200'000},
                                                            launch(5'000, 1),
                                                            launch(25'000, 2),
                                                            launch(27'000, 3),
                                                            launch(29'000, 4),
                                                            kernel(10'000, 1),
                                                            kernel(30'000, 2),
                                                            kernel(50'000, 3),
                                                            kernel(100'000, 4)},
                                                           {})));
  const StepSummary& step = summary.steps.at(0);
  EXPECT_EQ(step.lead, 10'000);
  EXPECT_EQ(step.idle_host, 10'000);
  EXPECT_EQ(step.idle_gap, 10'000);
  EXPECT_EQ(step.idle_other(), 40'000);
  EXPECT_EQ(step.tail, 90'000);
}

std::int64_t sum_of(const RankSummary& summary, const Slot& slot) {
  std::int64_t sum = 0;
  for (std::uint32_t i = slot.items_begin; i < slot.items_end; ++i) sum += summary.slot_items[i].time;
  return sum;
}

TEST(Slots, TileTheStepsAndTheirItemsAddUpToTheNanosecond) {
  for (const bool device : {true, false}) {
    test_support::JobPlan plan;
    plan.device = device;
    plan.ranks = 2;
    plan.late_rank = 1;
    plan.late_by = 30'000'000;
    const RankSummary summary = reduce(read_trace(test_support::make_job(plan).texts[0]));
    ASSERT_FALSE(summary.slots.empty());
    EXPECT_EQ(summary.slots.front().begin, summary.steps.front().begin);
    EXPECT_EQ(summary.slots.back().end, summary.steps.back().end);
    for (std::size_t i = 0; i < summary.slots.size(); ++i) {
      if (i > 0) {
        EXPECT_EQ(summary.slots[i].begin, summary.slots[i - 1].end);
      }
      EXPECT_EQ(sum_of(summary, summary.slots[i]), summary.slots[i].end - summary.slots[i].begin);
    }
  }
}

TEST(Slots, BeforeTheFirstCollectiveHoldWhatMadeTheRankLate) {
  test_support::JobPlan plan;
  plan.late_rank = 1;
  plan.late_by = 30'000'000;
  plan.ranks = 2;
  const RankSummary summary = reduce(read_trace(test_support::make_job(plan).texts[1]));
  std::int64_t load_batch = 0;
  for (const Slot& slot : summary.slots) {
    if (slot.end > summary.collectives.at(0).begin) break;
    for (std::uint32_t i = slot.items_begin; i < slot.items_end; ++i) {
      const SlotItem& item = summary.slot_items[i];
      const bool named = item.name != base::kNone<NameId> && summary.names.text(item.name) == "load_batch";
      if (item.activity == Activity::kHostOp && named) load_batch += item.time;
    }
  }
  EXPECT_EQ(load_batch, 30'000'000);
}

TEST(Slots, ChargeKernelsToTheOperatorThatLaunchedThem) {
  const RankSummary summary = reduce(
      read_trace(trace_text({{"ProfilerStep#1", "user_annotation", 1, 1, kTime, 100'000},
                             {"aten::mm", "cpu_op", 1, 1, kTime + 5'000, 10'000, 0, "\"Input Dims\": [[8, 4], [4, 2]]"},
                             {"cudaLaunchKernel", "cuda_runtime", 1, 1, kTime + 6'000, 1'000, 1},
                             {"sgemm", "kernel", 0, 7, kTime + 20'000, 30'000, 1, "\"stream\": 7"}},
                            {})));
  const auto compute = std::find_if(summary.slot_items.begin(), summary.slot_items.end(),
                                    [](const SlotItem& item) { return item.activity == Activity::kCompute; });
  ASSERT_NE(compute, summary.slot_items.end());
  EXPECT_EQ(compute->time, 30'000);
  EXPECT_EQ(summary.names.text(compute->name), "sgemm");
  EXPECT_EQ(summary.names.text(compute->op), "aten::mm");
  EXPECT_EQ(summary.names.text(compute->shape), "[[8, 4], [4, 2]]");
}

TEST(Slots, AHostThatWaitsInItsOwnCollectiveIsNotIdle) {
  test_support::JobPlan plan;
  plan.device = false;
  plan.ranks = 2;
  plan.late_rank = 1;
  plan.late_by = 30'000'000;
  const RankSummary victim = reduce(read_trace(test_support::make_job(plan).texts[0]));
  for (const SlotItem& item : victim.slot_items) {
    if (item.activity == Activity::kHostGap) {
      EXPECT_LT(item.time, 1'000'000);
    }
  }
}

TEST(Totals, OfOperatorsCountTheirOwnTimeOnce) {
  const RankSummary summary = reduce(read_trace(trace_text(
      {{"aten::linear", "cpu_op", 1, 1, kTime, 10'000}, {"aten::mm", "cpu_op", 1, 1, kTime + 2'000, 5'000}}, {})));
  ASSERT_EQ(summary.operators.size(), 2u);
  EXPECT_EQ(summary.names.text(summary.operators[0].name), "aten::linear");  // ties: first seen first
  EXPECT_EQ(summary.operators[0].self, 5'000);
  EXPECT_EQ(summary.operators[0].total, 10'000);
  EXPECT_EQ(summary.operators[1].self, 5'000);
}

TEST(Collectives, TakeSizesFromShapesWhereNothingElseTellsThem) {
  const RankSummary summary = reduce(read_trace(
      trace_text({{"gloo:all_reduce", "user_annotation", 1, 2, kTime, 10'000, 0, "\"Input Dims\": [[3, 4], [5], []]"},
                  {"aten::mm", "cpu_op", 1, 1, kTime, 1'000}},
                 {})));
  ASSERT_EQ(summary.collectives.size(), 1u);
  EXPECT_EQ(summary.collectives[0].elements, 17);
  EXPECT_FALSE(summary.collectives[0].on_device);
}

/// One step of 100 us: computation on stream 7; on stream 20 a collective and `name` for 10 us.
RankSummary with_kernel_beside_a_collective(const char* name) {
  const auto kernel = [](const char* what, std::int64_t stream, std::int64_t at, std::int64_t duration) {
    return TrueSlice{what, "kernel", 0, stream, kTime + at, duration, 0, fmt::format("\"stream\": {}", stream)};
  };
  return reduce(read_trace(trace_text({{"ProfilerStep#1", "user_annotation", 1, 1, kTime, 100'000},
                                       kernel("my_own_kernel", 7, 1'000, 5'000),
                                       kernel("ampere_sgemm_128x64_tn", 7, 10'000, 20'000),
                                       kernel("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", 20, 10'000, 10'000),
                                       kernel(name, 20, 30'000, 10'000)},
                                      {})));
}

TEST(Unrecognised, IsAKernelThatNoTableKnowsBesideCollectives) {
  const RankSummary summary = with_kernel_beside_a_collective("void acme::fast_ring_exchange<4>(char*)");
  ASSERT_EQ(summary.unrecognised.size(), 1u);
  EXPECT_EQ(summary.names.text(summary.unrecognised[0].name), "void acme::fast_ring_exchange<4>(char*)");
  EXPECT_EQ(summary.unrecognised[0].total, 10'000);
  EXPECT_EQ(summary.unrecognised[0].count, 1);
  EXPECT_EQ(summary.steps[0].compute, 35'000);  // it still counts as computation
  EXPECT_EQ(summary.collectives.size(), 1u);
}

TEST(Unrecognised, IsNotCommunicationOfKnownLibraries) {
  for (const char* name : {"void deep_ep::intranode::dispatch<8, 768, 8192>(int4*)", "nvshmemi_proxy_quiet",
                           "void vllm::cross_device_reduce_1stage<__half, 2>(vllm::RankData*, int)"}) {
    const RankSummary summary = with_kernel_beside_a_collective(name);
    EXPECT_TRUE(summary.unrecognised.empty()) << name;
    EXPECT_EQ(summary.collectives.size(), 2u) << name;
  }
}

TEST(Unrecognised, IsNothingOnAStreamThatAlsoComputes) {
  const RankSummary summary =
      with_kernel_beside_a_collective("void at::native::(anonymous namespace)::chunk_cat_cuda_kernel<float>(char**)");
  EXPECT_TRUE(summary.unrecognised.empty());
}

TEST(Collectives, TakeTheirKindFromTheAnnotationOfAnyBackend) {
  // NCCL runs all-to-all as sends and receives; only the annotation around the launch tells.
  for (const char* span : {"nccl:all_to_all", "nccl2:all_to_all", "c10d::alltoall_base_"}) {
    const RankSummary summary = reduce(read_trace(trace_text(
        {{span, "user_annotation", 1, 1, kTime, 5'000, 0, "\"Input Dims\": [[3, 4]]"},
         {"cudaLaunchKernel", "cuda_runtime", 1, 1, kTime + 1'000, 1'000, 1},
         {"ncclDevKernel_SendRecv(ncclDevComm*)", "kernel", 0, 20, kTime + 9'000, 2'000, 1, "\"stream\": 20"}},
        {})));
    ASSERT_EQ(summary.collectives.size(), 1u) << span;
    EXPECT_EQ(summary.collectives[0].kind, CollectiveKind::kAllToAll) << span;
    EXPECT_EQ(summary.collectives[0].elements, 12) << span;
  }
}

TEST(Reduce, KeepsOrReleasesTheRowsAndSaysTheSame) {
  base::Rng rng(8);
  RankTrace trace = read_trace(trace_text(test_support::random_slices(rng, 500), {}));
  const RankSummary kept = reduce(trace);
  EXPECT_GT(trace.slices.size(), 0u);
  const RankSummary released = reduce(std::move(trace));
  EXPECT_EQ(kept.device.compute, released.device.compute);
  EXPECT_EQ(kept.collectives.size(), released.collectives.size());
}

TEST(Reduce, OfATraceWithoutSlicesIsEmpty) {
  RankTrace trace;
  trace.rank = 0;
  const RankSummary summary = reduce(trace);
  EXPECT_TRUE(summary.steps.empty());
  EXPECT_TRUE(summary.collectives.empty());
}

// --- recorded jobs ------------------------------------------------------------------------------------------------

std::optional<std::vector<RankSummary>> recorded(const std::string& path, const ReduceOptions& options = {}) {
  const char* data = std::getenv("PACELINE_DATA");
  if (data == nullptr) return std::nullopt;
  return load_summaries({data + path}, {false}, options).ranks;
}

constexpr double kMicrosecond = 1'000;
void expect_us(std::int64_t ns, double us, const std::string& what) {
  EXPECT_NEAR(static_cast<double>(ns), us * 1e3, kMicrosecond) << what;
}

// Truth: an independent script over the raw JSON of PARAM's dlrm_kineto.tar.gz; equal to HolisticTraceAnalysis 0.6.1.
TEST(DlrmJob, EqualsTheTruthTable) {
  const auto ranks = recorded("/dpro/param/dlrm_kineto.tar.gz");
  if (!ranks) GTEST_SKIP() << "SKIPPED: no data";
  struct Truth {
    double start, duration, communication, compute, overlap, percent, idle;
  };
  constexpr std::array<Truth, 8> kTruth{{{426674, 14455, 5798, 1034, 261, 4.50, 6419},
                                         {421205, 19901, 11336, 1246, 280, 2.47, 6428},
                                         {428092, 13017, 3492, 1068, 275, 7.88, 7046},
                                         {421900, 19313, 9774, 1240, 324, 3.31, 8145},
                                         {424049, 17979, 6587, 1126, 37, 0.56, 8887},
                                         {424195, 17797, 6251, 1041, 40, 0.64, 9121},
                                         {428080, 13091, 3558, 1051, 269, 7.56, 7051},
                                         {428718, 12509, 1746, 1059, 166, 9.51, 8308}}};
  ASSERT_EQ(ranks->size(), 8u);
  for (std::size_t r = 0; r < 8; ++r) {
    const RankSummary& rank = (*ranks)[r];
    const Truth& truth = kTruth[r];
    const std::string name = fmt::format("rank {}", r);
    ASSERT_EQ(rank.steps.size(), 1u) << name;
    const StepSummary& step = rank.steps[0];
    EXPECT_EQ(step.number, 10);
    expect_us(step.begin - 1'694'128'201'000'000'000, truth.start, name);
    expect_us(step.end - step.begin, truth.duration, name);
    expect_us(step.communication, truth.communication, name);
    expect_us(step.compute, truth.compute, name);
    expect_us(step.overlap, truth.overlap, name);
    expect_us(step.idle, truth.idle, name);
    expect_us(rank.device.idle, truth.idle, name);
    EXPECT_NEAR(100.0 * static_cast<double>(step.overlap) / static_cast<double>(step.communication), truth.percent,
                0.01);
    EXPECT_EQ(rank.collectives.size(), 8u);
    EXPECT_EQ(parts_of(step), step.end - step.begin);
  }
}

struct HtaTruth {
  bool skip_last;
  double idle, compute, span, all_reduce_sum, copies;
  std::int64_t all_reduces, device_events;
  std::array<double, 3> stream_7, stream_14;  // host wait, kernel wait, other
};

// Truth: HolisticTraceAnalysis 0.6.1 (PyPI: traceinsight) on its own df_index_resolver test trace, with
// include_last_profiler_step False and True.
TEST(DfIndexResolver, EqualsHolisticTraceAnalysisWithAndWithoutTheLastStep) {
  constexpr std::array<HtaTruth, 2> kTruth{
      {{true, 643612, 496485, 1396669, 238274, 18298, 1616, 17832, {791330, 16727, 73829}, {933139, 5568, 4444}},
       {false, 732352, 620516, 1732965, 357343, 22754, 2020, 22290, {876151, 21032, 192512}, {1145111, 9343, 7320}}}};
  for (const HtaTruth& truth : kTruth) {
    ReduceOptions options;
    options.skip_last_step = truth.skip_last;
    const auto ranks = recorded("/dpro/hta/df_index_resolver", options);
    if (!ranks) GTEST_SKIP() << "SKIPPED: no data";
    ASSERT_EQ(ranks->size(), 1u);
    const RankSummary& rank = ranks->front();
    const std::string name = truth.skip_last ? "without the last step" : "all";
    EXPECT_EQ(rank.rank, 1u);
    EXPECT_EQ(rank.steps.size(), truth.skip_last ? 4u : 5u);
    expect_us(rank.device.idle, truth.idle, name);
    expect_us(rank.device.compute, truth.compute, name);
    expect_us(rank.device.span, truth.span, name);
    expect_us(rank.device.copies, truth.copies, name);
    EXPECT_EQ(rank.device.overlap, 0);
    EXPECT_EQ(rank.kernels.size(), 51u);
    std::int64_t events = 0;
    for (const NameTotal& kernel : rank.kernels) events += kernel.count;
    EXPECT_EQ(events, truth.device_events);
    const auto all_reduce = std::find_if(rank.kernels.begin(), rank.kernels.end(), [](const NameTotal& kernel) {
      return kernel.collective == CollectiveKind::kAllReduce;
    });
    ASSERT_NE(all_reduce, rank.kernels.end());
    EXPECT_EQ(all_reduce->count, truth.all_reduces);
    expect_us(all_reduce->total, truth.all_reduce_sum, name);
    expect_us(all_reduce->min, 4, name);
    expect_us(all_reduce->max, 4979, name);
    std::vector<hta_truth::Kernel> kernels;
    for (const NameTotal& kernel : rank.kernels) {
      kernels.push_back({kernel.total / 1000, kernel.count, kernel.min / 1000, kernel.max / 1000});
    }
    std::sort(kernels.rbegin(), kernels.rend());
    const auto& expected_kernels = truth.skip_last ? hta_truth::kWithoutLastStep : hta_truth::kAllSteps;
    EXPECT_TRUE(std::equal(kernels.begin(), kernels.end(), expected_kernels.begin(), expected_kernels.end())) << name;
    for (const StreamIdle& stream : rank.device.streams) {
      const auto* expected = stream.stream == "7"    ? &truth.stream_7
                             : stream.stream == "14" ? &truth.stream_14
                                                     : nullptr;
      if (expected == nullptr) continue;
      expect_us(stream.host_wait, (*expected)[0], name + " stream " + stream.stream);
      expect_us(stream.kernel_wait, (*expected)[1], name + " stream " + stream.stream);
      expect_us(stream.other, (*expected)[2], name + " stream " + stream.stream);
    }
  }
}

}  // namespace
}  // namespace paceline::trace
