#include "paceline/gnn/refine.h"

#include <algorithm>
#include <limits>
#include <queue>

#include "paceline/base/error.h"
#include "paceline/base/rng.h"

namespace paceline::gnn {
namespace {

constexpr std::uint32_t kNoPart = std::numeric_limits<std::uint32_t>::max();

struct Move {
  std::int64_t gain = std::numeric_limits<std::int64_t>::min();
  std::uint32_t to = kNoPart;
};

struct Entry {
  std::int64_t gain;
  std::uint32_t tie;  // random: equal gains in no particular order
  std::uint32_t node;
  bool operator<(const Entry& other) const { return gain != other.gain ? gain < other.gain : tie < other.tie; }
};

/// Part sums and, per node, how strongly it is tied to each part.
class State {
 public:
  State(const WeightedGraph& graph, std::vector<std::uint32_t>& part_of, const Limits& limits)
      : graph_(graph),
        part_(part_of),
        limits_(limits),
        parts_(static_cast<std::size_t>(limits.parts())),
        ties_(std::size_t{graph.nodes()} * parts_, 0),
        weight_(parts_, 0),
        train_(parts_, 0) {
    for (std::uint32_t v = 0; v < graph.nodes(); ++v) {
      weight_[part_[v]] += graph.node_weights[v];
      train_[part_[v]] += graph.train_weights[v];
      for (std::uint64_t i = graph.offsets[v]; i < graph.offsets[v + 1]; ++i)
        ties(v)[part_[graph.neighbours[i]]] += graph.edge_weights[i];
    }
  }

  bool fits(std::uint32_t v, std::uint32_t p) const {
    return weight_[p] + graph_.node_weights[v] <= limits_.weight[p] &&
           train_[p] + graph_.train_weights[v] <= limits_.train[p];
  }
  bool overloaded(std::uint32_t p) const { return weight_[p] > limits_.weight[p] || train_[p] > limits_.train[p]; }
  bool boundary(std::uint32_t v) const {
    const std::uint32_t* const own = ties(v);
    for (std::size_t p = 0; p < parts_; ++p)
      if (p != part_[v] && own[p] > 0) return true;
    return false;
  }

  bool evens_out(std::uint32_t v, std::uint32_t to) const {
    return weight_[to] + graph_.node_weights[v] < weight_[part_[v]];
  }

  /// The best part to move `v` to that has room; any part when `anywhere`, otherwise only tied ones.
  Move best(std::uint32_t v, bool anywhere) const {
    Move found;
    const std::uint32_t* const own = ties(v);
    const std::uint32_t from = part_[v];
    for (std::uint32_t p = 0; p < parts_; ++p) {
      if (p == from || (own[p] == 0 && !anywhere) || !fits(v, p)) continue;
      const std::int64_t gain = std::int64_t{own[p]} - std::int64_t{own[from]};
      if (gain > found.gain || (gain == found.gain && weight_[p] < weight_[found.to])) found = {gain, p};
    }
    return found;
  }

  void move(std::uint32_t v, std::uint32_t to) {
    const std::uint32_t from = part_[v];
    weight_[from] -= graph_.node_weights[v], weight_[to] += graph_.node_weights[v];
    train_[from] -= graph_.train_weights[v], train_[to] += graph_.train_weights[v];
    part_[v] = to;
    for (std::uint64_t i = graph_.offsets[v]; i < graph_.offsets[v + 1]; ++i) {
      std::uint32_t* const other = ties(graph_.neighbours[i]);
      other[from] -= graph_.edge_weights[i];
      other[to] += graph_.edge_weights[i];
    }
  }

 private:
  std::uint32_t* ties(std::uint32_t v) { return ties_.data() + v * parts_; }
  const std::uint32_t* ties(std::uint32_t v) const { return ties_.data() + v * parts_; }

