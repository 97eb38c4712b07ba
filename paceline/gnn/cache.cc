#include "paceline/gnn/cache.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "paceline/base/error.h"
#include "paceline/gnn/sampler.h"

namespace paceline::gnn {

Cache::Cache(std::uint64_t nodes, std::uint64_t capacity)
    : capacity_(std::min({capacity, nodes, std::uint64_t{kNoSlot} - 1})),
      slot_of_(nodes, kNoSlot),
      id_of_(capacity_, kNoNode),
      pins_(capacity_, 0) {}

void Cache::announce(std::span<const std::uint64_t>) {}

void Cache::assign(Slot slot, std::uint64_t id) {
  if (id_of_[slot] != kNoNode) slot_of_[id_of_[slot]] = kNoSlot;
  id_of_[slot] = id;
  slot_of_[id] = slot;
}

namespace {

/// What the simple policies share: find() looks up, pins and lets the policy note the use; insert() asks it for a
/// victim.
template <class Derived>
class SimpleCache : public Cache {
 public:
  using Cache::Cache;
  void find(std::span<const std::uint64_t> ids, std::span<Slot> slots) override {
    for (std::size_t i = 0; i < ids.size(); ++i) {
      if (i + 16 < ids.size()) __builtin_prefetch(&slot_of_[ids[i + 16]]);
      const Slot slot = slot_of(ids[i]);
      slots[i] = slot;
      if (slot == kNoSlot) continue;
      ++pins_[slot];
      static_cast<Derived*>(this)->used(slot);
    }
  }
  void insert(std::span<const std::uint64_t> missing, std::span<Slot> slots) override {
    for (std::size_t i = 0; i < missing.size(); ++i) {
      slots[i] = kNoSlot;
      if (capacity_ == 0 || slot_of(missing[i]) != kNoSlot) continue;  // another batch in flight brought it
      const Slot slot = static_cast<Derived*>(this)->make_room(missing[i]);
      if (slot == kNoSlot) continue;
      assign(slot, missing[i]);
      slots[i] = slot;
      static_cast<Derived*>(this)->added(slot);
    }
    // A batch larger than the cache pushes out its own rows; only what is left is the batch's.
    for (std::size_t i = 0; i < missing.size(); ++i) {
      if (slots[i] == kNoSlot) continue;
      if (held(slots[i]) == missing[i])
        ++pins_[slots[i]];
      else
        slots[i] = kNoSlot;
    }
  }
};

class FifoCache final : public SimpleCache<FifoCache> {
 public:
  FifoCache(std::uint64_t nodes, std::uint64_t capacity, int shards)
      : SimpleCache(nodes, capacity), rings_(static_cast<std::size_t>(shards)) {
    for (std::size_t s = 0; s < rings_.size(); ++s) {
      rings_[s].first = static_cast<Slot>(capacity_ * s / rings_.size());
      rings_[s].size = static_cast<Slot>(capacity_ * (s + 1) / rings_.size()) - rings_[s].first;
    }
  }
  void used(Slot) {}
  void added(Slot) {}
  Slot make_room(std::uint64_t id) {
    Ring& ring = rings_[id % rings_.size()];
    for (Slot tries = 0; tries < ring.size; ++tries) {
      const Slot slot = ring.first + ring.tail;
      ring.tail = ring.tail + 1 == ring.size ? 0 : ring.tail + 1;
      if (!pinned(slot)) return slot;
    }
    return kNoSlot;
  }

 private:
  struct Ring {
    Slot first = 0;
    Slot size = 0;
    Slot tail = 0;
  };
  std::vector<Ring> rings_;
};

/// Doubly linked lists of slots, threaded through two arrays.
class SlotList {
 public:
  explicit SlotList(std::uint64_t slots) : next_(slots, kNoSlot), previous_(slots, kNoSlot) {}
  Slot head() const { return head_; }
  Slot tail() const { return tail_; }
  Slot towards_head(Slot slot) const { return previous_[slot]; }
  void push_head(Slot slot) {
    previous_[slot] = kNoSlot;
    next_[slot] = head_;
    (head_ == kNoSlot ? tail_ : previous_[head_]) = slot;
    head_ = slot;
    ++size_;
  }
  void remove(Slot slot) {
    (previous_[slot] == kNoSlot ? head_ : next_[previous_[slot]]) = next_[slot];
    (next_[slot] == kNoSlot ? tail_ : previous_[next_[slot]]) = previous_[slot];
    --size_;
  }
  std::uint64_t size() const { return size_; }

