#pragma once
#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "paceline/gnn/random.h"

namespace paceline::gnn {

/// Numbers the nodes of a batch in order of first appearance: an array over all nodes whose entries are valid only
/// when their stamp is the batch's. 8 bytes per node of the graph, no clearing between batches.
class DenseIds {
 public:
  explicit DenseIds(std::uint64_t nodes) : entries_(nodes) {}
  void start() {
    if (++stamp_ == 0) {
      std::fill(entries_.begin(), entries_.end(), Entry{});
      stamp_ = 1;
    }
  }
  void prefetch(std::uint64_t node, std::uint32_t) const { __builtin_prefetch(&entries_[node], 1); }
  /// The number of `node`, which becomes `next` when it is new.
  std::uint32_t find_or_add(std::uint64_t node, std::uint32_t, std::uint32_t next) {
    Entry& entry = entries_[node];
    if (entry.stamp != stamp_) entry = {stamp_, next};
    return entry.id;
  }

 private:
  struct Entry {
    std::uint32_t stamp = 0;
    std::uint32_t id = 0;
  };
  std::vector<Entry> entries_;
  std::uint32_t stamp_ = 0;
};

/// The same as a hash table over (tree, node), for graphs that are large against a batch and for disjoint samples.
class HashIds {
 public:
  void start() {
    std::fill(slots_.begin(), slots_.end(), Slot{});
    used_ = 0;
  }
  void prefetch(std::uint64_t node, std::uint32_t tree) const {
    if (!slots_.empty()) __builtin_prefetch(&slots_[place(node, tree)], 1);
  }
  std::uint32_t find_or_add(std::uint64_t node, std::uint32_t tree, std::uint32_t next) {
    if (2 * (used_ + 1) > slots_.size()) grow();
    std::size_t at = place(node, tree);
    while (slots_[at].id != kEmpty) {
      if (slots_[at].node == node && slots_[at].tree == tree) return slots_[at].id;
      at = (at + 1) & (slots_.size() - 1);
    }
    slots_[at] = {node, tree, next};
    ++used_;
    return next;
  }

 private:
  static constexpr std::uint32_t kEmpty = std::numeric_limits<std::uint32_t>::max();
  struct Slot {
    std::uint64_t node = 0;
    std::uint32_t tree = 0;
    std::uint32_t id = kEmpty;
  };
  std::size_t place(std::uint64_t node, std::uint32_t tree) const {
    return mix(node + std::uint64_t{tree} * 0xD1B54A32D192ED03u) & (slots_.size() - 1);
  }
  void grow() {
    std::vector<Slot> old(std::max<std::size_t>(1024, 2 * slots_.size()));
    old.swap(slots_);
    for (const Slot& slot : old) {
      if (slot.id == kEmpty) continue;
      std::size_t at = place(slot.node, slot.tree);
      while (slots_[at].id != kEmpty) at = (at + 1) & (slots_.size() - 1);
      slots_[at] = slot;
    }
  }
  std::vector<Slot> slots_;
  std::size_t used_ = 0;
};

}  // namespace paceline::gnn
