#include <algorithm>
#include <deque>
#include <numeric>

#include "paceline/base/error.h"
#include "paceline/gnn/cache.h"

namespace paceline::gnn {
namespace {

constexpr std::uint32_t kBeyond = std::numeric_limits<std::uint32_t>::max();

/// Keeps the rows that are used soonest. Batches are announced ahead (sampling runs ahead anyway), so the next use of
/// every row is known within the window; rows without one rank by their score. With the whole trace announced this is
/// Belady's MIN with the right not to insert.
///
/// Rows stand in lists by rank: one list per batch of the window, and kScoreLists lists for rows beyond it. Giving up a
/// row takes the lowest list that is not empty, so all operations are O(1) but for a scan over empty lists.
class LookaheadCache final : public Cache {
 public:
  explicit LookaheadCache(const CacheOptions& options)
      : Cache(options.nodes, options.capacity),
        level_(options.nodes, 0),
        pending_(options.nodes, kBeyond),
        last_(options.nodes, Place{kBeyond, 0}),
        links_(capacity_),
        heads_(kScoreLists + 32, kNoSlot) {
    rank_scores(options.scores);
  }

  void announce(std::span<const std::uint64_t> ids) override {
    const auto batch = static_cast<std::uint32_t>(first_ + window_.size());
    ensure_list(batch);
    window_.emplace_back(ids.size(), kBeyond);
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const std::uint64_t id = ids[i];
      if (last_[id].batch != kBeyond && last_[id].batch >= first_)
        window_[last_[id].batch - first_][last_[id].index] = batch;
      last_[id] = {batch, static_cast<std::uint32_t>(i)};
      if (pending_[id] != kBeyond) continue;
      pending_[id] = batch;
      if (const Slot slot = slot_of(id); slot != kNoSlot) relist(slot, batch);
    }
  }

  void find(std::span<const std::uint64_t> ids, std::span<Slot> slots) override {
    PL_CHECK(!window_.empty() && window_.front().size() == ids.size());
    const std::vector<std::uint32_t>& uses = window_.front();
    // Two passes, each of which prefetches what it is about to touch: first the nodes, then the slots.
    for (std::size_t i = 0; i < ids.size(); ++i) {
      if (i + 16 < ids.size()) {
        __builtin_prefetch(&slot_of_[ids[i + 16]]);
        __builtin_prefetch(&pending_[ids[i + 16]], 1);
      }
      slots[i] = slot_of(ids[i]);
      pending_[ids[i]] = uses[i];
      if (slots[i] != kNoSlot) __builtin_prefetch(&links_[slots[i]], 1);
    }
    for (std::size_t i = 0; i < ids.size(); ++i) {
      if (slots[i] == kNoSlot) continue;
      ++pins_[slots[i]];
      relist(slots[i], uses[i]);
    }
    window_.pop_front();
    ++first_;
  }

  void insert(std::span<const std::uint64_t> missing, std::span<Slot> slots) override {
    std::fill(slots.begin(), slots.end(), kNoSlot);
    if (capacity_ == 0) return;
    // Best first: once one is not worth a row, none of the rest is.
    order_.resize(missing.size());
    for (std::size_t i = 0; i < missing.size(); ++i) order_[i] = {rank(missing[i]), static_cast<std::uint32_t>(i)};
    std::sort(order_.begin(), order_.end());
    for (const auto& [worth, i] : order_) {
      if (slot_of(missing[i]) != kNoSlot) continue;
      Slot slot = unused();
      if (slot == kNoSlot) slot = give_up(worth);
      if (slot == kNoSlot) break;
      assign(slot, missing[i]);
      ++pins_[slot];
      slots[i] = slot;
      link(slot, list_for(missing[i]));
    }
  }

 private:
  static constexpr std::uint32_t kScoreLists = 1024;
  struct Link {
    Slot next = kNoSlot;
    Slot previous = kNoSlot;
    std::uint32_t list = 0;
  };
  struct Place {
    std::uint32_t batch;
    std::uint32_t index;
  };

