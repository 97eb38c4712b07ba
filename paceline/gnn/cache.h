#pragma once
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "paceline/gnn/graph.h"

namespace paceline::gnn {

/// Place of a row in a cache's buffer.
using Slot = std::uint32_t;
inline constexpr Slot kNoSlot = std::numeric_limits<Slot>::max();

enum class Policy {
  kFifo,  // BGL: shards by node id, a ring each, insertion after the batch is served
  kLru,
  kClock,
  kSieve,      // Zhang et al., NSDI 2024
  kS3Fifo,     // Yang et al., SOSP 2023
  kStatic,     // the nodes of highest score, never replaced (degree, presample, VIP: by the score given)
  kLookahead,  // next use known from batches announced ahead, by score beyond them
  kBelady      // the same with the whole future announced: the oracle
};

struct CacheOptions {
  Policy policy = Policy::kLookahead;
  std::uint64_t nodes = 0;
  std::uint64_t capacity = 0;  // rows; 0 and more than `nodes` work
  int shards = 1;              // kFifo
  std::vector<float> scores;   // kStatic and kLookahead: one per node, higher is kept longer
};

/// Decides which rows are held; the rows themselves belong to the caller. Per batch: find(), then fetch what is missing
/// and serve, then insert(), then release(). Ids of one batch are different from each other. Rows found or inserted are
/// pinned until release() and are never given away meanwhile, so several batches may be in flight. Not thread-safe: one
/// owner. 4 bytes per node and 8 to 24 per row.
class Cache {
 public:
  virtual ~Cache() = default;

  /// Slot of every id, or kNoSlot.
  virtual void find(std::span<const std::uint64_t> ids, std::span<Slot> slots) = 0;
  /// A slot for every missing id of the batch, or kNoSlot when it is not worth one or all are pinned. The rows of
  /// `fetched` are to be copied there before the next call.
  virtual void insert(std::span<const std::uint64_t> missing, std::span<Slot> slots) = 0;
  /// The batch has been read.
  void release(std::span<const Slot> slots) {
    for (const Slot slot : slots)
      if (slot != kNoSlot) --pins_[slot];
  }
  /// The batch after all those announced so far; only kLookahead and kBelady listen. Batches must then be found in the
  /// order in which they were announced.
  virtual void announce(std::span<const std::uint64_t> ids);
  /// Rows a static policy holds from the start, in slot order: the caller fills them before the first batch.
  std::span<const std::uint64_t> preloaded() const { return preloaded_; }
  std::uint64_t capacity() const { return capacity_; }

 protected:
  Cache(std::uint64_t nodes, std::uint64_t capacity);
  Slot slot_of(std::uint64_t id) const { return slot_of_[id]; }
  bool pinned(Slot slot) const { return pins_[slot] != 0; }
  /// The slot now holds `id` instead of what it held.
  void assign(Slot slot, std::uint64_t id);
  std::uint64_t held(Slot slot) const { return id_of_[slot]; }
  /// A slot that never held anything, or kNoSlot.
  Slot unused() { return used_ < capacity_ ? static_cast<Slot>(used_++) : kNoSlot; }

  std::uint64_t capacity_;
  std::vector<Slot> slot_of_;
  std::vector<std::uint64_t> id_of_;
  std::vector<std::uint16_t> pins_;
  std::vector<std::uint64_t> preloaded_;

 private:
  std::uint64_t used_ = 0;
};

inline constexpr std::uint64_t kNoNode = std::numeric_limits<std::uint64_t>::max();

/// Throws Error(kUsage) when scores are missing or too few.
std::unique_ptr<Cache> make_cache(CacheOptions options);
std::unique_ptr<Cache> make_lookahead(CacheOptions options);  // in lookahead.cc

/// Recorded accesses: the different nodes of every batch, in order.
using Trace = std::vector<std::vector<std::uint64_t>>;

struct CacheResult {
  std::uint64_t lookups = 0;
  std::uint64_t hits = 0;
  double ratio() const { return lookups == 0 ? 0 : static_cast<double>(hits) / static_cast<double>(lookups); }
};

/// Runs a trace through a policy, announcing `window` batches ahead; counts from batch `warm_up` on.
CacheResult simulate(Cache& cache, const Trace& trace, std::size_t window, std::size_t warm_up = 0);

/// Scores for static caches.
std::vector<float> degree_scores(const Graph& graph);
/// How often each node is touched by the first batches of a trace (GNNLab's pre-sampling).
std::vector<float> presample_scores(const Trace& trace, std::size_t batches, std::uint64_t nodes);
/// The analytic chance to be in a batch: p_{h+1}(u) = 1 - prod over v with u in N(v) of (1 - p_h(v) min(1, k_h / deg
/// v)), from p_0 = batch / train on the training nodes (after SALIENT++'s vertex-inclusion probability).
std::vector<float> vip_scores(const Graph& graph, std::span<const std::uint64_t> train, std::size_t batch,
                              const std::vector<int>& fanout);

/// Samples an epoch and keeps the nodes of each batch.
Trace record_trace(const Graph& graph, std::span<const std::uint64_t> order, std::size_t batch,
                   const std::vector<int>& fanout, std::uint64_t epoch, std::uint64_t seed);

}  // namespace paceline::gnn
