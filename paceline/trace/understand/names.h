#pragma once
#include <cstdint>
#include <string_view>

namespace paceline::trace {

enum class CollectiveKind : std::uint8_t {
  kAllReduce,
  kAllGather,
  kReduceScatter,
  kBroadcast,
  kReduce,
  kAllToAll,
  kGather,
  kScatter,
  kBarrier,
  kSendRecv,  // also how NCCL runs all-to-all: the launching annotation tells which
  kUnknown,
  kNone  // not a collective
};

std::string_view collective_name(CollectiveKind kind);

/// Kind of a device kernel by its name: NCCL of every generation (ncclKernel_*, ncclDevKernel_*, lower case), RCCL,
/// MSCCL, custom all-reduce kernels (vLLM, TensorRT-LLM, FlashInfer), symmetric memory, DeepEP, NVSHMEM, Transformer
/// Engine's userbuffers; kNone for everything else.
CollectiveKind kind_of_kernel(std::string_view name);

/// Whether a kernel that is no collective is known to compute, by the names of the libraries that models are made of.
bool is_known_computation(std::string_view kernel);

/// Whether a host-side span stands for communication by its prefix: "nccl:", "nccl2:", "c10d::", "gloo:", ...
bool is_communication_span(std::string_view name);

/// Of these, whether the host itself moves the data, on a thread of the backend: "gloo:", "mpi:".
bool is_host_collective(std::string_view name);

/// Kind of a host-side span that stands for a collective ("nccl:all_reduce", "gloo:broadcast", "c10d::allreduce_") or
/// of the "Collective name" argument ("allreduce", "_allgather_base").
CollectiveKind kind_of_span(std::string_view name);

/// Bytes of an element by PyTorch's name of its type ("BFloat16"); 0 = unknown.
std::int64_t bytes_of_type(std::string_view dtype);

/// All members end together: the end is an anchor for clocks, and nobody leaves before the last one has arrived.
constexpr bool ends_together(CollectiveKind kind) {
  return kind == CollectiveKind::kAllReduce || kind == CollectiveKind::kAllGather ||
         kind == CollectiveKind::kReduceScatter || kind == CollectiveKind::kAllToAll ||
         kind == CollectiveKind::kBarrier;
}

}  // namespace paceline::trace