  /// Nodes by score in kScoreLists classes of equal size; class kScoreLists - 1 is best. Nodes of one score share one.
  void rank_scores(const std::vector<float>& scores) {
    if (scores.empty()) return;
    std::vector<std::uint64_t> order(level_.size());
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(), [&](std::uint64_t a, std::uint64_t b) { return scores[a] < scores[b]; });
    for (std::size_t i = 0; i < order.size(); ++i) {
      const bool same = i > 0 && scores[order[i]] == scores[order[i - 1]];
      level_[order[i]] = same ? level_[order[i - 1]] : static_cast<std::uint16_t>(i * kScoreLists / order.size());
    }
  }

  /// Lower is better: first by batch of next use, then, beyond the window, by falling score.
  std::uint64_t rank(std::uint64_t id) const {
    return pending_[id] != kBeyond ? pending_[id] : (std::uint64_t{1} << 32) + (kScoreLists - 1 - level_[id]);
  }
  std::uint32_t list_for(std::uint64_t id) const {
    return pending_[id] == kBeyond ? level_[id] : list_of_batch(pending_[id]);
  }
  std::uint32_t list_of_batch(std::uint32_t batch) const {
    return kScoreLists + static_cast<std::uint32_t>(batch % batch_lists_);
  }

  /// Batches use lists in turn; there must be more lists than batches alive.
  void ensure_list(std::uint32_t batch) {
    if (batch + 2 - first_ < batch_lists_) return;
    std::vector<std::pair<Slot, std::uint64_t>> rows;
    for (Slot slot = 0; slot < capacity_; ++slot)
      if (held(slot) != kNoNode) rows.emplace_back(slot, held(slot));
    batch_lists_ *= 2;
    heads_.assign(kScoreLists + batch_lists_, kNoSlot);
    lowest_ = 0;
    for (const auto& [slot, id] : rows) link(slot, list_for(id));
  }

  void relist(Slot slot, std::uint32_t next_use) {
    const std::uint32_t list = next_use == kBeyond ? level_[held(slot)] : list_of_batch(next_use);
    if (list == links_[slot].list) return;
    unlink(slot);
    link(slot, list);
  }
  void link(Slot slot, std::uint32_t list) {
    links_[slot] = {heads_[list], kNoSlot, list};
    if (heads_[list] != kNoSlot) links_[heads_[list]].previous = slot;
    heads_[list] = slot;
    if (list < kScoreLists) lowest_ = std::min(lowest_, list);
  }
  void unlink(Slot slot) {
    const Link& link = links_[slot];
    if (link.previous == kNoSlot) {
      heads_[link.list] = link.next;
    } else {
      links_[link.previous].next = link.next;
    }
    if (link.next != kNoSlot) links_[link.next].previous = link.previous;
  }

  /// The row used latest, if it is worth less than `worth`.
  Slot give_up(std::uint64_t worth) {
    while (lowest_ < kScoreLists && heads_[lowest_] == kNoSlot) ++lowest_;
    for (std::uint32_t list = lowest_; list < kScoreLists; ++list) {
      if ((std::uint64_t{1} << 32) + (kScoreLists - 1 - list) <= worth) return kNoSlot;
      if (const Slot slot = take(list); slot != kNoSlot) return slot;
    }
    for (std::uint64_t batch = first_ + window_.size(); batch-- > first_;) {
      if (batch <= worth) return kNoSlot;
      if (const Slot slot = take(list_of_batch(static_cast<std::uint32_t>(batch))); slot != kNoSlot) return slot;
    }
    return kNoSlot;
  }
  Slot take(std::uint32_t list) {
    for (Slot slot = heads_[list]; slot != kNoSlot; slot = links_[slot].next) {
      if (pinned(slot)) continue;
      unlink(slot);
      return slot;
    }
    return kNoSlot;
  }

  std::vector<std::uint16_t> level_;               // score class per node
  std::vector<std::uint32_t> pending_;             // per node: batch of its next announced use
  std::vector<Place> last_;                        // per node: its last announced use
  std::deque<std::vector<std::uint32_t>> window_;  // per announced batch and index: batch of the use after it
  std::uint64_t first_ = 0;                        // batch at the front of the window
  std::vector<Link> links_;                        // per slot: its list and its neighbours there
  std::vector<Slot> heads_;
  std::uint32_t batch_lists_ = 32;
  std::uint32_t lowest_ = 0;
  std::vector<std::pair<std::uint64_t, std::uint32_t>> order_;
};

}  // namespace

std::unique_ptr<Cache> make_lookahead(CacheOptions options) {
  return std::make_unique<LookaheadCache>(options);
}

}  // namespace paceline::gnn
