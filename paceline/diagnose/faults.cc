#include "paceline/diagnose/faults.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <initializer_list>

namespace paceline::diagnose {
namespace {

// Causes and cures as published for MegaScale (NSDI'24, section 5), the BLOOM training chronicles (2022) and Llama 3
// (arXiv 2407.21783, section 3.3.4).
constexpr std::array<FaultEntry, 16> kEntries{{
    {Fault::kNone, "none", "no rank comes last more often than chance", "", ""},
    {Fault::kClock, "clock",
     "the same kernels with the same shapes are slower on one rank, matrix products at least as much as the rest",
     "power cap, heat, a failing fan or power supply, a clock left locked",
     "nvidia-smi -q -d PERFORMANCE,CLOCK on that host; drain the device when it stays slow"},
    {Fault::kMemoryBandwidth, "memory_bandwidth",
     "memory-bound kernels are slower on one rank, matrix products are not",
     "failing or row-remapped HBM, ECC corrections, another process on the device",
     "nvidia-smi -q -d ECC,ROW_REMAPPER; look for other processes; exchange the device"},
    {Fault::kHostOp, "host_op",
     "an operator or call takes longer on the host of one rank, and the device waits for its launches",
     "a busy or throttled CPU, wrong NUMA binding, logging or checkpointing on one rank only",
     "pin the rank to the cores of its device's socket; move the extra work to a thread or to all ranks alike"},
    {Fault::kHostPause, "host_pause", "the host of one rank is in no operator while its device has nothing to do",
     "Python garbage collection, a lock, another process on the core, a sleep",
     "gc.freeze() and collections at the same step on all ranks; look for other processes on the host"},
    {Fault::kInput, "input", "one rank takes longer to fetch its batch",
     "slow or shared storage, too few loader workers, uneven samples",
     "more workers, prefetch, local copies; balance the samples over ranks"},
    {Fault::kAllocator, "allocator", "cudaMalloc, cudaFree and synchronisation inside the step",
     "fragmented caching allocator near the memory limit, changing shapes",
     "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, fewer distinct shapes, some memory to spare"},
    {Fault::kLinkInter, "link_inter",
     "transfers of groups that cross certain hosts are slower than those of groups like them, waiting taken off",
     "a degraded or flapping cable, a wrong route, a congested switch",
     "nccl-tests between these hosts; error counters of the ports; take the link out"},
    {Fault::kLinkIntra, "link_intra", "transfers inside one host are slower than inside the others",
     "an NVLink down, peer access through PCIe or the CPU, wrong NUMA binding",
     "nvidia-smi nvlink -s and topo -m on that host; exchange the board"},
    {Fault::kLinkRail, "link_rail",
     "transfers between the devices of one index are slower than those of the other indices",
     "one network card, cable or leaf switch of the rail",
     "ibstat and error counters of that card on all hosts; nccl-tests on the rail"},
    {Fault::kImbalance, "imbalance", "one rank has more work: more kernels or larger shapes",
     "longer sequences, more tokens for its experts, an uneven partition of layers",
     "balance by tokens, sort or pack samples, move layers between stages"},
    {Fault::kWholeHost, "whole_host", "all ranks of one host are late, others are not",
     "power or heat of the host, its CPU, its storage, its network card",
     "drain the host and run the self-check on it"},
    {Fault::kLaunchBound, "launch_bound",
     "on all ranks the device runs dry because kernels are short and the host cannot keep up",
     "many small kernels, Python overhead", "CUDA graphs, torch.compile, larger micro-batches, fused optimizers"},
    {Fault::kIssuedLate, "issued_late", "transfers start only after the computation that could have hidden them",
     "collectives issued at the end of backward, no prefetch, one bucket for all gradients",
     "smaller buckets, backward prefetch, issue from hooks as soon as gradients are ready"},
    {Fault::kTooBig, "too_big", "transfers start early but outlast the computation",
     "too little computation for the bytes: small batch, slow network, full precision",
     "larger micro-batches, accumulation, fewer bytes (bf16, fp8), hierarchical sharding"},
    {Fault::kLateStart, "late_start", "a rank begins its first recorded step later",
     "what it does before the recording: the step before, data, checkpoint; or the profiler's own start",
     "record more steps: the cause is in the one before"},
}};

std::string lower(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  return result;
}

bool holds_any(std::string_view name, std::initializer_list<std::string_view> parts) {
  const std::string text = lower(name);
  return std::any_of(parts.begin(), parts.end(), [&](std::string_view part) { return text.find(part) != text.npos; });
}

}  // namespace

std::span<const FaultEntry> fault_entries() {
  return kEntries;
}

const FaultEntry& fault_entry(Fault fault) {
  return kEntries[static_cast<std::size_t>(fault)];
}

std::string fault_catalogue() {
  std::string text =
      "# Faults that diagnose tells apart\n\n"
      "Generated by `paceline diagnose --faults`. Sign: how it shows in the traces. A finding names its class; whether "
      "it "
      "was measured or\ninferred stands beside it.\n\n| class | sign | usual cause | cure |\n|---|---|---|---|\n";
  for (const FaultEntry& entry : kEntries) {
    if (entry.fault == Fault::kNone) continue;
    text += fmt::format("| `{}` | {} | {} | {} |\n", entry.name, entry.sign, entry.cause, entry.cure);
  }
  return text;
}

bool is_allocator_call(std::string_view name) {
  return holds_any(name, {"cudamalloc", "cudafree", "cudahostalloc", "hipmalloc", "hipfree", "cumemcreate", "cumemmap",
                          "cumemunmap", "cumemrelease", "hiphostmalloc"});
}

bool is_synchronisation(std::string_view name) {
  return holds_any(name, {"devicesynchronize", "streamsynchronize", "eventsynchronize", "ctxsynchronize"});
}

bool is_input(std::string_view name) {
  return holds_any(name, {"dataloader", "data_loader", "load_batch", "load_data", "data_load", "next_batch",
                          "get_batch", "fetch_batch", "__next__", "copy_batch", "dataset", "read_batch"});
}

bool is_compute_bound(std::string_view name) {
  return holds_any(
      name, {"gemm",  "matmul", "aten::mm", "aten::bmm", "addmm", "linear",    "conv",     "cutlass", "wgmma", "xmma",
             "nvjet", "cijk_",  "tensorop", "flash",     "fmha",  "attention", "winograd", "dgrad",   "wgrad", "_mma"});
}

}  // namespace paceline::diagnose
