#include "tests/support/synthetic_job.h"

#include <fmt/core.h>

#include <algorithm>

#include "paceline/base/file.h"
#include "paceline/base/rng.h"
#include "paceline/trace/reader.h"
#include "tests/support/kineto_writer.h"

namespace paceline::test_support {
namespace {

constexpr std::int64_t kHost = 4242, kMain = 4242, kGlooThread = 4300;
constexpr std::int64_t kComputeStream = 7, kCommStream = 20;
constexpr std::int64_t kLaunch = 4'000, kLaunchDelay = 5'000;  // ns a launch takes; until the kernel can start

class Simulation {
 public:
  explicit Simulation(const JobPlan& plan)
      : plan_(plan), rng_(plan.seed), host_(plan.ranks, kStart), device_(plan.ranks, kStart), slices_(plan.ranks) {}

  SyntheticJob run() {
    if (plan_.late_rank >= 0 && plan_.lateness == Lateness::kLateStart) host_[late()] += plan_.late_by;
    for (std::uint32_t step = 0; step < plan_.steps; ++step) run_step(step);
    for (std::uint32_t rank = 0; rank < plan_.ranks; ++rank) {
      if (static_cast<std::int32_t>(rank) != plan_.missing_rank) job_.texts.push_back(text_of(rank));
    }
    return std::move(job_);
  }

 private:
  static constexpr std::int64_t kStart = KinetoWriter::kBaseTime + 3'600'000'000'000;

  std::uint32_t late() const { return static_cast<std::uint32_t>(plan_.late_rank); }

