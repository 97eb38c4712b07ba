#include "tests/support/kineto_writer.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <unordered_map>
#include <utility>

namespace paceline::test_support {
namespace {

std::string decimal_us(std::int64_t ns) {
  return fmt::format("{}{}.{:03}", ns < 0 ? "-" : "", std::abs(ns) / 1000, std::abs(ns) % 1000);
}

}  // namespace

std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (static_cast<unsigned char>(c) < 0x20) {
      out += fmt::format("\\u{:04x}", static_cast<int>(c));
    } else {
      out += c;
    }
  }
  return out + '"';
}

KinetoWriter::KinetoWriter(Sink sink, Style style, std::int64_t rank, std::int64_t world_size)
    : sink_(std::move(sink)), style_(std::move(style)), rank_(rank), world_size_(world_size) {
  if (style_.mark) sink_("\xEF\xBB\xBF");
  if (style_.bare_list) {
    sink_("[");
    return;
  }
  sink_("{");
  if (!style_.header_last) header(true);
  const std::string_view key = style_.pretty ? "\"traceEvents\": [" : "\"traceEvents\":[";
  if (!style_.header_last) sink_(style_.pretty ? ",\n  " : ",");
  sink_(key);
}

void KinetoWriter::header(bool first) {
  const bool pretty = style_.pretty;
  const std::string_view colon = pretty ? ": " : ":";
  bool any = false;
  const auto member = [&](std::string_view key, const std::string& value) {
    if (any || !first) sink_(",");
    any = true;
    if (pretty) sink_("\n  ");
    sink_(fmt::format("\"{}\"{}{}", key, colon, value));
  };
  member("schemaVersion", "1");
  member("deviceProperties",
         "[{\"id\": 0, \"name\": \"NVIDIA H100 80GB HBM3\", \"totalGlobalMem\": 85028896768, "
         "\"computeMajor\": 9, \"computeMinor\": 0, \"numSms\": 132}]");
  if (rank_ >= 0) {
    const std::string groups =
        !style_.process_groups.empty()
            ? style_.process_groups
            : fmt::format(
                  "[{{\"pg_name\": \"0\", \"pg_desc\": \"default_pg\", \"backend_config\": \"cuda:nccl\", "
                  "\"pg_size\": {}}}]",
                  world_size_);
    member("distributedInfo", fmt::format("{{\"backend\": \"nccl\", \"rank\": {}, \"world_size\": {}, \"pg_count\": 1, "
                                          "\"pg_config\": {}, \"nccl_version\": \"2.21.5\"}}",
                                          rank_, world_size_, groups));
  }
  member("displayTimeUnit", "\"ms\"");
  if (style_.clock == Clock::kRelativeUs) member("baseTimeNanoseconds", fmt::format("{}", kBaseTime));
}

std::string KinetoWriter::time(std::int64_t ns) const {
  switch (style_.clock) {
    case Clock::kIntegerUs:
      return fmt::format("{}", ns / 1000);
    case Clock::kAbsoluteUs:
      return decimal_us(ns);
    case Clock::kRelativeUs:
      return decimal_us(ns - kBaseTime);
    case Clock::kTextUs:
      return '"' + decimal_us(ns) + '"';
  }
  return {};
}

std::string KinetoWriter::duration(std::int64_t ns) const {
  if (style_.clock == Clock::kIntegerUs) return fmt::format("{}", ns / 1000);
  return style_.clock == Clock::kTextUs ? '"' + decimal_us(ns) + '"' : decimal_us(ns);
}

std::string KinetoWriter::id(std::int64_t number) const {
  return style_.text_ids ? fmt::format("\"{}\"", number) : fmt::format("{}", number);
}

void KinetoWriter::raw(std::string_view text) {
  if (any_) sink_(",");
  any_ = true;
  if (style_.pretty) sink_(style_.windows_lines ? "\r\n  " : "\n  ");
  sink_(text);
}

void KinetoWriter::event(const Members& members, const std::string& args) {
  // Line breaks where PyTorch has them: behind "tid" and around the arguments.
  const std::string_view line = style_.windows_lines ? "\r\n    " : "\n    ";
  const std::string_view colon = style_.pretty ? ": " : ":";
  std::string text = "{";
  bool first = true;
  for (const auto& [key, value] : members) {
    if (!first) text += style_.pretty && key == "ts" ? "," : style_.pretty ? ", " : ",";
    if (style_.pretty && key == "ts") text += line;
    if (first && style_.pretty) text += line;
    first = false;
    text += fmt::format("\"{}\"{}{}", key, colon, value);
  }
  if (!args.empty()) {
    text += ',';
    if (style_.pretty) text += line;
    text += fmt::format("\"args\"{}{{{}}}", colon, args);
  }
  if (style_.pretty) text += style_.windows_lines ? "\r\n  " : "\n  ";
  raw(text + "}");
}

