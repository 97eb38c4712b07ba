#include "paceline/trace/memory/memory.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <optional>
#include <unordered_map>

#include "paceline/base/error.h"
#include "paceline/base/file.h"
#include "paceline/base/parallel.h"
#include "paceline/trace/captures.h"
#include "paceline/trace/reader.h"
#include "paceline/trace/understand/host.h"
#include "paceline/trace/understand/launches.h"

namespace paceline::trace {
namespace {

constexpr std::string_view kStep = "ProfilerStep#";
constexpr std::string_view kEvaluate = "autograd::engine::evaluate_function: ";

enum class Part : std::uint8_t { kForward, kBackward, kOptimizer };

constexpr std::array<std::string_view, 3> kPartNames{"forward", "backward", "optimizer"};

bool is_backward(std::string_view name) {
  return name.starts_with(kEvaluate) || name.find("Backward") != std::string_view::npos;
}

struct Step {
  std::int64_t begin, end;
  Row row;
};

/// Which part of the step runs when: each begins with its first operator or annotation and lasts until the next begins,
/// so that what Python frees between two operators belongs to the part before.
class Parts {
 public:
  Parts(const RankTrace& trace, const std::vector<Row>& parents) : trace_(trace) {
    const auto main = main_thread(trace);
    std::vector<bool> in_operator(trace.slices.size()), in_optimizer(trace.slices.size());
    for (const Lane& lane : trace.lanes) {
      if (lane.device) continue;
      const bool is_main = main && &lane == &trace.lanes[base::index(*main)];
      for (Row row = lane.begin; row < lane.end; ++row) {
        const Row parent = parents[row];
        const Category category = trace.slices.category[row];
        if (parent != kNoRow) {
          in_operator[row] = in_operator[parent] || trace.slices.category[parent] == Category::kCpuOp;
          in_optimizer[row] = in_optimizer[parent] || is_optimizer(parent);
        }
        if (category == Category::kUserAnnotation && is_main) add_annotation(row);
        if (category != Category::kCpuOp || in_operator[row] || in_optimizer[row]) continue;
        if (is_backward(trace.name(row))) {
          begins_.push_back({trace.slices.start[row], Part::kBackward, false});
        } else if (is_main) {
          // Other threads' operators that are no backward, such as hooks of gradients, change nothing.
          begins_.push_back({trace.slices.start[row], Part::kForward, false});
        }
      }
    }
    std::stable_sort(begins_.begin(), begins_.end(), [](const Begin& a, const Begin& b) { return a.time < b.time; });
    std::vector<Begin> kept;
    for (const Begin& begin : begins_) {
      if (kept.empty() || begin.new_step || kept.back().part != begin.part) kept.push_back(begin);
    }
    begins_ = std::move(kept);
  }

  /// Index of the part at `time`, nothing before the first.
  std::optional<std::size_t> at(std::int64_t time) const {
    const auto after = std::upper_bound(begins_.begin(), begins_.end(), time,
                                        [](std::int64_t when, const Begin& begin) { return when < begin.time; });
    if (after == begins_.begin()) return std::nullopt;
    return static_cast<std::size_t>(after - begins_.begin()) - 1;
  }
  Part part(std::size_t index) const { return begins_[index].part; }
  bool backward_between(std::size_t first, std::size_t last) const {
    for (std::size_t i = first; i < last; ++i) {
      if (begins_[i].part == Part::kBackward) return true;
    }
    return false;
  }

  const std::vector<Step>& steps() const { return steps_; }

 private:
  struct Begin {
    std::int64_t time;
    Part part;
    bool new_step;
  };

  bool is_optimizer(Row row) const {
    return trace_.slices.category[row] == Category::kUserAnnotation && trace_.name(row).starts_with("Optimizer.step");
  }

  void add_annotation(Row row) {
    const std::int64_t begin = trace_.slices.start[row], end = trace_.slices.end(row);
    if (trace_.name(row).starts_with(kStep)) {
      steps_.push_back({begin, end, row});
      begins_.push_back({begin, Part::kForward, true});
    } else if (is_optimizer(row)) {
      begins_.push_back({begin, Part::kOptimizer, false});
      begins_.push_back({end, Part::kForward, false});
    }
  }

