#include "paceline/trace/understand/names.h"

#include <algorithm>
#include <array>
#include <string>

namespace paceline::trace {
namespace {

/// Lower case without separators: "ncclDevKernel_AllReduce_Sum_f32" and "all_reduce" meet in "allreduce".
std::string folded(std::string_view name) {
  std::string text;
  text.reserve(name.size());
  constexpr std::string_view kUnnamed = "(anonymous namespace)::";
  for (std::size_t at = 0; at < name.size(); ++at) {
    if (name.substr(at).starts_with(kUnnamed)) at += kUnnamed.size();
    if (at == name.size()) break;
    const char c = name[at];
    if (c == '(' || c == '<') break;  // arguments and template parameters
    if (c >= 'A' && c <= 'Z')
      text += static_cast<char>(c - 'A' + 'a');
    else if (c != '_' && c != ' ' && c != '-')
      text += c;
  }
  return text;
}

CollectiveKind kind_in(std::string_view text) {
  struct Part {
    std::string_view part;
    CollectiveKind kind;
  };
  // The longer word first: "reducescatter" holds "reduce" and "scatter".
  static constexpr std::array<Part, 14> kParts{{{"allreduce", CollectiveKind::kAllReduce},
                                                {"allgather", CollectiveKind::kAllGather},
                                                {"reducescatter", CollectiveKind::kReduceScatter},
                                                {"alltoall", CollectiveKind::kAllToAll},
                                                {"sendrecv", CollectiveKind::kSendRecv},
                                                {"broadcast", CollectiveKind::kBroadcast},
                                                {"barrier", CollectiveKind::kBarrier},
                                                {"scatter", CollectiveKind::kScatter},
                                                {"gather", CollectiveKind::kGather},
                                                {"reduce", CollectiveKind::kReduce},
                                                {"send", CollectiveKind::kSendRecv},
                                                {"recv", CollectiveKind::kSendRecv},
                                                {"ncclkernel", CollectiveKind::kUnknown},
                                                {"nccl", CollectiveKind::kUnknown}}};
  for (const Part& part : kParts) {
    if (text.find(part.part) != std::string_view::npos) return part.kind;
  }
  return CollectiveKind::kNone;
}

/// Kernels of libraries other than NCCL and its kin, known by a word in their name.
CollectiveKind kind_of_other_library(std::string_view text) {
  const auto has = [&](std::string_view word) { return text.find(word) != std::string_view::npos; };
  // "void cross_device_reduce_1stage<...>": vLLM's and SGLang's own all-reduce;
  // "allreduce_fusion_kernel_oneshot_lamport", "oneShotAllReduceKernel": TensorRT-LLM's and FlashInfer's;
  // "two_shot_all_reduce_kernel": PyTorch's symmetric memory.
  if (has("crossdevicereduce") || has("allreducefusionkernel") || has("shotallreduce")) {
    return CollectiveKind::kAllReduce;
  }
  // "multimem_all_gather_kernel<...>": PyTorch's symmetric memory.
  if (has("multimem")) return kind_in(text);
  // "deep_ep::internode_ll::dispatch<...>", "deep_ep::intranode::cached_notify_combine<2>": tokens to experts and back.
  if (has("deepep::")) {
    const bool moves = has("dispatch") || has("combine") || has("notify");
    return moves && !has("layout") ? CollectiveKind::kAllToAll : CollectiveKind::kNone;
  }
  if (has("moealltoall")) return CollectiveKind::kAllToAll;
  // "nvshmemi_...", "nvshmem_...": NVIDIA's one-sided transfers; "rocshmem_...": AMD's.
  if (has("nvshmem") || has("rocshmem")) {
    const CollectiveKind kind = kind_in(text);
    return kind == CollectiveKind::kNone ? CollectiveKind::kUnknown : kind;
  }
  // "userbuffers_fp16_sum_inplace_gpu_rr_rs_oop", "kuserbuffers_pushsend": Transformer Engine.
  if (has("userbuffers")) {
    if (has("rrrs")) return CollectiveKind::kReduceScatter;
    if (has("rrag")) return CollectiveKind::kAllGather;
    return has("sum") ? CollectiveKind::kAllReduce : CollectiveKind::kSendRecv;
  }
  return CollectiveKind::kNone;
}

}  // namespace

std::string_view collective_name(CollectiveKind kind) {
  static constexpr std::array<std::string_view, 12> kNames{"all_reduce", "all_gather", "reduce_scatter", "broadcast",
                                                           "reduce",     "all_to_all", "gather",         "scatter",
                                                           "barrier",    "send_recv",  "collective",     "none"};
  return kNames[static_cast<std::size_t>(kind)];
}

CollectiveKind kind_of_kernel(std::string_view name) {
  const std::string text = folded(name.substr(0, 160));
  const bool library = text.starts_with("nccl") || text.starts_with("rccl") || text.starts_with("hccl") ||
                       text.find("ncclkernel") != std::string::npos ||
                       text.find("nccldevkernel") != std::string::npos || text.find("mscclkernel") != std::string::npos;
  if (!library) return kind_of_other_library(text);
  const CollectiveKind kind = kind_in(text);
  return kind == CollectiveKind::kNone ? CollectiveKind::kUnknown : kind;
}

bool is_known_computation(std::string_view kernel) {
  // PyTorch, cuBLAS (nvjet and names with gemm), CUTLASS, cuDNN, Triton, CUB and Thrust, FlashAttention, Apex; rocBLAS
  // and hipBLASLt (Cijk_), Composable Kernel.
  static constexpr std::array<std::string_view, 24> kWords{
      "at::",    "at_cuda", "gemm",        "gemv",          "nvjet", "cublas", "cutlass",      "xmma",
      "splitk",  "cudnn",   "conv",        "triton",        "cub::", "thrust", "flash",        "fmha",
      "softmax", "norm_",   "elementwise", "reduce_kernel", "embed", "fft",    "multi_tensor", "cijk_"};
  std::string text(kernel);
  std::transform(text.begin(), text.end(), text.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  return std::any_of(kWords.begin(), kWords.end(),
                     [&](std::string_view word) { return text.find(word) != std::string::npos; });
}

bool is_communication_span(std::string_view name) {
  static constexpr std::array<std::string_view, 12> kPrefixes{
      "nccl:", "nccl2:", "c10d::", "_c10d_functional::", "gloo:",    "rccl:", "hccl:",
      "xccl:", "ucc:",   "mpi:",   "symm_mem::",         "deep_ep::"};
  return std::any_of(kPrefixes.begin(), kPrefixes.end(),
                     [&](std::string_view prefix) { return name.starts_with(prefix); });
}

bool is_host_collective(std::string_view name) {
  return name.starts_with("gloo:") || name.starts_with("mpi:");
}

CollectiveKind kind_of_span(std::string_view name) {
  const std::string text = folded(name);
  return kind_in(text);
}

std::int64_t bytes_of_type(std::string_view dtype) {
  static constexpr std::array<std::pair<std::string_view, std::int64_t>, 11> kTypes{{{"Float", 4},
                                                                                     {"Double", 8},
                                                                                     {"Half", 2},
                                                                                     {"BFloat16", 2},
                                                                                     {"Int", 4},
                                                                                     {"Long", 8},
                                                                                     {"Byte", 1},
                                                                                     {"Char", 1},
                                                                                     {"Bool", 1},
                                                                                     {"Short", 2},
                                                                                     {"ComplexFloat", 8}}};
  for (const auto& [name, bytes] : kTypes) {
    if (dtype == name) return bytes;
  }
  return dtype.starts_with("Float8") ? 1 : 0;
}

}  // namespace paceline::trace