void KinetoWriter::slice(const TrueSlice& slice) {
  std::string args = slice.args;
  if (slice.correlation != 0) {
    args += fmt::format("{}\"correlation\": {}", args.empty() ? "" : ", ", id(slice.correlation));
  }
  const Members common{{"cat", quoted(slice.category)},
                       {"name", quoted(slice.name)},
                       {"pid", id(slice.process)},
                       {"tid", id(slice.thread)}};
  Members members{{"ph", style_.begin_end ? "\"B\"" : "\"X\""}};
  members.insert(members.end(), common.begin(), common.end());
  members.emplace_back("ts", time(slice.start));
  if (!style_.begin_end) members.emplace_back("dur", duration(slice.duration));
  event(members, args);
  if (!style_.begin_end) return;
  members[0].second = "\"E\"";
  members.back().second = time(slice.start + slice.duration);
  event(members, "");
}

void KinetoWriter::thread_name(std::int64_t process, std::int64_t thread, std::string_view name) {
  event({{"name", "\"thread_name\""},
         {"ph", "\"M\""},
         {"ts", time(kBaseTime)},
         {"pid", id(process)},
         {"tid", id(thread)}},
        "\"name\": " + quoted(name));
}

void KinetoWriter::flow(std::int64_t flow_id, const TrueSlice& from, const TrueSlice& to) {
  for (const bool start : {true, false}) {
    const TrueSlice& at = start ? from : to;
    Members members{{"ph", start ? "\"s\"" : "\"f\""},
                    {"id", id(flow_id)},
                    {"pid", id(at.process)},
                    {"tid", id(at.thread)},
                    {"ts", time(at.start)},
                    {"cat", "\"ac2g\""},
                    {"name", "\"ac2g\""}};
    if (!start) members.emplace_back("bp", "\"e\"");
    event(members, "");
  }
}

void KinetoWriter::instant(std::int64_t process, std::int64_t thread, std::int64_t at, std::string_view name) {
  event({{"ph", "\"i\""},
         {"cat", "\"cpu_instant_event\""},
         {"s", "\"t\""},
         {"name", quoted(name)},
         {"pid", id(process)},
         {"tid", id(thread)},
         {"ts", time(at)}},
        "\"Bytes\": 512");
}

void KinetoWriter::counter(std::int64_t process, std::int64_t at, std::string_view name, std::int64_t value) {
  event({{"ph", "\"C\""}, {"name", quoted(name)}, {"pid", id(process)}, {"ts", time(at)}},
        fmt::format("\"value\": {}", value));
}

void KinetoWriter::finish() {
  if (style_.trailing_comma && any_) sink_(",");
  if (style_.pretty) sink_(style_.windows_lines ? "\r\n  ]" : "\n  ]");
  if (!style_.pretty) sink_("]");
  if (style_.bare_list) return;
  if (style_.header_last) header(false);
  sink_(style_.pretty ? ",\n  \"traceName\": \"/tmp/trace.json\"\n}\n" : ",\"traceName\":\"/tmp/trace.json\"}");
}

// ---------------------------------------------------------------- a job

namespace {

constexpr std::int64_t kHost = 4242;
constexpr std::int64_t kMainThread = 4242, kBackwardThread = 4401;
constexpr std::int64_t kComputeStream = 7, kCommStream = 20;
constexpr std::array<std::string_view, 8> kOperators{"aten::mm",
                                                     "aten::addmm",
                                                     "aten::native_layer_norm",
                                                     "aten::_softmax",
                                                     "aten::embedding",
                                                     "aten::copy_",
                                                     "aten::add_",
                                                     "autograd::engine::evaluate_function: AddmmBackward0"};
constexpr std::array<std::string_view, 4> kKernels{
    "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn",
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, at::detail::Array<char*, 3> "
    ">(int, at::native::CUDAFunctor_add<float>, at::detail::Array<char*, 3>)",
    "void cunn_SoftMaxForward<4, float, float, float, at::native::(anonymous namespace)::SoftMaxForwardEpilogue>",
    "Memcpy DtoD (Device -> Device)"};

/// Walks one step of a job along its clock.
class Job {
 public:
  Job(base::Rng& rng, bool whole_us) : rng_(rng), unit_(whole_us ? 1000 : 1) {}

  std::vector<TrueSlice> run(std::size_t count) {
    slices_.reserve(count + 16);
    while (slices_.size() < count) step();
    return std::move(slices_);
  }

 private:
  std::int64_t length(std::int64_t low_us, std::int64_t high_us) {
    return rng_.between(low_us * 1000 / unit_, high_us * 1000 / unit_) * unit_;
  }

