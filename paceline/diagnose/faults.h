#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace paceline::diagnose {

/// Why a job is slower than it could be. docs/faults.md is generated from the table behind fault_entries().
enum class Fault : std::uint8_t {
  kNone,
  kClock,
  kMemoryBandwidth,
  kHostOp,
  kHostPause,
  kInput,
  kAllocator,
  kLinkInter,
  kLinkIntra,
  kLinkRail,
  kImbalance,
  kWholeHost,
  kLaunchBound,
  kIssuedLate,
  kTooBig,
  kLateStart
};

struct FaultEntry {
  Fault fault;
  std::string_view name;   // as in JSON
  std::string_view sign;   // how it shows in a trace
  std::string_view cause;  // what is behind it in practice
  std::string_view cure;
};

std::span<const FaultEntry> fault_entries();
const FaultEntry& fault_entry(Fault fault);

/// The catalogue as Markdown: docs/faults.md.
std::string fault_catalogue();

/// Memory management calls of CUDA and HIP that stop the device or the host.
bool is_allocator_call(std::string_view name);
bool is_synchronisation(std::string_view name);
/// Spans and operators that fetch the next batch.
bool is_input(std::string_view name);
/// Kernels or operators limited by arithmetic (matrix products, convolutions, attention) rather than by memory.
bool is_compute_bound(std::string_view name);

}  // namespace paceline::diagnose
