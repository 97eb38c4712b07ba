#include "paceline/gnn/sampler.h"

#include <fmt/core.h>

#include <array>
#include <mutex>

#include "paceline/base/error.h"
#include "paceline/base/parallel.h"
#include "paceline/gnn/local_ids.h"
#include "paceline/gnn/pick.h"
#include "paceline/gnn/random.h"
#include "paceline/gnn/row_picker.h"

namespace paceline::gnn {
namespace {

constexpr std::uint64_t kDenseNodes = std::uint64_t{1} << 22;
constexpr std::size_t kBlock = 32;  // rows worked on together, so that their cache misses overlap

}  // namespace

template <class Node>
struct Sampler<Node>::Impl {
  Impl(const Rows<Node>& rows, std::uint64_t columns, SampleOptions sample_options)
      : rows_(rows),
        columns_(columns),
        options_(std::move(sample_options)),
        picker_(rows_, options_),
        disjoint_(options_.disjoint || options_.when != When::kAny),
        dense_ids_(!disjoint_ && columns <= kDenseNodes ? columns : 0) {
    check_options(rows, options_);
  }

  void sample(std::span<const Node> seeds, BatchKey key, Sample<Node>& out, std::span<const std::int64_t> seed_times) {
    if (options_.when != When::kAny && seed_times.size() != seeds.size())
      throw Error(ErrorKind::kUsage, "sampling",
                  fmt::format("{} seeds, but {} seed times", seeds.size(), seed_times.size()));
    for (std::size_t i = 0; i < seeds.size(); ++i)
      if (seeds[i] >= rows_.rows())
        throw Error(ErrorKind::kUsage, fmt::format("seed {}", i),
                    fmt::format("is node {}, but the graph has {}", seeds[i], rows_.rows()));
    batch_key_ = key_of(key_of(key_of(mix(options_.seed + 1), key.epoch), key.batch), 0);
    seed_times_ = seed_times;
    out.source.clear();
    out.target.clear();
    out.edge_ids.clear();
    out.edge_weights.clear();
    out.tree.clear();
    out.nodes_per_hop.clear();
    out.edges_per_hop.clear();
    out.nodes.clear();
    const bool dense = !disjoint_ && columns_ <= kDenseNodes;
    if (dense)
      run(dense_ids_, seeds, out);
    else
      run(hash_ids_, seeds, out);
  }

 private:
  template <class Ids>
  void run(Ids& ids, std::span<const Node> seeds, Sample<Node>& out) {
    ids.start();
    for (std::size_t i = 0; i < seeds.size(); ++i) {
      const auto tree = static_cast<std::uint32_t>(disjoint_ ? i : 0);
      const auto next = static_cast<std::uint32_t>(out.nodes.size());
      // A seed that is no column (bipartite) never meets itself again: it needs no entry.
      if (seeds[i] < columns_ && ids.find_or_add(seeds[i], tree, next) != next) continue;
      out.nodes.push_back(seeds[i]);
      if (disjoint_) out.tree.push_back(tree);
    }
    out.nodes_per_hop.push_back(out.nodes.size());
    std::size_t begin = 0;
    for (std::size_t hop = 0; hop < options_.fanout.size(); ++hop) {
      const std::size_t end = out.nodes.size();
      const std::size_t edges_before = out.source.size();
      hop_key_ = key_of(batch_key_, options_.labor_shares_hops && options_.method == Method::kLabor ? 0 : hop);
      const int fanout = options_.fanout[hop];
      if (options_.method == Method::kLayer && fanout >= 0)
        expand_layer(ids, begin, end, static_cast<std::uint32_t>(fanout), out);
      else
        expand(ids, begin, end, fanout, out);
      out.nodes_per_hop.push_back(out.nodes.size() - end);
      out.edges_per_hop.push_back(out.source.size() - edges_before);
      begin = end;
    }
  }

