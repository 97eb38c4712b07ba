#include "paceline/gnn/generate.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "paceline/base/error.h"
#include "paceline/base/parallel.h"
#include "paceline/base/rng.h"

namespace paceline::gnn {
namespace {

constexpr std::size_t kBlock = std::size_t{1} << 16;

/// Fills edges in blocks, each with its own random stream.
template <class Draw>
EdgeList draw_edges(std::uint64_t count, std::uint64_t seed, const Draw& draw) {
  EdgeList edges;
  edges.source.resize(count);
  edges.target.resize(count);
  const base::Rng root(seed);
  base::parallel_for(static_cast<std::size_t>((count + kBlock - 1) / kBlock), [&](std::size_t block) {
    base::Rng rng = root.fork(block);
    const std::size_t end = std::min<std::size_t>(count, (block + 1) * kBlock);
    for (std::size_t e = block * kBlock; e < end; ++e) std::tie(edges.source[e], edges.target[e]) = draw(rng);
  });
  return edges;
}

Graph undirected(EdgeList edges, std::uint64_t nodes) {
  edges.sources = edges.targets = nodes;
  Defects ignored;
  return build_graph(
      edges, {.symmetric = true, .drop_self_loops = true, .merge_duplicates = true, .keep_edge_ids = false}, ignored);
}

}  // namespace

Graph kronecker(int scale, std::uint64_t edge_factor, std::uint64_t seed) {
  PL_CHECK(scale > 0 && scale < 40);
  const std::uint64_t nodes = std::uint64_t{1} << scale;
  std::vector<std::uint64_t> names(nodes);
  std::iota(names.begin(), names.end(), 0);
  base::Rng(seed ^ 0x5EEDu).shuffle(std::span(names));
  return undirected(draw_edges(nodes * edge_factor, seed,
                               [&](base::Rng& rng) {
                                 std::uint64_t from = 0;
                                 std::uint64_t to = 0;
                                 for (int bit = 0; bit < scale; ++bit) {
                                   const double u = rng.uniform();
                                   from = from << 1 | (u >= 0.76 ? 1 : 0);
                                   to = to << 1 | ((u >= 0.57 && u < 0.76) || u >= 0.95 ? 1 : 0);
                                 }
                                 return std::pair{names[from], names[to]};
                               }),
                    nodes);
}

Graph block_model(const BlockModel& model, std::uint64_t seed, std::vector<std::int64_t>* labels) {
  const std::uint64_t n = model.nodes;
  PL_CHECK(model.blocks > 0 && n >= model.blocks);
  // Communities are spread over the ids, so that an order by id knows nothing of them.
  std::vector<std::uint64_t> names(n);
  std::iota(names.begin(), names.end(), 0);
  base::Rng rng(seed);
  rng.shuffle(std::span(names));
  const auto first_of = [&](std::uint64_t block) { return block * n / model.blocks; };

  std::vector<double> sums(n + 1, 0);  // running sums of expected degrees, by position
  const double most = 50;
  for (std::uint64_t i = 0; i < n; ++i) sums[i + 1] = sums[i] + std::min(most, std::pow(1 - rng.uniform(), -1 / 1.5));
  const auto pick = [&](base::Rng& random, std::uint64_t first, std::uint64_t last) {
    const double at = sums[first] + random.uniform() * (sums[last] - sums[first]);
    const auto found = std::upper_bound(sums.begin() + static_cast<std::ptrdiff_t>(first),
                                        sums.begin() + static_cast<std::ptrdiff_t>(last), at);
    return static_cast<std::uint64_t>(found - sums.begin()) - 1;
  };
  if (labels != nullptr) labels->assign(n, 0);
  std::vector<std::uint64_t> block_of(n);
  for (std::uint64_t b = 0; b < model.blocks; ++b)
    for (std::uint64_t i = first_of(b); i < first_of(b + 1); ++i) {
      block_of[i] = b;
      if (labels != nullptr) (*labels)[names[i]] = static_cast<std::int64_t>(b);
    }
  const auto count = static_cast<std::uint64_t>(static_cast<double>(n) * model.mean_degree / 2);
  return undirected(draw_edges(count, seed + 1,
                               [&](base::Rng& random) {
                                 const std::uint64_t from = pick(random, 0, n);
                                 const std::uint64_t own = block_of[from];
                                 std::uint64_t block = own;
                                 if (model.blocks > 1 && random.chance(model.mixing)) {
                                   block = random.below(model.blocks - 1);
                                   block += block >= own;
                                 }
                                 return std::pair{names[from],
                                                  names[pick(random, first_of(block), first_of(block + 1))]};
                               }),
                    n);
}

Graph bipartite_zipf(std::uint64_t users, std::uint64_t items, std::uint64_t edges, double exponent,
                     std::uint64_t seed) {
  std::vector<double> sums(items);
  double sum = 0;
  for (std::uint64_t i = 0; i < items; ++i) sums[i] = sum += std::pow(static_cast<double>(i + 1), -exponent);
  EdgeList list = draw_edges(edges, seed, [&](base::Rng& rng) {
    const auto item = std::upper_bound(sums.begin(), sums.end() - 1, rng.uniform() * sum) - sums.begin();
    return std::pair{static_cast<std::uint64_t>(item), rng.below(users)};
  });
  list.sources = items;
  list.targets = users;
  Defects ignored;
  return build_graph(list, {.bipartite = true, .merge_duplicates = true, .keep_edge_ids = false}, ignored);
}

EdgeList growing_graph(std::uint64_t nodes, std::uint64_t links, std::uint64_t seed) {
  EdgeList edges;
  edges.sources = edges.targets = nodes;
  base::Rng rng(seed);
  for (std::uint64_t v = 1; v < nodes; ++v) {
    for (std::uint64_t l = 0; l < std::min(links, v); ++l) {
      // An end of a random earlier edge is a node drawn by degree (Barabasi and Albert 1999).
      const std::uint64_t e = edges.size() == 0 ? 0 : rng.below(2 * edges.size());
      const std::uint64_t to = edges.size() == 0 || rng.chance(0.2)
                                   ? rng.below(v)
                                   : (e % 2 == 0 ? edges.source[e / 2] : edges.target[e / 2]);
      edges.add(to == v ? rng.below(v) : to, v);
      edges.time.push_back(static_cast<std::int64_t>(v));
    }
  }
  return edges;
}

}  // namespace paceline::gnn