 private:
  std::vector<Slot> next_;
  std::vector<Slot> previous_;
  Slot head_ = kNoSlot;
  Slot tail_ = kNoSlot;
  std::uint64_t size_ = 0;
};

class LruCache final : public SimpleCache<LruCache> {
 public:
  LruCache(std::uint64_t nodes, std::uint64_t capacity) : SimpleCache(nodes, capacity), list_(capacity_) {}
  void used(Slot slot) {
    list_.remove(slot);
    list_.push_head(slot);
  }
  void added(Slot slot) { list_.push_head(slot); }
  Slot make_room(std::uint64_t) {
    if (const Slot free = unused(); free != kNoSlot) return free;
    Slot slot = list_.tail();
    while (slot != kNoSlot && pinned(slot)) slot = list_.towards_head(slot);
    if (slot != kNoSlot) list_.remove(slot);
    return slot;
  }

 private:
  SlotList list_;
};

class ClockCache final : public SimpleCache<ClockCache> {
 public:
  ClockCache(std::uint64_t nodes, std::uint64_t capacity) : SimpleCache(nodes, capacity), referenced_(capacity_, 0) {}
  void used(Slot slot) { referenced_[slot] = 1; }
  void added(Slot slot) { referenced_[slot] = 0; }
  Slot make_room(std::uint64_t) {
    if (const Slot free = unused(); free != kNoSlot) return free;
    for (std::uint64_t steps = 0; steps < 2 * capacity_; ++steps) {
      const Slot slot = hand_;
      hand_ = hand_ + 1 == capacity_ ? 0 : hand_ + 1;
      if (pinned(slot)) continue;
      if (referenced_[slot] == 0) return slot;
      referenced_[slot] = 0;
    }
    return kNoSlot;
  }

 private:
  std::vector<std::uint8_t> referenced_;
  Slot hand_ = 0;
};

class SieveCache final : public SimpleCache<SieveCache> {
 public:
  SieveCache(std::uint64_t nodes, std::uint64_t capacity)
      : SimpleCache(nodes, capacity), list_(capacity_), visited_(capacity_, 0) {}
  void used(Slot slot) { visited_[slot] = 1; }
  void added(Slot slot) {
    visited_[slot] = 0;
    list_.push_head(slot);
  }
  Slot make_room(std::uint64_t) {
    if (const Slot free = unused(); free != kNoSlot) return free;
    for (std::uint64_t steps = 0; steps < 2 * capacity_; ++steps) {
      if (hand_ == kNoSlot) hand_ = list_.tail();
      const Slot slot = hand_;
      hand_ = list_.towards_head(slot);
      if (pinned(slot)) continue;
      if (visited_[slot] == 0) {
        list_.remove(slot);
        return slot;
      }
      visited_[slot] = 0;
    }
    return kNoSlot;
  }