  /// Expands nodes [begin, end) of the sample. Works on blocks of rows in four passes - row bounds, positions,
  /// neighbours, numbers - each of which prefetches what the next one reads.
  template <class Ids>
  void expand(Ids& ids, std::size_t begin, std::size_t end, int fanout, Sample<Node>& out) {
    for (std::size_t i = begin; i < std::min(end, begin + kBlock); ++i)
      __builtin_prefetch(&rows_.offsets[out.nodes[i]]);
    for (std::size_t block = begin; block < end; block += kBlock) {
      const std::size_t last = std::min(end, block + kBlock);
      for (std::size_t i = last; i < std::min(end, last + kBlock); ++i)
        __builtin_prefetch(&rows_.offsets[out.nodes[i]]);
      positions_.clear();
      for (std::size_t i = block; i < last; ++i) {
        const std::uint32_t tree = tree_of(out, i);
        picker_.pick(out.nodes[i], hop_key_, tree, seed_times_.empty() ? 0 : seed_times_[tree], fanout, positions_,
                     out.edge_weights);
        row_ends_[i - block] = positions_.size();
      }
      const std::size_t count = positions_.size();
      const Node* const neighbours = rows_.neighbours.data();
      for (std::size_t k = 0; k < count; ++k) __builtin_prefetch(&neighbours[positions_[k]]);
      found_.resize(count);
      std::size_t row = block;
      for (std::size_t k = 0; k < count; ++k) {
        while (k >= row_ends_[row - block]) ++row;
        found_[k] = neighbours[positions_[k]];
        ids.prefetch(found_[k], tree_of(out, row));
      }
      number_block(ids, block, last, out);
    }
  }

  template <class Ids>
  void number_block(Ids& ids, std::size_t block, std::size_t last, Sample<Node>& out) {
    const std::size_t count = positions_.size();
    const std::size_t before = out.source.size();
    out.source.resize(before + count);
    out.target.resize(before + count);
    out.edge_ids.resize(before + count);
    out.nodes.resize(out.nodes.size() + count);
    auto next = static_cast<std::uint32_t>(out.nodes.size() - count);
    if (disjoint_) out.tree.resize(out.nodes.size());
    Node* const nodes = out.nodes.data();
    std::uint32_t* const source = out.source.data() + before;
    std::uint32_t* const target = out.target.data() + before;
    std::size_t k = 0;
    for (std::size_t i = block; i < last; ++i) {
      const std::uint32_t tree = tree_of(out, i);
      for (; k < row_ends_[i - block]; ++k) {
        const std::uint32_t id = ids.find_or_add(found_[k], tree, next);
        nodes[next] = found_[k];  // overwritten by the next new node when this one is known
        if (disjoint_ && id == next) out.tree[next] = tree;
        next += id == next;
        source[k] = id;
        target[k] = static_cast<std::uint32_t>(i);
      }
    }
    out.nodes.resize(next);
    if (disjoint_) out.tree.resize(next);
    std::uint64_t* const edge_ids = out.edge_ids.data() + before;
    if (rows_.edge_ids.empty())
      std::copy(positions_.begin(), positions_.end(), edge_ids);
    else
      for (std::size_t e = 0; e < count; ++e) edge_ids[e] = rows_.edge_ids[positions_[e]];
  }

  std::uint32_t tree_of(const Sample<Node>& out, std::size_t node) const { return disjoint_ ? out.tree[node] : 0; }

  /// Draws `count` nodes for the whole layer with chances by the number of edges that lead to them, and keeps all
  /// edges from the layer to them.
  template <class Ids>
  void expand_layer(Ids& ids, std::size_t begin, std::size_t end, std::uint32_t count, Sample<Node>& out) {
    layer_ids_.start();
    std::vector<Node> candidates;
    std::vector<float> edges;
    for (std::size_t i = begin; i < end; ++i) {
      if (out.nodes[i] >= rows_.rows()) continue;
      for (const Node u : rows_.row(out.nodes[i])) {
        const std::uint32_t at = layer_ids_.find_or_add(u, 0, static_cast<std::uint32_t>(candidates.size()));
        if (at == candidates.size()) candidates.push_back(u), edges.push_back(0);
        edges[at] += 1;
      }
    }
    std::vector<float> chosen(candidates.size(), 0);
    CounterRandom random(hop_key_);
    double total = 0;
    for (const float each : edges) total += each;
    const auto choose = [&](std::uint64_t i) {
      chosen[i] =
          static_cast<float>(std::max(1.0, total / (static_cast<double>(count) * static_cast<double>(edges[i]))));
    };
    if (candidates.size() <= count)
      for (std::size_t i = 0; i < candidates.size(); ++i) chosen[i] = 1;
    else
      pick_weighted_distinct(random, edges, count, heap_, choose);
    for (std::size_t i = begin; i < end; ++i) {
      if (out.nodes[i] >= rows_.rows()) continue;
      for (std::uint64_t p = rows_.offsets[out.nodes[i]]; p < rows_.offsets[out.nodes[i] + 1]; ++p) {
        const Node u = rows_.neighbours[p];
        const float weight = chosen[layer_ids_.find_or_add(u, 0, 0)];
        if (weight == 0) continue;
        const auto next = static_cast<std::uint32_t>(out.nodes.size());
        const std::uint32_t id = ids.find_or_add(u, 0, next);
        if (id == next) out.nodes.push_back(u);
        out.source.push_back(id);
        out.target.push_back(static_cast<std::uint32_t>(i));
        out.edge_ids.push_back(rows_.edge_id(p));
        out.edge_weights.push_back(weight);
      }
    }
  }

