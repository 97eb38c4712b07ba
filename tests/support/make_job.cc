// make_job --out DIR: writes the traces of a simulated training job and truth.json, which says what is wrong with it.
#include <fmt/core.h>

#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <string_view>

#include "tests/support/modern_job.h"

namespace {

using namespace paceline::test_support;

constexpr std::string_view kUsage =
    "usage: make_job --out DIR [--topology ddp|fsdp1|fsdp2|hsdp|tp_fsdp|pipeline] [--ranks R] [--steps S] [--seed N]\n"
    "  [--fault none|clock|memory_bandwidth|host_op|host_pause|input|allocator|link_inter|link_intra|link_rail|\n"
    "           imbalance|whole_host|launch_bound|issued_late|too_big]\n"
    "  [--fault-rank r] [--pattern persistent|rotating|outlier] [--severity 1.0] [--noise 0.01]\n"
    "  [--layers L] [--filler N] [--micro-batches M] [--first-step N] [--gpus-per-host G] [--shard-hosts H]\n"
    "  [--clock-offset-ms 40] [--events N: about so many events a rank, by layers and filler]\n"
    "  [--kernels nccl_dev|nccl|nccl_symmetric|rccl] [--layout flat|torchtitan|tensorboard|brackets|merged]\n"
    "  [--seq|--no-seq] [--cut-lists|--whole-lists] [--global-ranks|--no-global-ranks]\n"
    "  [--kernel-args|--no-kernel-args] [--group-config|--no-group-config] [--sibling-names|--own-names]\n"
    "  [--cuda-graphs]\n";

/// Layers and filler for about `events` events a rank: a layer is about 260 events without filler and has 29 kernels.
void scale(ModernJob& job, long events) {
  const double per_step = static_cast<double>(events) / job.steps;
  job.layers = std::max(2, std::min(job.layers > 6 ? job.layers : 12, static_cast<int>(per_step / 300)));
  const double more = per_step - 300.0 * job.layers;
  job.filler = std::max(0, static_cast<int>(more / (29.0 * job.layers)));
}

struct Arguments {
  ModernJob job;
  std::string out;
  long events = 0;
};

bool set_flag(ModernJob& job, std::string_view flag) {
  const struct {
    std::string_view name;
    bool ModernJob::* member;
    bool value;
  } kFlags[] = {{"--seq", &ModernJob::sequence, true},
                {"--no-seq", &ModernJob::sequence, false},
                {"--cut-lists", &ModernJob::cut_lists, true},
                {"--whole-lists", &ModernJob::cut_lists, false},
                {"--global-ranks", &ModernJob::global_ranks, true},
                {"--no-global-ranks", &ModernJob::global_ranks, false},
                {"--kernel-args", &ModernJob::kernel_args, true},
                {"--no-kernel-args", &ModernJob::kernel_args, false},
                {"--group-config", &ModernJob::group_config, true},
                {"--no-group-config", &ModernJob::group_config, false},
                {"--sibling-names", &ModernJob::sibling_names, true},
                {"--own-names", &ModernJob::sibling_names, false},
                {"--cuda-graphs", &ModernJob::cuda_graphs, true}};
  for (const auto& known : kFlags) {
    if (known.name != flag) continue;
    job.*known.member = known.value;
    return true;
  }
  return false;
}

bool set_number(ModernJob& job, std::string_view option, const std::string& value) {
  const struct {
    std::string_view name;
    int ModernJob::* member;
  } kNumbers[] = {{"--ranks", &ModernJob::ranks},
                  {"--steps", &ModernJob::steps},
                  {"--fault-rank", &ModernJob::fault_rank},
                  {"--layers", &ModernJob::layers},
                  {"--filler", &ModernJob::filler},
                  {"--micro-batches", &ModernJob::micro_batches},
                  {"--first-step", &ModernJob::first_step},
                  {"--gpus-per-host", &ModernJob::gpus_per_host},
                  {"--shard-hosts", &ModernJob::shard_hosts}};
  for (const auto& known : kNumbers) {
    if (known.name != option) continue;
    job.*known.member = std::stoi(value);
    return true;
  }
  return false;
}

void set_option(Arguments& arguments, std::string_view option, const std::string& value) {
  ModernJob& job = arguments.job;
  if (option == "--out") {
    arguments.out = value;
  } else if (option == "--topology") {
    job.topology = topology_named(value);
  } else if (option == "--fault") {
    job.fault = fault_named(value);
  } else if (option == "--pattern") {
    job.pattern = pattern_named(value);
  } else if (option == "--kernels") {
    job.kernel_names = kernel_names_named(value);
  } else if (option == "--layout") {
    job.layout = layout_named(value);
  } else if (option == "--seed") {
    job.seed = std::stoull(value);
  } else if (option == "--severity") {
    job.severity = std::stod(value);
  } else if (option == "--noise") {
    job.noise = std::stod(value);
  } else if (option == "--clock-offset-ms") {
    job.clock_offset = static_cast<std::int64_t>(std::stod(value) * 1e6);
  } else if (option == "--events") {
    arguments.events = std::stol(value);
  } else if (!set_number(job, option, value)) {
    throw std::invalid_argument(fmt::format("unknown option '{}'", option));
  }
}

}  // namespace

int main(int count, char** values) {
  try {
    Arguments arguments;
    for (int i = 1; i < count; ++i) {
      if (set_flag(arguments.job, values[i])) continue;
      if (i + 1 == count) throw std::invalid_argument(fmt::format("'{}' needs a value", values[i]));
      set_option(arguments, values[i], values[i + 1]);
      ++i;
    }
    if (arguments.out.empty()) throw std::invalid_argument("--out is missing");
    if (arguments.events > 0) scale(arguments.job, arguments.events);
    const JobTruth truth = write_job(arguments.job, arguments.out);
    fmt::print("{}: {} ranks, {} events, {:.1f} MB, step {:.2f} ms, without the fault {:.2f} ms\n", arguments.out,
               arguments.job.ranks, truth.events, static_cast<double>(truth.bytes) / 1e6,
               static_cast<double>(truth.step_ns) / 1e6, static_cast<double>(truth.clean_step_ns) / 1e6);
    return 0;
  } catch (const std::invalid_argument& error) {
    fmt::print(stderr, "make_job: {}\n{}", error.what(), kUsage);
    return 2;
  } catch (const std::exception& error) {
    fmt::print(stderr, "make_job: {}\n", error.what());
    return 5;
  }
}