  const WeightedGraph& graph_;
  std::vector<std::uint32_t>& part_;
  const Limits& limits_;
  std::size_t parts_;
  std::vector<std::uint32_t> ties_;
  std::vector<std::uint64_t> weight_;
  std::vector<std::uint64_t> train_;
};

void rebalance_state(const WeightedGraph& graph, std::vector<std::uint32_t>& part_of, State& state) {
  std::priority_queue<Entry> queue;
  for (std::uint32_t v = 0; v < graph.nodes(); ++v) {
    if (!state.overloaded(part_of[v])) continue;
    const Move move = state.best(v, true);
    if (move.to != kNoPart) queue.push({move.gain, v, v});
  }
  while (!queue.empty()) {
    const Entry entry = queue.top();
    queue.pop();
    if (!state.overloaded(part_of[entry.node])) continue;
    const Move move = state.best(entry.node, true);
    if (move.to == kNoPart) continue;
    if (move.gain < entry.gain)
      queue.push({move.gain, entry.tie, entry.node});
    else
      state.move(entry.node, move.to);
  }
}

/// Sweeps over all nodes that make every move that gains (or evens out the loads at no cost): most of the way for a
/// fraction of a pass. How much the cut fell.
std::int64_t greedy_sweeps(const WeightedGraph& graph, State& state, int sweeps) {
  std::int64_t gained = 0;
  for (int sweep = 0; sweep < sweeps; ++sweep) {
    std::int64_t before = gained;
    for (std::uint32_t v = 0; v < graph.nodes(); ++v) {
      const Move move = state.best(v, false);
      if (move.to == kNoPart || move.gain < 0 || (move.gain == 0 && !state.evens_out(v, move.to))) continue;
      state.move(v, move.to);
      gained += move.gain;
    }
    if ((gained - before) * 5000 < std::max<std::int64_t>(1, gained)) break;
  }
  return gained;
}

/// One pass; how much the cut fell. `least_gain`: nodes that would gain less do not start in the queue.
std::int64_t fm_pass(const WeightedGraph& graph, std::vector<std::uint32_t>& part_of, State& state, base::Rng& rng,
                     std::int64_t least_gain) {
  const std::uint32_t n = graph.nodes();
  const std::size_t patience = std::clamp<std::size_t>(n / 20, 200, 4000);
  std::vector<bool> locked(n, false);
  std::vector<std::int64_t> queued(n, std::numeric_limits<std::int64_t>::min());  // gain of the node's newest entry
  std::priority_queue<Entry> queue;
  const auto push = [&](std::uint32_t v, std::int64_t least = std::numeric_limits<std::int64_t>::min()) {
    const Move move = state.best(v, false);
    if (move.to == kNoPart || move.gain == queued[v] || move.gain < least) return;
    queued[v] = move.gain;
    queue.push({move.gain, static_cast<std::uint32_t>(rng.next() >> 32), v});
  };
  for (std::uint32_t v = 0; v < n; ++v)
    if (state.boundary(v)) push(v, least_gain);

  std::vector<std::pair<std::uint32_t, std::uint32_t>> log;  // node, where it came from
  std::int64_t gained = 0;
  std::int64_t best = 0;
  std::size_t best_length = 0;
  while (!queue.empty() && log.size() - best_length < patience) {
    const Entry entry = queue.top();
    queue.pop();
    const std::uint32_t v = entry.node;
    if (locked[v] || entry.gain != queued[v]) continue;
    queued[v] = std::numeric_limits<std::int64_t>::min();
    const Move move = state.best(v, false);
    if (move.to == kNoPart) continue;
    if (move.gain < entry.gain) {
      push(v);
      continue;
    }
    locked[v] = true;
    log.emplace_back(v, part_of[v]);
    state.move(v, move.to);
    gained += move.gain;
    if (gained > best) best = gained, best_length = log.size();
    // Hubs: their neighbours' queue entries are corrected when they come up; only raises need a new entry.
    for (std::uint64_t i = graph.offsets[v]; i < graph.offsets[v + 1]; ++i)
      if (!locked[graph.neighbours[i]]) push(graph.neighbours[i]);
  }
  while (log.size() > best_length) {
    state.move(log.back().first, log.back().second);
    log.pop_back();
  }
  return best;
}

}  // namespace

std::uint64_t cut_of(const WeightedGraph& graph, const std::vector<std::uint32_t>& part_of) {
  std::uint64_t twice = 0;
  for (std::uint32_t v = 0; v < graph.nodes(); ++v)
    for (std::uint64_t i = graph.offsets[v]; i < graph.offsets[v + 1]; ++i)
      if (part_of[v] != part_of[graph.neighbours[i]]) twice += graph.edge_weights[i];
  return twice / 2;
}

void rebalance(const WeightedGraph& graph, std::vector<std::uint32_t>& part_of, const Limits& limits) {
  State state(graph, part_of, limits);
  rebalance_state(graph, part_of, state);
}

std::uint64_t refine(const WeightedGraph& graph, std::vector<std::uint32_t>& part_of, const Limits& limits, int passes,
                     std::uint64_t seed) {
  PL_CHECK(part_of.size() == graph.nodes());
  base::Rng rng(seed);
  State state(graph, part_of, limits);
  rebalance_state(graph, part_of, state);
  auto cut = static_cast<std::int64_t>(cut_of(graph, part_of));
  // On large graphs nearly every node is on the boundary: only those at the edge of gaining are worth a start.
  const bool large = graph.nodes() > 100'000;
  cut -= greedy_sweeps(graph, state, large ? 12 : 2);
  for (int pass = 0; pass < passes; ++pass) {
    const std::int64_t gained =
        fm_pass(graph, part_of, state, rng, large ? 0 : std::numeric_limits<std::int64_t>::min());
    cut -= gained;
    if (gained * 1000 <= cut) break;
  }
  return static_cast<std::uint64_t>(cut);
}

}  // namespace paceline::gnn
