#include "paceline/gnn/order.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "paceline/base/error.h"
#include "paceline/base/file.h"
#include "paceline/base/parallel.h"
#include "paceline/base/rng.h"
#include "paceline/gnn/cluster.h"
#include "paceline/gnn/npy.h"
#include "paceline/gnn/random.h"
#include "paceline/gnn/sampler.h"

namespace paceline::gnn {
namespace {

/// Labels as classes 0..count-1; nodes without a label share the last one.
struct Classes {
  std::vector<std::uint32_t> of;  // by place in the order
  std::size_t count = 0;
  std::vector<double> share;

  Classes(std::span<const std::uint64_t> order, std::span<const std::int64_t> labels) {
    std::vector<std::int64_t> known;
    const auto label_of = [&](std::uint64_t v) { return v < labels.size() ? labels[v] : std::int64_t{-1}; };
    for (const std::uint64_t v : order) known.push_back(label_of(v));
    std::sort(known.begin(), known.end());
    known.erase(std::unique(known.begin(), known.end()), known.end());
    count = known.size();
    share.assign(count, 0);
    for (const std::uint64_t v : order) {
      of.push_back(
          static_cast<std::uint32_t>(std::lower_bound(known.begin(), known.end(), label_of(v)) - known.begin()));
      share[of.back()] += 1.0 / static_cast<double>(order.size());
    }
  }
};

Order one_sequence(const Graph& graph, const std::vector<bool>& is_train, std::size_t count, std::uint64_t root) {
  return graph.visit([&](const auto& rows) {
    Order order;
    order.reserve(count);
    std::vector<bool> visited(rows.rows(), false);
    std::vector<std::uint64_t> queue;
    for (std::uint64_t step = 0; step < rows.rows() && order.size() < count; ++step) {
      const std::uint64_t start = root + step < rows.rows() ? root + step : root + step - rows.rows();
      if (visited[start]) continue;
      visited[start] = true;
      queue.assign(1, start);
      for (std::size_t head = 0; head < queue.size(); ++head) {
        const std::uint64_t v = queue[head];
        if (is_train[v]) order.push_back(v);
        for (const auto u : rows.row(v)) {
          if (u >= rows.rows() || visited[u]) continue;
          visited[u] = true;
          queue.push_back(u);
        }
      }
    }
    return order;
  });
}

}  // namespace

Order random_order(std::span<const std::uint64_t> train, std::uint64_t epoch, std::uint64_t seed) {
  Order order(train.begin(), train.end());
  base::Rng(key_of(seed, epoch)).shuffle(std::span(order));
  return order;
}

std::vector<Order> breadth_first_sequences(const Graph& graph, std::span<const std::uint64_t> train, int sequences,
                                           std::uint64_t seed) {
  std::vector<bool> is_train(graph.rows(), false);
  for (const std::uint64_t v : train) is_train.at(v) = true;
  const auto count = static_cast<std::size_t>(std::count(is_train.begin(), is_train.end(), true));
  std::vector<Order> all(static_cast<std::size_t>(sequences));
  base::parallel_for(all.size(), [&](std::size_t i) {
    base::Rng rng(key_of(seed, i));
    if (graph.rows() > 0) all[i] = one_sequence(graph, is_train, count, rng.below(graph.rows()));
  });
  return all;
}

Order interleave(std::span<const Order> sequences, std::size_t batch, std::uint64_t epoch, std::uint64_t seed) {
  PL_CHECK(!sequences.empty() && batch > 0);
  const std::size_t n = sequences[0].size();
  if (n == 0) return {};
  std::vector<std::size_t> at;     // next place of each sequence
  std::vector<std::size_t> taken;  // how much of each is gone
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    PL_CHECK(sequences[i].size() == n);
    at.push_back(base::Rng(key_of(key_of(seed, epoch), i)).below(n));
    taken.push_back(0);
  }
  std::vector<bool> used(*std::max_element(sequences[0].begin(), sequences[0].end()) + 1, false);
  const std::size_t share = std::max<std::size_t>(1, batch / sequences.size());
  Order order;
  order.reserve(n);
  for (std::size_t i = 0; order.size() < n; i = (i + 1) % sequences.size()) {
    for (std::size_t got = 0; got < share && taken[i] < n && order.size() < n; ++taken[i]) {
      const std::uint64_t v = sequences[i][at[i]];
      at[i] = at[i] + 1 == n ? 0 : at[i] + 1;
      if (used[v]) continue;
      used[v] = true;
      order.push_back(v);
      ++got;
    }
  }
  return order;
}

