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

}  // namespace

std::string_view collective_name(CollectiveKind kind) {
  static constexpr std::array<std::string_view, 12> kNames{"all_reduce", "all_gather", "reduce_scatter", "broadcast",
                                                           "reduce",     "all_to_all", "gather",         "scatter",
                                                           "barrier",    "send_recv",  "collective",     "none"};
  return kNames[static_cast<std::size_t>(kind)];
}

CollectiveKind kind_of_kernel(std::string_view name) {
  const std::string text = folded(name.substr(0, 160));
  // "void cross_device_reduce_1stage<...>": vLLM's and TensorRT-LLM's own all-reduce kernels.
  if (text.find("crossdevicereduce") != std::string::npos) return CollectiveKind::kAllReduce;
  // "multimem_all_reduce_kernel<...>", "two_shot_all_reduce_kernel<...>": PyTorch's symmetric memory.
  if (text.find("multimemall") != std::string::npos || text.find("shotallreduce") != std::string::npos) {
    return kind_in(text);
  }
  const bool library = text.starts_with("nccl") || text.starts_with("rccl") || text.starts_with("hccl") ||
                       text.find("ncclkernel") != std::string::npos ||
                       text.find("nccldevkernel") != std::string::npos || text.find("mscclkernel") != std::string::npos;
  if (!library) return CollectiveKind::kNone;
  const CollectiveKind kind = kind_in(text);
  return kind == CollectiveKind::kNone ? CollectiveKind::kUnknown : kind;
}

CollectiveKind kind_of_span(std::string_view name) {
  const std::string text = folded(name);
  return kind_in(text);
}

}  // namespace paceline::trace
