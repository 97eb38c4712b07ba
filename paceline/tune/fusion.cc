#include "paceline/tune/fusion.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "paceline/base/error.h"

namespace paceline::tune {
namespace {

constexpr std::int64_t kUnknown = std::numeric_limits<std::int64_t>::max();

/// Sums over ranges of operations in O(1).
class Sums {
 public:
  explicit Sums(const Backward& backward) {
    const std::size_t n = backward.size();
    PL_CHECK(backward.bytes.size() == n && backward.saving.size() + 1 >= n);
    compute_.assign(n + 1, 0), bytes_.assign(n + 1, 0), saving_.assign(n + 1, 0), barriers_.assign(n + 1, 0);
    for (std::size_t i = 0; i < n; ++i) {
      compute_[i + 1] = compute_[i] + backward.compute[i];
      bytes_[i + 1] = bytes_[i] + backward.bytes[i];
      const std::int64_t saving = i + 1 < n ? backward.saving[i] : 0;
      saving_[i + 1] = saving_[i] + std::max<std::int64_t>(saving, 0);
      barriers_[i + 1] = barriers_[i] + (saving < 0);
    }
  }
  bool fusable(std::size_t begin, std::size_t end) const { return barriers_[end - 1] == barriers_[begin]; }
  /// ns of the operations [begin, end) fused into one.
  std::int64_t fused(std::size_t begin, std::size_t end) const {
    const std::int64_t saved = saving_[end - 1] - saving_[begin];
    return std::max<std::int64_t>(0, compute_[end] - compute_[begin] - saved);
  }
  std::int64_t bytes(std::size_t begin, std::size_t end) const { return bytes_[end] - bytes_[begin]; }
  /// The least that the operations from `begin` on can take.
  std::int64_t least_compute(std::size_t begin) const {
    return std::max<std::int64_t>(0, compute_.back() - compute_[begin] - (saving_.back() - saving_[begin]));
  }

 private:
  std::vector<std::int64_t> compute_, bytes_, saving_, barriers_;
};

/// A way to have run the first `ops` operations and sent the first `tensors` tensors.
struct State {
  std::int64_t computed, sent;  // ns: end of either
  std::uint32_t parent;         // index into the list of all states
  std::uint32_t ops, tensors;
};

class Search {
 public:
  Search(const Backward& backward, const SyncCost& cost, const FusionOptions& options)
      : n_(static_cast<std::uint32_t>(backward.size())), sums_(backward), cost_(cost), options_(options) {}

  FusionPlan run(const FusionPlan& known) {
    bound_ = options_.prune ? known.makespan : kUnknown;
    rows_.resize(std::size_t{n_ + 1} * (n_ + 1));
    all_.push_back({0, 0, 0, 0, 0});
    rows_[0].push_back(0);
    std::uint32_t best = 0;
    std::int64_t best_time = kUnknown;
    for (std::uint32_t ops = 0; ops < n_; ++ops) {
      for (std::uint32_t tensors = 0; tensors <= ops; ++tensors) {
        for (const std::uint32_t at : rows_[row(ops, tensors)]) extend(at);
      }
    }
    for (const std::uint32_t at : rows_[row(n_, n_)]) {
      const std::int64_t time = std::max(all_[at].computed, all_[at].sent);
      if (time < best_time) best_time = time, best = at;
    }
    if (best_time == kUnknown) return known;  // nothing beats it
    return plan_of(best);
  }
  std::size_t evaluations() const { return evaluations_; }

 private:
  std::size_t row(std::uint32_t ops, std::uint32_t tensors) const { return std::size_t{ops} * (n_ + 1) + tensors; }

  /// Runs the next group of operations, whatever its size, and sends what becomes ready with it, in whatever groups.
  void extend(std::uint32_t at) {
    const State from = all_[at];
    const std::uint32_t last = options_.fuse_operations ? n_ : from.ops + 1;
    for (std::uint32_t ops = from.ops + 1; ops <= last && sums_.fusable(from.ops, ops); ++ops) {
      const std::int64_t computed = from.computed + sums_.fused(from.ops, ops);
      add({computed, from.sent, at, ops, from.tensors});
      send(from, ops, from.tensors, computed, from.sent, at);
    }
  }

  /// A group of tensors leaves when the group of operations that yields its last one is done; later tensors may wait
  /// for others. Two groups that are ready at once are never better than one: the time is subadditive.
  void send(const State& from, std::uint32_t ops, std::uint32_t tensors, std::int64_t computed, std::int64_t sent,
            std::uint32_t parent) {
    for (std::uint32_t end = std::max(from.ops, tensors) + 1; end <= ops; ++end) {
      const std::int64_t bytes = sums_.bytes(tensors, end);
      const std::int64_t over =
          bytes == 0 ? sent : std::max(sent, computed) + cost_.time(bytes, cost_.best_parts(bytes));
      const std::uint32_t state = add({computed, over, parent, ops, end});
      if (!options_.prune && state != kRefused) send(from, ops, end, computed, over, state);
    }
  }

  static constexpr std::uint32_t kRefused = 0xFFFFFFFF;

  std::uint32_t add(const State& state) {
    ++evaluations_;
    std::vector<std::uint32_t>& list = rows_[row(state.ops, state.tensors)];
    if (options_.prune) {
      const std::int64_t left = sums_.bytes(state.tensors, n_);
      const std::int64_t least_sent = std::max(state.sent, state.computed) + cost_.time(left, cost_.best_parts(left));
      const std::int64_t least = std::max(
          state.computed + sums_.least_compute(state.ops),
          left == 0 ? state.sent : least_sent - (state.computed > state.sent ? state.computed - state.sent : 0));
      if (least >= bound_) return kRefused;
      for (const std::uint32_t other : list) {
        if (all_[other].computed <= state.computed && all_[other].sent <= state.sent) return kRefused;
      }
      std::erase_if(list, [&](std::uint32_t other) {
        return all_[other].computed >= state.computed && all_[other].sent >= state.sent;
      });
    }
    all_.push_back(state);
    list.push_back(static_cast<std::uint32_t>(all_.size() - 1));
    return list.back();
  }