Order balanced_pieces(const Order& sequence, std::span<const std::int64_t> labels, std::size_t piece, std::size_t batch,
                      std::uint64_t epoch, std::uint64_t seed) {
  PL_CHECK(piece > 0 && batch > 0);
  constexpr std::size_t kCandidates = 32;
  const std::size_t n = sequence.size();
  if (n == 0) return {};
  base::Rng rng(key_of(seed, epoch));
  const std::size_t shift = rng.below(n);
  const Classes classes(sequence, labels);
  const auto place = [&](std::size_t i) { return i + shift < n ? i + shift : i + shift - n; };
  std::vector<std::size_t> pool((n + piece - 1) / piece);
  std::iota(pool.begin(), pool.end(), 0);
  Order order;
  order.reserve(n);
  std::vector<double> counts(classes.count, 0);
  std::size_t filled = 0;
  std::vector<std::uint32_t> trial(classes.count, 0);
  // How far the batch is from the shares it should have, with the piece added.
  const auto distance_with = [&](std::size_t which) {
    const std::size_t begin = which * piece;
    const std::size_t end = std::min(n, begin + piece);
    for (std::size_t i = begin; i < end; ++i) ++trial[classes.of[place(i)]];
    const double size = static_cast<double>(filled + end - begin);
    double distance = 0;
    for (std::size_t c = 0; c < classes.count; ++c)
      distance += std::fabs(counts[c] + trial[c] - size * classes.share[c]);
    std::fill(trial.begin(), trial.end(), 0);
    return distance;
  };
  while (!pool.empty()) {
    std::size_t best = rng.below(pool.size());
    if (filled > 0) {
      double least = distance_with(pool[best]);
      for (std::size_t k = 1; k < std::min(kCandidates, pool.size()); ++k) {
        const std::size_t other = rng.below(pool.size());
        const double distance = distance_with(pool[other]);
        if (distance < least) least = distance, best = other;
      }
    }
    const std::size_t begin = pool[best] * piece;
    const std::size_t end = std::min(n, begin + piece);
    for (std::size_t i = begin; i < end; ++i) {
      order.push_back(sequence[place(i)]);
      ++counts[classes.of[place(i)]];
      if (++filled == batch) filled = 0, std::fill(counts.begin(), counts.end(), 0);
    }
    pool[best] = pool.back();
    pool.pop_back();
  }
  return order;
}

double label_distance(const Order& order, std::size_t batch, std::span<const std::int64_t> labels) {
  const Classes classes(order, labels);
  double sum = 0;
  std::size_t batches = 0;
  std::vector<double> counts(classes.count);
  for (std::size_t begin = 0; begin + batch <= order.size(); begin += batch, ++batches) {
    std::fill(counts.begin(), counts.end(), 0);
    for (std::size_t i = begin; i < begin + batch; ++i) counts[classes.of[i]] += 1.0 / static_cast<double>(batch);
    for (std::size_t c = 0; c < classes.count; ++c) sum += std::fabs(counts[c] - classes.share[c]) / 2;
  }
  return batches == 0 ? 0 : sum / static_cast<double>(batches);
}