  void step() {
    constexpr int kOperatorsPerStep = 40;
    const std::int64_t begin = now_;
    for (int i = 0; i < kOperatorsPerStep; ++i) {
      const bool backward = i >= kOperatorsPerStep / 2;
      operation(backward ? kBackwardThread : kMainThread, backward && i % 5 == 0);
    }
    slices_.push_back({fmt::format("ProfilerStep#{}", step_++), "user_annotation", kHost, kMainThread, begin,
                       now_ - begin, 0, fmt::format("\"External id\": {}, \"Ev Idx\": {}", external_++, external_)});
    now_ += length(5, 50);
  }

  /// An operator that launches one kernel, or a collective.
  void operation(std::int64_t thread, bool collective) {
    const std::int64_t begin = now_;
    now_ += length(1, 10);
    const std::int64_t correlation = ++correlation_;
    const std::int64_t launch_begin = now_;
    now_ += length(2, 8);
    slices_.push_back({"cudaLaunchKernel", "cuda_runtime", kHost, thread, launch_begin, now_ - launch_begin,
                       correlation, "\"External id\": 0, \"cbid\": 211"});
    std::int64_t& free = free_[collective ? 1 : 0];
    const std::int64_t start = std::max(free, now_ + length(1, 4));
    const std::int64_t busy = length(1, 12);
    free = start + busy;
    const std::string facts = fmt::format(
        "\"Collective name\": \"allreduce\", \"In msg nelems\": 262144, \"Out msg nelems\": 262144, \"Group size\": 2, "
        "\"dtype\": \"Float\", \"Process Group Name\": \"0\", \"Process Group Ranks\": \"[0, 1]\", \"Seq\": {}",
        sequence_);
    const std::string_view kernel = collective
                                        ? "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096>)"
                                        : kKernels[rng_.below(kKernels.size())];
    const bool copy = kernel.starts_with("Memcpy");
    std::string args = fmt::format(
        "\"device\": 0, \"context\": 1, \"stream\": {}, \"grid\": [128, 1, 1], \"block\": [256, 1, 1], \"warps per "
        "SM\": 4.571429, \"est. achieved occupancy %\": 57",
        collective ? kCommStream : kComputeStream);
    if (collective) args += ", " + facts;
    slices_.push_back({std::string(kernel), copy ? "gpu_memcpy" : "kernel", 0,
                       collective ? kCommStream : kComputeStream, start, busy, correlation, args});
    now_ += length(1, 5);
    slices_.push_back({collective ? "record_param_comms" : std::string(kOperators[rng_.below(kOperators.size())]),
                       "cpu_op", kHost, thread, begin, now_ - begin, 0,
                       fmt::format("\"External id\": {}, \"Record function id\": 0, \"Input Dims\": [[{}, 1024], [], "
                                   "[1024]], \"Input type\": [\"float\", \"Scalar\", \"float\"], \"Concrete Inputs\": "
                                   "[\"\", \"1\", \"\"]",
                                   external_++, 64 << rng_.below(4)) +
                           (collective ? ", " + facts : "")});
    if (collective) ++sequence_;
    now_ += length(1, 3);
  }

  base::Rng& rng_;
  std::int64_t unit_;
  std::vector<TrueSlice> slices_;
  std::int64_t now_ = KinetoWriter::kBaseTime + 86'400'000'000'000;
  std::int64_t correlation_ = 1000, external_ = 1, sequence_ = 0, step_ = 10;
  std::array<std::int64_t, 2> free_{};  // when each stream is free
};

}  // namespace

std::vector<TrueSlice> random_slices(base::Rng& rng, std::size_t count, bool whole_us) {
  return Job(rng, whole_us).run(count);
}

std::string trace_text(const std::vector<TrueSlice>& slices, const Style& style, std::int64_t rank,
                       std::int64_t world_size) {
  std::string text;
  KinetoWriter writer([&](std::string_view part) { text += part; }, style, rank, world_size);
  writer.thread_name(kHost, kMainThread, "thread 4242 (python)");
  writer.thread_name(0, kComputeStream, "stream 7");
  std::unordered_map<std::int64_t, const TrueSlice*> launches;
  for (const TrueSlice& slice : slices) {
    writer.slice(slice);
    if (slice.category == "cuda_runtime") launches[slice.correlation] = &slice;
    if (slice.category == "kernel") {
      const auto launch = launches.find(slice.correlation);
      if (launch != launches.end()) writer.flow(slice.correlation, *launch->second, slice);
    }
    if (slice.category == "user_annotation") {
      writer.instant(kHost, kMainThread, slice.start, "[memory]");
      writer.counter(0, slice.start, "GPU 0 Utilization", 1);
    }
  }
  writer.finish();
  return text;
}

}  // namespace paceline::test_support