  const RankTrace& trace_;
  std::vector<Begin> begins_;
  std::vector<Step> steps_;
};

struct Block {
  std::size_t allocation;               // index into RankTrace::allocator
  std::optional<std::int64_t> release;  // time
  std::size_t release_point;            // of the timeline
};

MemoryClass class_of(const Parts& parts, std::int64_t allocation, std::optional<std::int64_t> release) {
  const auto from = parts.at(allocation);
  if (!from) return MemoryClass::kUntold;
  const Part part = parts.part(*from);
  const bool outlives_step = std::any_of(parts.steps().begin(), parts.steps().end(), [&](const Step& step) {
    return step.begin >= allocation && (!release || step.end <= *release);
  });
  if (part == Part::kBackward) {
    return release && parts.at(*release) == from ? MemoryClass::kBackwardTemporary : MemoryClass::kGradient;
  }
  if (outlives_step) return part == Part::kOptimizer ? MemoryClass::kOptimizerState : MemoryClass::kParameters;
  if (!release) return MemoryClass::kUntold;
  const std::size_t to = *parts.at(*release);
  if (to == *from || part == Part::kOptimizer) return MemoryClass::kTemporary;
  if (parts.part(to) == Part::kBackward) return MemoryClass::kActivation;
  return parts.backward_between(*from, to) ? MemoryClass::kStepTensor : MemoryClass::kTemporary;
}

/// Operators that only make room for another one's result.
bool only_allocates(std::string_view name) {
  return name.starts_with("aten::empty") || name.starts_with("aten::new_empty") || name.starts_with("aten::resize_");
}

/// The innermost module or annotation around a time on a thread, the outermost operator in it, and the innermost one
/// that asked for the memory.
std::string owner_name(const RankTrace& trace, const std::vector<Row>& parents, LaneId lane_id, std::int64_t time) {
  const Slices& slices = trace.slices;
  const Lane& lane = trace.lanes[base::index(lane_id)];
  const auto first = slices.start.begin() + lane.begin;
  const auto after = std::upper_bound(first, slices.start.begin() + lane.end, time);
  Row row = after == first ? kNoRow : static_cast<Row>(after - slices.start.begin()) - 1;
  while (row != kNoRow && slices.end(row) < time) row = parents[row];
  std::string_view place;
  Row outer = kNoRow, inner = kNoRow;
  for (; row != kNoRow && place.empty(); row = parents[row]) {
    const std::string_view name = trace.name(row);
    const Category category = slices.category[row];
    if (category == Category::kCpuOp) {
      outer = row;
      if (inner == kNoRow || only_allocates(trace.name(inner))) inner = row;
    }
    const bool annotation = category == Category::kUserAnnotation && !name.starts_with(kStep);
    if (annotation || (category == Category::kPython && name.starts_with("nn.Module: "))) place = name;
  }
  std::string text(place);
  if (outer != kNoRow) {
    std::string_view name = trace.name(outer);
    if (name.starts_with(kEvaluate)) name.remove_prefix(kEvaluate.size());
    text += (text.empty() ? "" : " / ") + std::string(name);
    if (inner != outer) text += fmt::format(" > {}", trace.name(inner));
    const NameId shapes = slices.shapes[inner];
    if (shapes != base::kNone<NameId>) text += fmt::format(" {}", trace.names.text(shapes));
  }
  return text.empty() ? "outside any operator" : text;
}

std::vector<MemoryOwner> largest_first(const std::map<std::pair<MemoryClass, std::string>, MemoryOwner>& owners) {
  std::vector<MemoryOwner> sorted;
  for (const auto& [key, owner] : owners) sorted.push_back(owner);
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const MemoryOwner& a, const MemoryOwner& b) { return a.bytes > b.bytes; });
  return sorted;
}

class DeviceReader {
 public:
  DeviceReader(const RankTrace& trace, const std::vector<Row>& parents, const Parts& parts, std::int32_t device)
      : trace_(trace), parents_(parents), parts_(parts) {
    memory_.device = device;
  }

  void add(std::size_t index) {
    constexpr std::int64_t kMost = std::int64_t{1} << 60;  // damaged events must not run into the end of 64 bits
    const AllocatorEvent& event = trace_.allocator[index];
    std::vector<MemoryPoint>& timeline = memory_.timeline;
    std::int64_t total = timeline.empty() ? 0 : timeline.back().allocated;
    if (timeline.empty() && event.allocated >= 0) total = event.allocated - event.bytes;
    total = std::clamp(total + event.bytes, -kMost, kMost);
    if (event.allocated >= 0 && event.allocated != total) ++memory_.disagreements;
    memory_.reserved_peak = std::max(memory_.reserved_peak, event.reserved);
    if (event.bytes > 0) {
      live_[event.address] = blocks_.size();
      blocks_.push_back({index, std::nullopt, SIZE_MAX});
    } else if (const auto found = live_.find(event.address); found != live_.end()) {
      blocks_[found->second].release = event.time;
      blocks_[found->second].release_point = timeline.size();
      live_.erase(found);
    }
    if (timeline.empty() || total > timeline[memory_.peak].allocated) {
      memory_.peak = timeline.size();
      blocks_at_peak_ = blocks_.size();
    }
    timeline.push_back({event.time, total});
  }