double unique_inputs(const Graph& graph, const Order& order, std::size_t batch, const std::vector<int>& fanout,
                     std::uint64_t seed, std::size_t most_batches) {
  return graph.visit([&](const auto& rows) {
    using Node = std::remove_cvref_t<decltype(rows.neighbours[0])>;
    Sampler<Node> sampler(rows, graph.columns(), {.fanout = fanout, .seed = seed});
    Sample<Node> sample;
    const std::size_t batches = order.size() / batch;
    const std::size_t step = std::max<std::size_t>(1, batches / most_batches);
    double sum = 0;
    double count = 0;
    for (std::size_t b = 0; b < batches; b += step) {
      std::vector<Node> seeds;
      for (std::size_t i = b * batch; i < (b + 1) * batch; ++i) seeds.push_back(static_cast<Node>(order[i]));
      sampler.sample(seeds, {0, b}, sample);
      sum += static_cast<double>(sample.nodes.size());
      ++count;
    }
    return count == 0 ? 0 : sum / count;
  });
}

OrderChoice choose_order(const Graph& graph, std::span<const std::uint64_t> train, std::span<const std::int64_t> labels,
                         std::size_t batch, const std::vector<int>& fanout, double allowed, std::uint64_t seed) {
  const Order random = random_order(train, 0, seed);
  const double random_inputs = unique_inputs(graph, random, batch, fanout, seed);
  const double random_distance = label_distance(random, batch, labels);
  OrderChoice choice;
  choice.tried.push_back({false, 0, 1, 1});
  const auto add = [&](bool pieces, std::size_t size, const Order& order) {
    const double distance = random_distance > 0 ? label_distance(order, batch, labels) / random_distance : 1;
    choice.tried.push_back({pieces, size, unique_inputs(graph, order, batch, fanout, seed) / random_inputs, distance});
    const auto& candidate = choice.tried.back();
    if (candidate.distance <= allowed && candidate.inputs < choice.tried[choice.best].inputs)
      choice.best = choice.tried.size() - 1;
  };
  const std::vector<Order> sequences = breadth_first_sequences(graph, train, 16, seed);
  for (std::size_t count = 1; count <= std::min<std::size_t>(16, batch); count *= 2)
    add(false, count, interleave(std::span(sequences).first(count), batch, 0, seed));
  const Order clusters = cluster_sequence(graph, train, seed);
  for (const std::size_t pieces : {2, 3, 4, 5, 6, 8, 12, 16, 24, 32, 48})
    if (batch / pieces >= 2)
      add(true, batch / pieces, balanced_pieces(clusters, labels, batch / pieces, batch, 0, seed));
  return choice;
}

void write_sequences(const std::filesystem::path& path, std::span<const Order> sequences) {
  std::vector<std::int64_t> flat;
  for (const Order& sequence : sequences) {
    PL_CHECK(sequence.size() == sequences[0].size());
    flat.insert(flat.end(), sequence.begin(), sequence.end());
  }
  write_npy(path, flat, sequences.size(), sequences.empty() ? 0 : sequences[0].size());
}

std::vector<Order> read_sequences(const std::filesystem::path& path) {
  const base::MappedFile file(path);
  const NpyArray array = parse_npy(file.text(), path.string());
  if (array.shape.size() != 2)
    throw Error(ErrorKind::kBadInput, path.string(), "expected an array of shape (sequences, training nodes)");
  const std::vector<std::uint64_t> flat = npy_ids(array);
  std::vector<Order> sequences;
  for (std::uint64_t i = 0; i < array.shape[0]; ++i) {
    const auto begin = flat.begin() + static_cast<std::ptrdiff_t>(i * array.shape[1]);
    sequences.emplace_back(begin, begin + static_cast<std::ptrdiff_t>(array.shape[1]));
    Order sorted = sequences.back();
    std::sort(sorted.begin(), sorted.end());
    if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end())
      throw Error(ErrorKind::kBadInput, path.string(),
                  fmt::format("sequence {} names a node twice; make the sequences again", i));
  }
  return sequences;
}

}  // namespace paceline::gnn
