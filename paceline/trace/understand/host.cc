#include "paceline/trace/understand/host.h"

#include <algorithm>
#include <limits>

#include "paceline/trace/understand/names.h"

namespace paceline::trace {
namespace {

constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

bool is_step(std::string_view name) {
  return name.starts_with("ProfilerStep#");
}

/// Innermost slice at every moment of one thread. Slices that overlap without nesting are cut at the start of the next.
class Innermost {
 public:
  Innermost(const RankTrace& trace, const Lane& lane)
      : trace_(&trace), row_(lane.begin), end_(lane.end), now_(trace.slices.start[lane.begin]) {}

  bool operator()(Segment& segment) {
    if (!ahead_) ahead_ = piece();
    if (!ahead_) return false;
    segment = *ahead_;
    // A slice goes on after what took no time in it.
    while ((ahead_ = piece()) && segment.row != kNoRow && ahead_->row == segment.row && ahead_->begin == segment.end) {
      segment.end = ahead_->end;
    }
    return true;
  }

 private:
  /// Up to the next begin or end of a slice.
  std::optional<Segment> piece() {
    const Slices& slices = trace_->slices;
    while (row_ < end_ || !open_.empty()) {
      std::optional<Segment> passed;
      if (row_ < end_ && is_host_collective(*trace_, row_)) {
        ++row_;
      } else if (!open_.empty() && (row_ == end_ || slices.end(open_.back()) <= slices.start[row_])) {
        passed = advance(slices.end(open_.back()));
        open_.pop_back();
      } else {
        passed = advance(slices.start[row_]);
        open_.push_back(row_++);
      }
      if (passed) return passed;
    }
    return std::nullopt;
  }

  std::optional<Segment> advance(std::int64_t to) {
    if (to <= now_) return std::nullopt;
    const Segment passed{now_, to, open_.empty() ? kNoRow : open_.back()};
    now_ = to;
    return passed;
  }

  const RankTrace* trace_;
  Row row_, end_;
  std::int64_t now_;
  std::vector<Row> open_;
  std::optional<Segment> ahead_;
};

class Overlay {
 public:
  explicit Overlay(std::vector<Segments> sources) {
    for (Segments& next : sources) layers_.push_back({std::move(next)});
    for (Layer& layer : layers_) {
      advance(layer);
      if (!layer.ended) now_ = std::min(now_, layer.segment.begin);
    }
  }

  bool operator()(Segment& result) {
    std::int64_t until = kNever;
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      Layer& layer = layers_[i];
      while (!layer.ended && layer.segment.end <= now_) advance(layer);
      if (layer.ended) continue;
      if (layer.segment.begin <= now_) {
        return give({now_, std::min(layer.segment.end, until), layer.segment.row, static_cast<std::uint8_t>(i)},
                    result);
      }
      until = std::min(until, layer.segment.begin);
    }
    if (until == kNever) return false;
    return give({now_, until, kNoRow, static_cast<std::uint8_t>(layers_.size() - 1)}, result);
  }

 private:
  struct Layer {
    Segments next;
    Segment segment{};
    bool ended = false;
  };

  /// Only the last source tells where it is in no slice: in front of it others are seen through.
  void advance(Layer& layer) {
    do {
      layer.ended = !layer.next(layer.segment);
    } while (!layer.ended && layer.segment.row == kNoRow && &layer != &layers_.back());
  }

  bool give(const Segment& segment, Segment& result) {
    result = segment;
    now_ = segment.end;
    return true;
  }

  std::vector<Layer> layers_;
  std::int64_t now_ = kNever;
};

}  // namespace

bool is_host_collective(const RankTrace& trace, Row row) {
  const Category category = trace.slices.category[row];
  const bool host = category == Category::kUserAnnotation || category == Category::kCpuOp;
  return host && is_host_collective(trace.name(row));
}

Segments overlay(std::vector<Segments> sources) {
  return Overlay(std::move(sources));
}

std::optional<LaneId> main_thread(const RankTrace& trace) {
  const Slices& slices = trace.slices;
  std::optional<LaneId> best;
  std::int64_t best_time = 0;
  for (std::uint32_t id = 0; id < trace.lanes.size(); ++id) {
    const Lane& lane = trace.lanes[id];
    if (lane.device) continue;
    std::int64_t time = 0, covered_until = std::numeric_limits<std::int64_t>::min();
    for (Row row = lane.begin; row < lane.end; ++row) {
      if (slices.category[row] == Category::kUserAnnotation && is_step(trace.name(row))) return LaneId{id};
      if (slices.category[row] != Category::kCpuOp || slices.end(row) <= covered_until) continue;
      time += slices.end(row) - std::max(covered_until, slices.start[row]);
      covered_until = slices.end(row);
    }
    if (time > best_time) {
      best_time = time;
      best = LaneId{id};
    }
  }
  return best;
}

std::vector<LaneId> training_threads(const RankTrace& trace) {
  const std::optional<LaneId> main = main_thread(trace);
  if (!main) return {};
  std::vector<LaneId> threads{*main};
  for (std::uint32_t id = 0; id < trace.lanes.size(); ++id) {
    const Lane& lane = trace.lanes[id];
    if (lane.device || LaneId{id} == *main) continue;
    bool autograd = false;
    for (Row row = lane.begin; row < lane.end && !autograd; ++row) {
      autograd = trace.name(row).starts_with("autograd::engine::evaluate_function");
    }
    if (autograd) threads.push_back(LaneId{id});
  }
  std::reverse(threads.begin(), threads.end());
  return threads;
}

Segments host_timeline(const RankTrace& trace) {
  std::vector<Segments> threads;
  for (const LaneId id : training_threads(trace)) threads.push_back(Innermost(trace, trace.lanes[base::index(id)]));
  return overlay(std::move(threads));
}

}  // namespace paceline::trace