  DeviceMemory finish() {
    const MemoryPoint& peak = memory_.timeline[memory_.peak];
    if (const auto part = parts_.at(peak.time)) {
      memory_.peak_part = kPartNames[static_cast<std::size_t>(parts_.part(*part))];
    }
    for (const Step& step : parts_.steps()) {
      if (step.begin <= peak.time && peak.time < step.end) memory_.peak_step = trace_.name(step.row);
    }
    std::map<std::pair<MemoryClass, std::string>, MemoryOwner> owners, classes;
    const auto count = [&](MemoryClass kind, const std::string& name, std::int64_t bytes, std::int64_t blocks) {
      for (auto* table : {&owners, &classes}) {
        const std::string key = table == &owners ? name : std::string(memory_class_name(kind));
        MemoryOwner& owner = table->try_emplace({kind, key}, MemoryOwner{kind, key}).first->second;
        owner.bytes += bytes;
        owner.blocks += blocks;
      }
    };
    std::int64_t traced = 0;
    for (std::size_t i = 0; i < blocks_at_peak_; ++i) {
      const Block& block = blocks_[i];
      if (block.release_point <= memory_.peak) continue;
      const AllocatorEvent& event = trace_.allocator[block.allocation];
      count(class_of(parts_, event.time, block.release), owner_name(trace_, parents_, event.lane, event.time),
            event.bytes, 1);
      traced += event.bytes;
    }
    if (peak.allocated != traced) {
      count(MemoryClass::kBefore, std::string(memory_class_name(MemoryClass::kBefore)), peak.allocated - traced, 0);
    }
    memory_.owners = largest_first(owners);
    memory_.classes = largest_first(classes);
    return std::move(memory_);
  }

 private:
  const RankTrace& trace_;
  const std::vector<Row>& parents_;
  const Parts& parts_;
  DeviceMemory memory_;
  std::vector<Block> blocks_;
  std::size_t blocks_at_peak_ = 0;  // allocated up to then
  std::unordered_map<std::uint64_t, std::size_t> live_;
};

}  // namespace

std::string_view memory_class_name(MemoryClass kind) {
  static constexpr std::array<std::string_view, 9> kNames{
      "held before the recording", "parameters",         "optimizer state", "activations", "gradients",
      "backward temporaries",      "inputs and outputs", "temporaries",     "untold"};
  return kNames[static_cast<std::size_t>(kind)];
}

std::string_view memory_class_reason(MemoryClass kind) {
  static constexpr std::array<std::string_view, 9> kReasons{
      "measured as a sum; what it is cannot be told: the recording began after it was allocated",
      "inferred: alive through at least one whole later step; buffers and caches are among them",
      "measured: allocated in Optimizer.step and alive through at least one whole later step",
      "inferred: allocated in forward, freed in backward",
      "inferred: allocated in backward, alive beyond it",
      "inferred: allocated and freed in the same backward: gradients on their way and workspaces",
      "inferred: allocated in forward, freed after backward",
      "measured: allocated and freed in the same part of the step, or in a step without backward",
      "the recording ends, or has no steps, before it can be told"};
  return kReasons[static_cast<std::size_t>(kind)];
}

std::vector<DeviceMemory> memory_of(const RankTrace& trace) {
  const std::vector<Row> parents = link_parents(trace);
  const Parts parts(trace, parents);
  std::map<std::int32_t, DeviceReader> devices;
  for (std::size_t i = 0; i < trace.allocator.size(); ++i) {
    const std::int32_t device = trace.allocator[i].device;
    devices.try_emplace(device, trace, parents, parts, device).first->second.add(i);
  }
  std::vector<DeviceMemory> result;
  for (auto& [device, reader] : devices) result.push_back(reader.finish());
  return result;
}

std::vector<RankMemory> load_memory(const std::vector<std::string>& arguments) {
  const std::vector<std::filesystem::path> files = base::expand_inputs(arguments);
  std::vector<std::vector<RankMemory>> of_file(files.size());
  std::vector<std::string> refusals(files.size());
  base::parallel_for(files.size(), [&](std::size_t i) {
    base::for_each_document(files[i], [&](const std::string& name, base::ByteSource& source) {
      try {
        RankTrace trace = read_document(name, source, {.allocator = true});
        if (!trace.rank) trace.rank = rank_from_path(name);
        std::vector<DeviceMemory> devices = memory_of(trace);
        of_file[i].push_back({std::move(trace), std::move(devices)});
      } catch (const Error& error) {
        if (error.kind() != ErrorKind::kBadInput && error.kind() != ErrorKind::kDamagedInput) throw;
        if (refusals[i].empty()) refusals[i] = error.what();
      }
    });
  });
  std::vector<RankMemory> ranks;
  for (std::vector<RankMemory>& some : of_file) std::move(some.begin(), some.end(), std::back_inserter(ranks));
  if (ranks.empty()) {
    const auto refusal =
        std::find_if(refusals.begin(), refusals.end(), [](const std::string& text) { return !text.empty(); });
    throw Error(ErrorKind::kBadInput, "", refusal == refusals.end() ? "no traces found" : *refusal);
  }
  std::erase_if(ranks, [](const RankMemory& rank) { return rank.devices.empty(); });
  if (ranks.empty()) {
    throw Error(ErrorKind::kBadInput, arguments.front(),
                "holds no allocator events; record them with profile(profile_memory=True, record_shapes=True)");
  }
  std::stable_sort(ranks.begin(), ranks.end(), [](const RankMemory& a, const RankMemory& b) {
    return a.header.rank.value_or(UINT32_MAX) < b.header.rank.value_or(UINT32_MAX);
  });
  return ranks;
}

}  // namespace paceline::trace