 private:
  SlotList list_;
  std::vector<std::uint8_t> visited_;
  Slot hand_ = kNoSlot;
};

class S3FifoCache final : public SimpleCache<S3FifoCache> {
 public:
  S3FifoCache(std::uint64_t nodes, std::uint64_t capacity)
      : SimpleCache(nodes, capacity),
        small_(capacity_),
        main_(capacity_),
        uses_(capacity_, 0),
        in_main_(capacity_, 0),
        ghost_ring_(capacity_, kNoNode),
        ghost_(nodes, 0),
        small_target_(std::max<std::uint64_t>(1, capacity_ / 10)) {}
  void used(Slot slot) { uses_[slot] = static_cast<std::uint8_t>(std::min(3, uses_[slot] + 1)); }
  void added(Slot slot) {
    uses_[slot] = 0;
    in_main_[slot] = ghost_[held(slot)];
    ghost_[held(slot)] = 0;
    (in_main_[slot] != 0 ? main_ : small_).push_head(slot);
  }
  Slot make_room(std::uint64_t) {
    if (const Slot free = unused(); free != kNoSlot) return free;
    for (std::uint64_t steps = 0; steps < 8 * capacity_ + 8; ++steps) {
      const bool from_small = small_.size() > small_target_ || main_.size() == 0;
      SlotList& list = from_small ? small_ : main_;
      const Slot slot = list.tail();
      if (slot == kNoSlot) return kNoSlot;
      list.remove(slot);
      if (pinned(slot)) {
        list.push_head(slot);
      } else if (from_small && uses_[slot] > 1) {
        uses_[slot] = 0;
        in_main_[slot] = 1;
        main_.push_head(slot);
      } else if (from_small) {
        remember(held(slot));
        return slot;
      } else if (uses_[slot] > 0) {
        --uses_[slot];
        main_.push_head(slot);
      } else {
        return slot;
      }
    }
    return kNoSlot;
  }

 private:
  void remember(std::uint64_t id) {
    if (ghost_ring_[ghost_at_] != kNoNode) ghost_[ghost_ring_[ghost_at_]] = 0;
    ghost_ring_[ghost_at_] = id;
    ghost_[id] = 1;
    ghost_at_ = ghost_at_ + 1 == capacity_ ? 0 : ghost_at_ + 1;
  }
  SlotList small_;
  SlotList main_;
  std::vector<std::uint8_t> uses_;
  std::vector<std::uint8_t> in_main_;
  std::vector<std::uint64_t> ghost_ring_;
  std::vector<std::uint8_t> ghost_;
  std::uint64_t ghost_at_ = 0;
  std::uint64_t small_target_;
};

class StaticCache final : public SimpleCache<StaticCache> {
 public:
  StaticCache(std::uint64_t nodes, std::uint64_t capacity, const std::vector<float>& scores)
      : SimpleCache(nodes, capacity) {
    std::vector<std::uint64_t> order(nodes);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](std::uint64_t a, std::uint64_t b) { return scores[a] > scores[b]; });
    preloaded_.assign(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(capacity_));
    for (Slot slot = 0; slot < capacity_; ++slot) assign(slot, preloaded_[slot]);
  }
  void used(Slot) {}
  void added(Slot) {}
  Slot make_room(std::uint64_t) { return kNoSlot; }
};

}  // namespace

std::unique_ptr<Cache> make_cache(CacheOptions options) {
  const bool scored =
      options.policy == Policy::kStatic || (options.policy == Policy::kLookahead && !options.scores.empty());
  if (scored && options.scores.size() < options.nodes)
    throw Error(ErrorKind::kUsage, "cache",
                fmt::format("{} scores for {} nodes", options.scores.size(), options.nodes));
  if (options.shards < 1)
    throw Error(ErrorKind::kUsage, "cache", fmt::format("{} shards, expected 1 or more", options.shards));
  switch (options.policy) {
    case Policy::kFifo:
      return std::make_unique<FifoCache>(options.nodes, options.capacity, options.shards);
    case Policy::kLru:
      return std::make_unique<LruCache>(options.nodes, options.capacity);
    case Policy::kClock:
      return std::make_unique<ClockCache>(options.nodes, options.capacity);
    case Policy::kSieve:
      return std::make_unique<SieveCache>(options.nodes, options.capacity);
    case Policy::kS3Fifo:
      return std::make_unique<S3FifoCache>(options.nodes, options.capacity);
    case Policy::kStatic:
      return std::make_unique<StaticCache>(options.nodes, options.capacity, options.scores);
    case Policy::kLookahead:
    case Policy::kBelady:
      break;
  }
  return make_lookahead(std::move(options));
}