  Rows<Node> rows_;
  std::uint64_t columns_;
  SampleOptions options_;
  RowPicker<Node> picker_;
  bool disjoint_;
  DenseIds dense_ids_;
  HashIds hash_ids_;
  HashIds layer_ids_;
  std::uint64_t batch_key_ = 0;
  std::uint64_t hop_key_ = 0;
  std::span<const std::int64_t> seed_times_;
  std::vector<std::uint64_t> positions_;
  std::array<std::size_t, kBlock> row_ends_{};
  std::vector<Node> found_;
  std::vector<std::pair<double, std::uint64_t>> heap_;
};

template <class Node>
Sampler<Node>::Sampler(const Rows<Node>& rows, std::uint64_t columns, SampleOptions options)
    : impl_(std::make_unique<Impl>(rows, columns, std::move(options))) {}
template <class Node>
Sampler<Node>::~Sampler() = default;
template <class Node>
Sampler<Node>::Sampler(Sampler&&) noexcept = default;

template <class Node>
void Sampler<Node>::sample(std::span<const Node> seeds, BatchKey key, Sample<Node>& out,
                           std::span<const std::int64_t> seed_times) {
  impl_->sample(seeds, key, out, seed_times);
}

template <class Node>
void sample_batches(const Rows<Node>& rows, std::uint64_t columns, const SampleOptions& options,
                    std::span<const Node> seeds, std::size_t batch_size, std::uint64_t epoch,
                    const std::function<void(std::size_t, const Sample<Node>&)>& visit) {
  PL_CHECK(batch_size > 0);
  struct Worker {
    Sampler<Node> sampler;
    Sample<Node> sample;
  };
  std::mutex mutex;
  std::vector<std::unique_ptr<Worker>> idle;  // one per thread that was ever busy at the same time
  base::parallel_for((seeds.size() + batch_size - 1) / batch_size, [&](std::size_t batch) {
    std::unique_ptr<Worker> worker;
    {
      const std::lock_guard lock(mutex);
      if (!idle.empty()) worker = std::move(idle.back()), idle.pop_back();
    }
    if (!worker) worker = std::make_unique<Worker>(Worker{Sampler<Node>(rows, columns, options), {}});
    const std::size_t begin = batch * batch_size;
    worker->sampler.sample(seeds.subspan(begin, std::min(batch_size, seeds.size() - begin)), {epoch, batch},
                           worker->sample);
    visit(batch, worker->sample);
    const std::lock_guard lock(mutex);
    idle.push_back(std::move(worker));
  });
}

template class Sampler<std::uint32_t>;
template class Sampler<std::uint64_t>;
template void sample_batches(const Rows<std::uint32_t>&, std::uint64_t, const SampleOptions&,
                             std::span<const std::uint32_t>, std::size_t, std::uint64_t,
                             const std::function<void(std::size_t, const Sample<std::uint32_t>&)>&);
template void sample_batches(const Rows<std::uint64_t>&, std::uint64_t, const SampleOptions&,
                             std::span<const std::uint64_t>, std::size_t, std::uint64_t,
                             const std::function<void(std::size_t, const Sample<std::uint64_t>&)>&);

}  // namespace paceline::gnn
