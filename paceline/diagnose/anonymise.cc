#include "paceline/diagnose/anonymise.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <limits>
#include <map>

#include "paceline/diagnose/faults.h"
#include "paceline/trace/understand/names.h"

namespace paceline::diagnose {
namespace {

using base::NameId;
using trace::Category;

/// FNV-1a with the final mix of SplitMix64: stable across versions, unlike base::hash_bytes.
std::string hash_text(std::string_view text) {
  std::uint64_t hash = 0xCBF29CE484222325u;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
  hash = (hash ^ (hash >> 30)) * 0xBF58476D1CE4E5B9u;
  hash = (hash ^ (hash >> 27)) * 0x94D049BB133111EBu;
  return fmt::format("{:012x}", (hash ^ (hash >> 31)) >> 16);
}

bool only(std::string_view text, std::string_view allowed) {
  return text.find_first_not_of(allowed) == std::string_view::npos;
}

constexpr std::string_view kDigits = "0123456789";

/// "cudaLaunchKernel", "hipMemcpyAsync", "cuMemMap": public, and rules go by them.
bool is_runtime_call(std::string_view name) {
  static constexpr std::array<std::string_view, 4> kPrefixes{"cuda", "hip", "hsa", "cu"};
  if (!only(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")) return false;
  return std::any_of(kPrefixes.begin(), kPrefixes.end(), [&](std::string_view prefix) {
    return name.starts_with(prefix) && name.size() > prefix.size() && name[prefix.size()] >= 'A' &&
           name[prefix.size()] <= 'Z';
  });
}

/// The word by which the rules of faults.h still know the name.
std::string_view class_of(std::string_view name) {
  if (is_allocator_call(name)) return "cudaMalloc-";
  if (is_synchronisation(name)) return "cudaDeviceSynchronize-";
  if (is_input(name)) return "dataloader-";
  if (is_compute_bound(name)) return "gemm-";
  return "";
}

std::string_view role_of(Category category) {
  switch (category) {
    case Category::kCpuOp:
      return "op-";
    case Category::kUserAnnotation:
    case Category::kGpuAnnotation:
      return "span-";
    case Category::kKernel:
      return "kernel-";
    case Category::kMemcpy:
    case Category::kMemset:
      return "copy-";
    default:
      return "call-";
  }
}

std::string other_name(std::string_view name, Category category) {
  constexpr std::string_view kStep = "ProfilerStep#", kBackward = "autograd::engine::evaluate_function";
  if (category == Category::kRuntime && is_runtime_call(name)) return std::string(name);
  if (category == Category::kKernel) {
    const trace::CollectiveKind kind = trace::kind_of_kernel(name);
    if (kind != trace::CollectiveKind::kNone) return fmt::format("ncclDevKernel_{}", trace::collective_name(kind));
  } else if (trace::is_communication_span(name)) {
    const std::size_t colon = name.find(':');
    const std::string_view library = name.substr(0, name.find_first_not_of(':', colon));
    return fmt::format("{}{}", library, trace::collective_name(trace::kind_of_span(name)));
  }
  if (name == "record_param_comms") return std::string(name);
  if (name.starts_with(kStep) && only(name.substr(kStep.size()), kDigits)) return std::string(name);
  std::string hashed = fmt::format("{}{}{}", role_of(category), class_of(name), hash_text(name));
  return name.starts_with(kBackward) ? fmt::format("{}: {}", kBackward, hashed) : hashed;
}

std::string other_type(std::string_view type) {
  static constexpr std::array<std::string_view, 16> kTypes{
      "Float", "Half", "BFloat16", "Double", "Int",           "Long",        "Short",        "Byte",
      "Char",  "Bool", "float",    "double", "Float8_e4m3fn", "Float8_e5m2", "ComplexFloat", "c10::BFloat16"};
  const bool known = std::find(kTypes.begin(), kTypes.end(), type) != kTypes.end();
  return known ? std::string(type) : "type-" + hash_text(type);
}

std::string other_backend(std::string_view backend) {
  static constexpr std::array<std::string_view, 6> kBackends{"nccl", "gloo", "mpi", "ucc", "xccl", "hccl"};
  const bool known = std::find(kBackends.begin(), kBackends.end(), backend) != kBackends.end();
  return known ? std::string(backend) : "";
}

class Anonymiser {
 public:
  Anonymiser(trace::RankTrace& trace, std::int64_t origin) : trace_(trace), origin_(origin) {}

  void run() {
    trace::Slices& slices = trace_.slices;
    for (trace::Row row = 0; row < slices.size(); ++row) {
      const Category category = slices.category[row];
      slices.name[row] = renamed(slices.name[row], static_cast<int>(category),
                                 [&](std::string_view name) { return other_name(name, category); });
      slices.shapes[row] = renamed(slices.shapes[row], kShapes, [](std::string_view text) {
        return only(text, "0123456789[], -") ? std::string(text) : std::string("[]");
      });
      slices.start[row] -= origin_;
    }
    for (trace::CollectiveArgs& args : trace_.collective_args) {
      args.collective = renamed(args.collective, kCollective, [](std::string_view name) {
        return std::string(trace::collective_name(trace::kind_of_span(name)));
      });
      args.group = renamed(args.group, kGroup, [](std::string_view name) {
        return only(name, kDigits) ? std::string(name) : "group-" + hash_text(name);
      });
      args.group_ranks = renamed(args.group_ranks, kRanks, [](std::string_view text) {
        return only(text, "0123456789[], -.andbymore") ? std::string(text) : "ranks-" + hash_text(text);
      });
      args.dtype = renamed(args.dtype, kType, [](std::string_view type) { return other_type(type); });
    }
    trace_.names = std::move(names_);
    trace_.instants.clear();
    for (std::size_t i = 0; i < trace_.lanes.size(); ++i) {
      trace::Lane& lane = trace_.lanes[i];
      lane.thread = fmt::format("{}", i);
      lane.process = lane.name = lane.process_name = "";
    }
    trace_.source = fmt::format("rank {}", *trace_.rank);
    trace_.backend = other_backend(trace_.backend);
    trace_.base_time = 0;
    trace_.devices.clear();
    if (!trace_.host.empty()) trace_.host = "host-" + hash_text(trace_.host);
  }

 private:
  // Behind the categories of rows, which are roles of their own.
  enum Role { kShapes = 100, kCollective, kGroup, kRanks, kType };

  template <class Rename>
  NameId renamed(NameId id, int role, const Rename& rename) {
    if (id == base::kNone<NameId>) return id;
    const auto [known, added] = known_.try_emplace({id, role});
    if (added) known->second = names_.intern(rename(trace_.names.text(id)));
    return known->second;
  }

  trace::RankTrace& trace_;
  std::int64_t origin_;
  base::InternTable names_;
  std::map<std::pair<NameId, int>, NameId> known_;
};

}  // namespace

void anonymise(std::span<trace::RankTrace> ranks) {
  std::int64_t origin = std::numeric_limits<std::int64_t>::max();
  for (const trace::RankTrace& rank : ranks) {
    for (const std::int64_t start : rank.slices.start) origin = std::min(origin, start);
  }
  for (trace::RankTrace& rank : ranks) Anonymiser(rank, origin).run();
}

}  // namespace paceline::diagnose
