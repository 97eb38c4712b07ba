#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "paceline/gnn/random.h"

namespace paceline::gnn {

/// `count` different numbers below `range` (count < range), every set alike. Floyd's algorithm (Bentley and Floyd,
/// CACM 30(9), 1987); the look-up is a scan while that is cheaper than a table.
template <class Emit>
void pick_distinct(CounterRandom& random, std::uint64_t range, std::uint32_t count, std::vector<std::uint64_t>& table,
                   const Emit& emit) {
  constexpr std::uint32_t kScan = 48;
  if (count <= kScan) {
    std::uint64_t picked[kScan];
    for (std::uint32_t i = 0; i < count; ++i) {
      const std::uint64_t last = range - count + i;
      std::uint64_t pick = random.below(last + 1);
      bool taken = false;
      for (std::uint32_t j = 0; j < i; ++j) taken |= picked[j] == pick;
      picked[i] = taken ? last : pick;
      emit(picked[i]);
    }
    return;
  }
  std::size_t size = 128;
  while (size < 2 * std::size_t{count}) size *= 2;
  table.assign(size, 0);  // holds pick + 1
  const auto insert = [&](std::uint64_t pick) {
    std::size_t at = mix(pick) & (size - 1);
    while (table[at] != 0) {
      if (table[at] == pick + 1) return false;
      at = (at + 1) & (size - 1);
    }
    table[at] = pick + 1;
    return true;
  };
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::uint64_t last = range - count + i;
    std::uint64_t pick = random.below(last + 1);
    if (!insert(pick)) insert(pick = last);
    emit(pick);
  }
}

/// `count` draws with replacement, each by weight: sorted uniform numbers against running sums. O(weights) time,
/// O(count) memory.
template <class Emit>
void pick_weighted_with_replacement(CounterRandom& random, std::span<const float> weights, std::uint32_t count,
                                    std::vector<double>& scratch, const Emit& emit) {
  double total = 0;
  for (const float weight : weights) total += weight;
  if (total <= 0) return;
  scratch.resize(count);
  for (double& mark : scratch) mark = random.uniform() * total;  // in (0, total]
  std::sort(scratch.begin(), scratch.end());
  double sum = 0;
  std::size_t next = 0;
  std::size_t last = 0;
  for (std::size_t i = 0; i < weights.size() && next < count; ++i) {
    sum += weights[i];
    if (weights[i] > 0) last = i;
    while (next < count && scratch[next] <= sum) emit(i), ++next;
  }
  for (; next < count; ++next) emit(last);  // total and sum may differ in the last bit
}

/// Up to `count` different indices with chances in proportion to weight, drawn one after the other: the `count`
/// smallest keys -log(u) / w. Zero weights are never drawn. O(weights log count) time, O(count) memory.
template <class Emit>
void pick_weighted_distinct(CounterRandom& random, std::span<const float> weights, std::uint32_t count,
                            std::vector<std::pair<double, std::uint64_t>>& heap, const Emit& emit) {
  heap.clear();
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const double u = random.uniform();
    if (!(weights[i] > 0)) continue;
    const std::pair<double, std::uint64_t> entry{-std::log(u) / static_cast<double>(weights[i]), i};
    if (heap.size() < count) {
      heap.push_back(entry);
      std::push_heap(heap.begin(), heap.end());
    } else if (entry < heap.front()) {
      std::pop_heap(heap.begin(), heap.end());
      heap.back() = entry;
      std::push_heap(heap.begin(), heap.end());
    }
  }
  std::sort_heap(heap.begin(), heap.end());
  for (const auto& [key, index] : heap) emit(index);
}

}  // namespace paceline::gnn
