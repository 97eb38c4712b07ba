#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "paceline/trace/rank_trace.h"

namespace paceline::trace {

/// What a block of memory was for, told by the part of the step it was allocated in and the part it was freed in.
enum class MemoryClass : std::uint8_t {
  kBefore,             // held since before the first allocator event
  kParameters,         // alive through at least one whole later step; allocated outside of backward and optimizer
  kOptimizerState,     // the same, allocated in Optimizer.step
  kActivation,         // allocated in forward, freed in backward
  kGradient,           // allocated in backward, alive beyond it
  kBackwardTemporary,  // allocated and freed in one backward: gradients on their way, workspaces
  kStepTensor,         // allocated in forward, freed after backward: inputs, outputs, losses
  kTemporary,          // allocated and freed in forward, or in the optimizer
  kUntold              // the recording ends before it can be told
};
std::string_view memory_class_name(MemoryClass kind);
/// The rule that put a block there and how far it can be relied on.
std::string_view memory_class_reason(MemoryClass kind);

/// Blocks alive at the peak that were allocated at the same place: the innermost module or annotation, the outermost
/// operator in it, and the one that asked for the memory (with its shapes where they were recorded).
struct MemoryOwner {
  MemoryClass kind;
  std::string name;
  std::int64_t bytes = 0;
  std::int64_t blocks = 0;
};

struct MemoryPoint {
  std::int64_t time;
  std::int64_t allocated;  // bytes, after the event
};

/// The memory of one device as its allocator's events tell it.
struct DeviceMemory {
  std::int32_t device = AllocatorEvent::kHostMemory;
  /// The first event's recorded total, then the running sum of the bytes of all later events: one point an event.
  std::vector<MemoryPoint> timeline;
  std::size_t peak = 0;              // in timeline, the first of equals
  std::string peak_step;             // "ProfilerStep#3", empty outside of steps
  std::string_view peak_part;        // "forward", "backward", "optimizer"
  std::int64_t reserved_peak = -1;   // bytes; -1 = not recorded
  std::int64_t disagreements = 0;    // points that differ from the allocator's own total
  std::vector<MemoryOwner> owners;   // at the peak, the largest first; their bytes add up to the peak
  std::vector<MemoryOwner> classes;  // the same by class alone
};

/// One for each device that has allocator events, the host first. O(rows + events log events).
std::vector<DeviceMemory> memory_of(const RankTrace& trace);

struct RankMemory {
  RankHeader header;
  std::vector<DeviceMemory> devices;
};

/// The memory of every trace under the arguments (see base::expand_inputs), ordered by rank: the trace's own word, else
/// the path's, else unknown, last. Documents that are no traces are passed over. Throws Error(kBadInput) when none of
/// them has allocator events, with how to record them.
std::vector<RankMemory> load_memory(const std::vector<std::string>& arguments);

}  // namespace paceline::trace