  void run_step(std::uint32_t step) {
    const std::vector<std::int64_t> begin = host_;
    for (std::uint32_t c = 0; c < plan_.collectives; ++c) {
      const bool halves = plan_.groups && c % 2 == 1;
      for (std::uint32_t rank = 0; rank < plan_.ranks; ++rank) compute(rank, c);
      const std::uint32_t size = halves ? plan_.ranks / 2 : plan_.ranks;
      for (std::uint32_t first = 0; first < plan_.ranks; first += size) collective(first, size, halves);
    }
    for (std::uint32_t rank = 0; rank < plan_.ranks; ++rank) {
      const std::int64_t done = std::max(host_[rank], device_[rank]);
      if (plan_.device) add(rank, "cudaDeviceSynchronize", "cuda_runtime", kMain, host_[rank], done);
      add(rank, fmt::format("ProfilerStep#{}", step), "user_annotation", kMain, begin[rank], done + 10'000);
      host_[rank] = done + 20'000;
      device_[rank] = std::max(device_[rank], done);
    }
  }

  void add(std::uint32_t rank, std::string name, std::string category, std::int64_t thread, std::int64_t begin,
           std::int64_t end, std::int64_t correlation = 0, std::string args = "") {
    const bool device = category == "kernel";
    if (end < begin) end = begin;
    slices_[rank].push_back({std::move(name), std::move(category), device ? 0 : kHost, thread, begin, end - begin,
                             correlation, std::move(args)});
  }

  /// A host operator of `time`; with a device it launches a kernel of that length.
  void compute(std::uint32_t rank, std::uint32_t index) {
    const bool is_late = static_cast<std::int32_t>(rank) == plan_.late_rank;
    if (is_late && index == 0 && plan_.late_by > 0) be_late(rank);
    if (is_late && index > 0 && plan_.late_each > 0) {
      if (plan_.device) {
        launch(rank, "aten::sort", "slow_sort", kComputeStream, plan_.late_each, "");
      } else {
        add(rank, "aten::sort", "cpu_op", kMain, host_[rank], host_[rank] + plan_.late_each);
        host_[rank] += plan_.late_each;
      }
    }
    const std::int64_t time =
        plan_.work + static_cast<std::int64_t>(rng_.exponential(static_cast<double>(plan_.jitter)));
    if (plan_.device) {
      launch(rank, "aten::mm", "gemm_128x128_tn", kComputeStream, time, "");
    } else {
      add(rank, "aten::mm", "cpu_op", kMain, host_[rank], host_[rank] + time);
      host_[rank] += time;
    }
  }

  void be_late(std::uint32_t rank) {
    switch (plan_.lateness) {
      case Lateness::kHostOperator:
        add(rank, plan_.late_name, "cpu_op", kMain, host_[rank], host_[rank] + plan_.late_by);
        host_[rank] += plan_.late_by;
        break;
      case Lateness::kHostGap:
        host_[rank] += plan_.late_by;
        break;
      case Lateness::kKernel:
        launch(rank, "aten::sort", plan_.late_name, kComputeStream, plan_.late_by, "");
        break;
      case Lateness::kLateStart:
        break;
    }
  }

  /// Launches a kernel from inside an operator; returns when it can start.
  std::int64_t launch(std::uint32_t rank, const std::string& op, const std::string& kernel, std::int64_t stream,
                      std::int64_t time, const std::string& args) {
    const std::int64_t begin = host_[rank], call = begin + 2'000;
    add(rank, "cudaLaunchKernel", "cuda_runtime", kMain, call, call + kLaunch, ++correlation_);
    host_[rank] = call + kLaunch + 2'000;
    add(rank, op, "cpu_op", kMain, begin, host_[rank]);
    const std::int64_t start = std::max(device_[rank], call + kLaunchDelay);
    if (time >= 0) {
      add(rank, kernel, "kernel", stream, start, start + time, correlation_, stream_args(stream) + args);
      device_[rank] = start + time;
    }
    return start;
  }

  static std::string stream_args(std::int64_t stream) { return fmt::format("\"device\": 0, \"stream\": {}", stream); }

  void collective(std::uint32_t first, std::uint32_t size, bool halves) {
    TrueCollective truth;
    std::vector<std::int64_t> correlations;
    for (std::uint32_t rank = first; rank < first + size; ++rank) {
      truth.ranks.push_back(rank);
      truth.begins.push_back(plan_.device ? launch(rank, "c10d::allreduce_", "", kCommStream, -1, "") : host_[rank]);
      correlations.push_back(correlation_);
    }
    const auto last = std::max_element(truth.begins.begin(), truth.begins.end());
    truth.last_rank = truth.ranks[static_cast<std::size_t>(last - truth.begins.begin())];
    for (std::size_t i = 0; i < truth.ranks.size(); ++i) {
      const std::uint32_t rank = truth.ranks[i];
      const std::int64_t end = *last + plan_.transfer + (plan_.end_noise > 0 ? rng_.between(0, plan_.end_noise) : 0);
      truth.ends.push_back(end);
      const auto place = std::pair{rank, static_cast<std::uint32_t>(job_.collectives.size())};
      if (plan_.skipped != place) emit(rank, truth.begins[i], end, correlations[i], first, size, halves);
      device_[rank] = end;
      if (plan_.added == place) {
        emit(rank, end + 1'000, end + 50'000, ++correlation_, first, size, halves);
        device_[rank] = end + 51'000;
      }
      if (!plan_.device) host_[rank] = device_[rank];
    }
    ++number_[halves ? 1 : 0];
    job_.collectives.push_back(std::move(truth));
  }

  void emit(std::uint32_t rank, std::int64_t begin, std::int64_t end, std::int64_t correlation, std::uint32_t first,
            std::uint32_t size, bool halves) {
    if (!plan_.device) {
      add(rank, "gloo:all_reduce", "user_annotation", kGlooThread, begin, end, 0, "\"Input Dims\": [[262144]]");
      return;
    }
    std::string members;
    for (std::uint32_t member = first; member < first + size; ++member) {
      members += fmt::format("{}{}", member == first ? "" : ", ", member);
    }
    std::string args = stream_args(kCommStream) +
                       fmt::format(
                           ", \"Collective name\": \"allreduce\", \"In msg nelems\": 262144, \"Out msg nelems\": "
                           "262144, \"Group size\": {}, \"dtype\": \"Float\", \"Process Group Name\": \"{}\", "
                           "\"Process Group Ranks\": \"[{}]\"",
                           size, halves ? 1 + first / size : 0, members);
    if (plan_.sequence) args += fmt::format(", \"Seq\": {}", number_[halves ? 1 : 0]);
    add(rank, "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "kernel", kCommStream, begin,
        end, correlation, args);
  }

  std::string text_of(std::uint32_t rank) const {
    const std::int64_t offset = rank < plan_.clock_offset.size() ? plan_.clock_offset[rank] : 0;
    const double drift = rank < plan_.clock_drift.size() ? plan_.clock_drift[rank] : 0.0;
    const auto shown = [&](std::int64_t time) {
      return time + offset + static_cast<std::int64_t>(drift * static_cast<double>(time - kStart));
    };
    std::string text;
    KinetoWriter writer([&](std::string_view part) { text += part; }, Style{}, rank, plan_.ranks);
    for (TrueSlice slice : slices_[rank]) {
      const std::int64_t end = shown(slice.start + slice.duration);
      slice.start = shown(slice.start);
      slice.duration = end - slice.start;
      writer.slice(slice);
    }
    writer.finish();
    return text;
  }

  const JobPlan& plan_;
  base::Rng rng_;
  std::vector<std::int64_t> host_, device_;  // when each rank's host and device are free
  std::vector<std::vector<TrueSlice>> slices_;
  std::int64_t correlation_ = 0;
  std::int64_t number_[2] = {0, 0};
  SyntheticJob job_;
};

}  // namespace

SyntheticJob make_job(const JobPlan& plan) {
  return Simulation(plan).run();
}

trace::RankTrace read_trace(std::string_view text, const std::string& name) {
  const auto source = base::memory_source(text);
  return trace::read_document(name, *source);
}

trace::Trace load_texts(const std::vector<std::string>& texts, const trace::ReduceOptions& options) {
  std::vector<trace::RankSummary> ranks;
  for (const std::string& text : texts) {
    trace::RankTrace rank = read_trace(text);
    if (!rank.rank) rank.rank = static_cast<std::uint32_t>(ranks.size());
    ranks.push_back(trace::reduce(std::move(rank), options));
  }
  return trace::assemble(std::move(ranks));
}

}  // namespace paceline::test_support
