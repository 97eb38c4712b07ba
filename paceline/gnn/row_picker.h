#pragma once
#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "paceline/base/error.h"
#include "paceline/gnn/pick.h"
#include "paceline/gnn/random.h"
#include "paceline/gnn/sampler.h"

namespace paceline::gnn {

/// What both samplers share: which positions of one row are drawn. Draws depend on the keys only.
template <class Node>
class RowPicker {
 public:
  RowPicker(const Rows<Node>& rows, const SampleOptions& options) : rows_(rows), options_(options) {}

  /// Appends the positions drawn for `node` at most at `time`; LABOR also appends their weights.
  void pick(std::uint64_t node, std::uint64_t hop_key, std::uint64_t tree, std::int64_t time, int fanout,
            std::vector<std::uint64_t>& positions, std::vector<float>& weights) {
    if (node >= rows_.rows()) return;  // bipartite: a source has no row here
    const std::uint64_t first = rows_.offsets[node];
    std::uint64_t range = rows_.offsets[node + 1] - first;
    if (options_.when != When::kAny && range > 0) {
      const std::span<const std::int64_t> times = rows_.times.subspan(first, range);
      range = static_cast<std::uint64_t>(std::upper_bound(times.begin(), times.end(), time) - times.begin());
    }
    if (range == 0 || fanout == 0) return;
    const bool all = fanout < 0 || (range <= static_cast<std::uint64_t>(fanout) && !options_.replace);
    if (all && options_.method != Method::kWeighted) {
      for (std::uint64_t i = 0; i < range; ++i) positions.push_back(first + i);
      if (options_.method == Method::kLabor) weights.insert(weights.end(), range, 1.0f);
      return;
    }
    const auto count = static_cast<std::uint32_t>(all ? std::min<std::uint64_t>(range, 0xFFFFFFFFu)
                                                      : static_cast<std::uint64_t>(fanout));
    const auto emit = [&](std::uint64_t i) { positions.push_back(first + i); };
    CounterRandom random(key_of(key_of(hop_key, node), tree));
    if (options_.when == When::kLast) {
      for (std::uint64_t i = range - count; i < range; ++i) emit(i);
    } else if (options_.method == Method::kWeighted) {
      const std::span<const float> row_weights = rows_.weights.subspan(first, range);
      if (options_.replace && !all)
        pick_weighted_with_replacement(random, row_weights, count, marks_, emit);
      else
        pick_weighted_distinct(random, row_weights, count, heap_, emit);
    } else if (options_.method == Method::kLabor) {
      pick_labor(hop_key, first, range, count, positions, weights);
    } else if (options_.replace) {
      for (std::uint32_t i = 0; i < count; ++i) emit(random.below(range));
    } else {
      pick_distinct(random, range, count, table_, emit);
    }
  }

 private:
  /// A neighbour belongs to the sample of a row of degree d when its own random number is below fanout / d.
  void pick_labor(std::uint64_t hop_key, std::uint64_t first, std::uint64_t range, std::uint32_t count,
                  std::vector<std::uint64_t>& positions, std::vector<float>& weights) const {
    const double share = static_cast<double>(count) / static_cast<double>(range);
    const auto limit = static_cast<std::uint64_t>(share * 0x1.0p53);
    for (std::uint64_t i = 0; i < range; ++i) {
      if ((key_of(hop_key, rows_.neighbours[first + i]) >> 11) >= limit) continue;
      positions.push_back(first + i);
      weights.push_back(static_cast<float>(1 / share));
    }
  }

  const Rows<Node>& rows_;
  const SampleOptions& options_;
  std::vector<std::uint64_t> table_;
  std::vector<double> marks_;
  std::vector<std::pair<double, std::uint64_t>> heap_;
};

/// Throws Error(kUsage) when `rows` lack what the options need or the options do not fit together, Error(kBadInput)
/// naming the first weight that cannot be sampled by.
template <class Node>
void check_options(const Rows<Node>& rows, const SampleOptions& options) {
  const auto need = [](bool has, const char* what) {
    if (!has) throw Error(ErrorKind::kUsage, "sampling", what);
  };
  const bool by_time = options.when != When::kAny;
  const bool own_draw = options.method == Method::kLabor || options.method == Method::kLayer;
  need(!options.fanout.empty(), "needs a fanout for one hop at least");
  for (const int count : options.fanout) need(count >= -1, "a fanout is -1 (all) or a number of neighbours");
  need(!by_time || !rows.times.empty() || rows.edges() == 0,
       "by time needs edge times; import the graph with a time column");
  need(options.method != Method::kWeighted || !rows.weights.empty() || rows.edges() == 0,
       "by weight needs edge weights; import the graph with a weight column");
  need(!by_time || !own_draw, "by time works with uniform and weighted sampling");
  need(options.when != When::kLast || !options.replace, "the last edges cannot be drawn with replacement");
  need(options.method != Method::kLayer || !(options.disjoint || by_time),
       "layer-wise sampling draws for all seeds together, not one tree per seed");
  need(!own_draw || !options.replace, "LABOR and layer-wise sampling draw without replacement");
  if (options.method != Method::kWeighted) return;
  for (std::uint64_t i = 0; i < rows.weights.size(); ++i)
    if (!(rows.weights[i] >= 0))
      throw Error(ErrorKind::kBadInput, fmt::format("edge {}", rows.edge_id(i)),
                  fmt::format("has weight {}; sampling by weight needs 0 or more", rows.weights[i]));
}

}  // namespace paceline::gnn