CacheResult simulate(Cache& cache, const Trace& trace, std::size_t window, std::size_t warm_up) {
  CacheResult result;
  std::vector<Slot> slots;
  std::vector<Slot> new_slots;
  std::vector<std::uint64_t> missing;
  std::size_t announced = 0;
  for (std::size_t b = 0; b < trace.size(); ++b) {
    for (; announced < trace.size() && announced <= b + window; ++announced) cache.announce(trace[announced]);
    slots.resize(trace[b].size());
    cache.find(trace[b], slots);
    missing.clear();
    for (std::size_t i = 0; i < slots.size(); ++i)
      if (slots[i] == kNoSlot) missing.push_back(trace[b][i]);
    if (b >= warm_up) result.lookups += slots.size(), result.hits += slots.size() - missing.size();
    // The batch is served before its rows go in (BGL): hits may be pushed out by them.
    cache.release(slots);
    new_slots.resize(missing.size());
    cache.insert(missing, new_slots);
    cache.release(new_slots);
  }
  return result;
}

std::vector<float> degree_scores(const Graph& graph) {
  std::vector<float> scores(std::max(graph.rows(), graph.columns()), 0);
  graph.visit([&](const auto& rows) {
    for (const auto u : rows.neighbours) scores[u] += 1;
  });
  return scores;
}

std::vector<float> presample_scores(const Trace& trace, std::size_t batches, std::uint64_t nodes) {
  std::vector<float> scores(nodes, 0);
  for (std::size_t b = 0; b < std::min(batches, trace.size()); ++b)
    for (const std::uint64_t v : trace[b]) scores[v] += 1;
  return scores;
}

std::vector<float> vip_scores(const Graph& graph, std::span<const std::uint64_t> train, std::size_t batch,
                              const std::vector<int>& fanout) {
  const std::uint64_t nodes = std::max(graph.rows(), graph.columns());
  std::vector<double> chance(nodes, 0);
  for (const std::uint64_t v : train)
    chance[v] = std::min(1.0, static_cast<double>(batch) / static_cast<double>(train.size()));
  std::vector<double> absent(nodes);
  for (std::uint64_t v = 0; v < nodes; ++v) absent[v] = 1 - chance[v];
  graph.visit([&](const auto& rows) {
    for (const int count : fanout) {
      std::vector<double> log_absent(nodes, 0);
      for (std::uint64_t v = 0; v < rows.rows(); ++v) {
        const auto degree = static_cast<double>(rows.degree(v));
        if (degree == 0 || chance[v] == 0) continue;
        const double drawn = chance[v] * (count < 0 ? 1.0 : std::min(1.0, count / degree));
        const double log_not = std::log1p(-std::min(drawn, 1 - 1e-12));
        for (const auto u : rows.row(v)) log_absent[u] += log_not;
      }
      for (std::uint64_t v = 0; v < nodes; ++v) {
        chance[v] = -std::expm1(log_absent[v]);
        absent[v] *= 1 - chance[v];
      }
    }
  });
  std::vector<float> scores(nodes);
  for (std::uint64_t v = 0; v < nodes; ++v) scores[v] = static_cast<float>(1 - absent[v]);
  return scores;
}

Trace record_trace(const Graph& graph, std::span<const std::uint64_t> order, std::size_t batch,
                   const std::vector<int>& fanout, std::uint64_t epoch, std::uint64_t seed) {
  PL_CHECK(batch > 0);
  Trace trace((order.size() + batch - 1) / batch);
  graph.visit([&](const auto& rows) {
    using Node = std::remove_cvref_t<decltype(rows.neighbours[0])>;
    const std::vector<Node> seeds(order.begin(), order.end());
    sample_batches<Node>(
        rows, graph.columns(), {.fanout = fanout, .seed = seed}, seeds, batch, epoch,
        [&](std::size_t i, const Sample<Node>& sample) { trace[i].assign(sample.nodes.begin(), sample.nodes.end()); });
  });
  return trace;
}

}  // namespace paceline::gnn