  FusionPlan plan_of(std::uint32_t at) const {
    FusionPlan plan;
    while (at != 0) {
      const State& state = all_[at];
      const State& parent = all_[state.parent];
      if (state.ops != parent.ops) plan.op_ends.push_back(state.ops);
      if (state.tensors != parent.tensors) plan.tensor_ends.push_back(state.tensors);
      at = state.parent;
    }
    std::reverse(plan.op_ends.begin(), plan.op_ends.end());
    std::reverse(plan.tensor_ends.begin(), plan.tensor_ends.end());
    return plan;
  }

  const std::uint32_t n_;
  const Sums sums_;
  const SyncCost& cost_;
  const FusionOptions options_;
  std::int64_t bound_ = kUnknown;
  std::vector<State> all_;
  std::vector<std::vector<std::uint32_t>> rows_;
  std::size_t evaluations_ = 0;
};

}  // namespace

std::int64_t SyncCost::time(std::int64_t bytes, std::uint32_t parts) const {
  if (bytes <= 0) return 0;
  double all = 0, slowest = 0;
  for (const Stage& stage : stages) {
    const double part = stage.latency_ns + stage.ns_per_byte * static_cast<double>(bytes) / parts;
    all += part;
    slowest = std::max(slowest, part);
  }
  // Rounded up, so that two groups never take less than one because of rounding.
  return static_cast<std::int64_t>(std::ceil(all + slowest * (parts - 1)));
}

std::uint32_t SyncCost::best_parts(std::int64_t bytes, std::uint32_t most) const {
  if (stages.size() < 2) return 1;
  std::uint32_t low = 1, high = most;
  while (low < high) {
    const std::uint32_t middle = (low + high) / 2;
    if (time(bytes, middle) <= time(bytes, middle + 1)) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

void evaluate(const Backward& backward, const SyncCost& cost, FusionPlan& plan) {
  const Sums sums(backward);
  plan.parts.clear();
  std::int64_t computed = 0, sent = 0;
  std::uint32_t op_begin = 0, tensor_begin = 0;
  std::size_t group = 0;
  for (const std::uint32_t op_end : plan.op_ends) {
    PL_CHECK(sums.fusable(op_begin, op_end));
    computed += sums.fused(op_begin, op_end);
    for (; group < plan.tensor_ends.size() && plan.tensor_ends[group] <= op_end; ++group) {
      const std::int64_t bytes = sums.bytes(tensor_begin, plan.tensor_ends[group]);
      plan.parts.push_back(cost.best_parts(bytes));
      if (bytes > 0) sent = std::max(sent, computed) + cost.time(bytes, plan.parts.back());
      tensor_begin = plan.tensor_ends[group];
    }
    op_begin = op_end;
  }
  PL_CHECK(op_begin == backward.size() && tensor_begin == backward.size());
  plan.makespan = std::max(computed, sent);
}

FusionPlan no_fusion(const Backward& backward, const SyncCost& cost) {
  FusionPlan plan;
  for (std::uint32_t i = 1; i <= backward.size(); ++i) plan.op_ends.push_back(i), plan.tensor_ends.push_back(i);
  evaluate(backward, cost, plan);
  return plan;
}

FusionPlan greedy_fusion(const Backward& backward, const SyncCost& cost, bool fuse_operations) {
  const Sums sums(backward);
  FusionPlan plan;
  std::uint32_t op_begin = 0, tensor_begin = 0;
  std::int64_t computed = 0, sent = 0;  // before the groups at hand
  const auto sync = [&](std::uint32_t begin, std::uint32_t end) {
    const std::int64_t bytes = sums.bytes(begin, end);
    return cost.time(bytes, cost.best_parts(bytes));
  };
  for (std::uint32_t end = 1; end <= backward.size(); ++end) {
    const bool last = end == backward.size();
    const std::int64_t op_end = computed + sums.fused(op_begin, end);
    bool fuse = false;
    if (!last && fuse_operations && sums.fusable(op_begin, end + 1)) {
      fuse =
          sync(tensor_begin, end) < sums.fused(op_begin, end) + backward.compute[end] - sums.fused(op_begin, end + 1);
    }
    if (!fuse) plan.op_ends.push_back(end);
    bool wait = fuse;
    if (!last && !fuse) {
      const std::int64_t alone = std::max(sent, op_end) + sync(tensor_begin, end);
      wait = alone > op_end + backward.compute[end] + sync(tensor_begin, end + 1) - sync(end, end + 1);
    }
    if (!fuse) computed = op_end, op_begin = end;
    if (wait) continue;
    plan.tensor_ends.push_back(end);
    sent = std::max(sent, op_end) + sync(tensor_begin, end);
    tensor_begin = end;
  }
  evaluate(backward, cost, plan);
  const FusionPlan plain = no_fusion(backward, cost);
  return plain.makespan < plan.makespan ? plain : plan;
}

FusionPlan best_fusion(const Backward& backward, const SyncCost& cost, const FusionOptions& options,
                       std::size_t* evaluations) {
  FusionPlan known = greedy_fusion(backward, cost, options.fuse_operations);
  if (backward.size() == 0) return known;
  Search search(backward, cost, options);
  FusionPlan plan = search.run(known);
  evaluate(backward, cost, plan);
  if (evaluations != nullptr) *evaluations = search.evaluations();
  return plan.makespan < known.makespan ? plan : known;
}

}  // namespace paceline::tune
