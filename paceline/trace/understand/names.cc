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
  for (const char c : name) {
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
  const bool nccl = text.starts_with("nccl") || text.find("ncclkernel") != std::string::npos ||
                    text.find("nccldevkernel") != std::string::npos || text.starts_with("rccl");
  return nccl ? kind_in(text) : CollectiveKind::kNone;
}

CollectiveKind kind_of_span(std::string_view name) {
  const std::string text = folded(name);
  return kind_in(text);
}

}  // namespace paceline::trace
