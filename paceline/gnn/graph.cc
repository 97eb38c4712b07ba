#include "paceline/gnn/graph.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "paceline/base/error.h"
#include "paceline/base/parallel.h"

namespace paceline::gnn {

Graph::Graph(RowStore<std::uint32_t> store, std::uint64_t columns)
    : columns_(columns), store32_(std::move(store)), rows32_(store32_.view()) {}

Graph::Graph(RowStore<std::uint64_t> store, std::uint64_t columns)
    : wide_(true), columns_(columns), store64_(std::move(store)), rows64_(store64_.view()) {}

Graph::Graph(std::unique_ptr<base::MappedFile> file, Rows<std::uint32_t> rows, std::uint64_t columns)
    : columns_(columns), file_(std::move(file)), rows32_(rows) {}

Graph::Graph(std::unique_ptr<base::MappedFile> file, Rows<std::uint64_t> rows, std::uint64_t columns)
    : wide_(true), columns_(columns), file_(std::move(file)), rows64_(rows) {}

std::uint64_t Graph::bytes() const {
  return visit([](const auto& rows) {
    return rows.offsets.size_bytes() + rows.neighbours.size_bytes() + rows.weights.size_bytes() +
           rows.times.size_bytes() + rows.edge_ids.size_bytes();
  });
}

namespace {

constexpr std::size_t kChunkRows = 4096;

void for_each_row_chunk(std::uint64_t rows, const std::function<void(std::uint64_t, std::uint64_t)>& body) {
  const std::size_t chunks = static_cast<std::size_t>((rows + kChunkRows - 1) / kChunkRows);
  base::parallel_for(chunks, [&](std::size_t chunk) {
    const std::uint64_t first = chunk * kChunkRows;
    body(first, std::min<std::uint64_t>(rows, first + kChunkRows));
  });
}

struct Counts {
  std::uint64_t sources;
  std::uint64_t targets;
};

/// Declared counts, or one more than the largest id.
Counts node_counts(const EdgeList& edges, const BuildOptions& options) {
  const auto beyond = [&](const std::vector<std::uint64_t>& ids, const std::optional<std::uint64_t>& declared,
                          const char* side) {
    const auto largest = std::max_element(ids.begin(), ids.end());
    const std::uint64_t needed = largest == ids.end() ? 0 : *largest + 1;
    if (declared && needed > *declared) {
      throw Error(ErrorKind::kBadInput, fmt::format("{}, edge {}", edges.where, largest - ids.begin()),
                  fmt::format("{} {} is not below the declared number of nodes {}; correct the count or the ids "
                              "(0-based)",
                              side, *largest, *declared));
    }
    return declared.value_or(needed);
  };
  Counts counts{beyond(edges.source, edges.sources, "source"), beyond(edges.target, edges.targets, "target")};
  if (!options.bipartite) counts.sources = counts.targets = std::max(counts.sources, counts.targets);
  return counts;
}

/// Orders one row by (time, neighbour, input row) and applies the order to every column.
template <class Node>
class RowSorter {
 public:
  explicit RowSorter(RowStore<Node>& store) : store_(store) {}

  void sort(std::uint64_t begin, std::uint64_t end) {
    const auto length = static_cast<std::size_t>(end - begin);
    if (store_.weights.empty() && store_.times.empty() && store_.edge_ids.empty()) {
      std::sort(store_.neighbours.begin() + static_cast<std::ptrdiff_t>(begin),
                store_.neighbours.begin() + static_cast<std::ptrdiff_t>(end));
      return;
    }
    order_.resize(length);
    std::iota(order_.begin(), order_.end(), begin);
    std::stable_sort(order_.begin(), order_.end(), [&](std::uint64_t a, std::uint64_t b) {
      if (!store_.times.empty() && store_.times[a] != store_.times[b]) return store_.times[a] < store_.times[b];
      return store_.neighbours[a] < store_.neighbours[b];
    });
    permute(store_.neighbours, begin, nodes_);
    permute(store_.weights, begin, weights_);
    permute(store_.times, begin, times_);
    permute(store_.edge_ids, begin, ids_);
  }

 private:
  template <class T>
  void permute(std::vector<T>& column, std::uint64_t begin, std::vector<T>& scratch) {
    if (column.empty()) return;
    scratch.resize(order_.size());
    for (std::size_t i = 0; i < order_.size(); ++i) scratch[i] = column[order_[i]];
    std::copy(scratch.begin(), scratch.end(), column.begin() + static_cast<std::ptrdiff_t>(begin));
  }

  RowStore<Node>& store_;
  std::vector<std::uint64_t> order_, ids_;
  std::vector<Node> nodes_;
  std::vector<float> weights_;
  std::vector<std::int64_t> times_;
};

/// Removes repeated neighbours from sorted rows, in place; how many went.
template <class Node>
std::uint64_t merge_duplicates(RowStore<Node>& store) {
  const std::uint64_t before = store.neighbours.size();
  std::uint64_t out = 0;
  std::uint64_t begin = 0;
  for (std::size_t v = 0; v + 1 < store.offsets.size(); ++v) {
    const std::uint64_t end = store.offsets[v + 1];
    Node previous = 0;
    for (std::uint64_t i = begin; i < end; ++i) {
      const Node neighbour = store.neighbours[i];
      if (i > begin && neighbour == previous) continue;
      previous = neighbour;
      store.neighbours[out] = neighbour;
      if (!store.weights.empty()) store.weights[out] = store.weights[i];
      if (!store.edge_ids.empty()) store.edge_ids[out] = store.edge_ids[i];
      ++out;
    }
    begin = end;
    store.offsets[v + 1] = out;
  }
  store.neighbours.resize(out);
  if (!store.weights.empty()) store.weights.resize(out);
  if (!store.edge_ids.empty()) store.edge_ids.resize(out);
  return before - out;
}

template <class Node>
Graph build(const EdgeList& edges, const BuildOptions& options, const Counts& counts, Defects& defects) {
  const std::vector<std::uint64_t>& row_of = options.rows_by_source ? edges.source : edges.target;
  const std::vector<std::uint64_t>& neighbour_of = options.rows_by_source ? edges.target : edges.source;
  const std::uint64_t rows = options.rows_by_source ? counts.sources : counts.targets;
  const std::uint64_t columns = options.rows_by_source ? counts.targets : counts.sources;
  const std::size_t inputs = edges.size();

  RowStore<Node> store;
  store.offsets.assign(rows + 1, 0);
  std::uint64_t loops = 0;
  std::size_t first_loop = 0;
  for (std::size_t e = 0; e < inputs; ++e) {
    const bool loop = !options.bipartite && row_of[e] == neighbour_of[e];
    if (loop && loops++ == 0) first_loop = e;
    if (loop && options.drop_self_loops) continue;
    ++store.offsets[row_of[e] + 1];
    if (options.symmetric && !loop) ++store.offsets[neighbour_of[e] + 1];
  }
  std::partial_sum(store.offsets.begin(), store.offsets.end(), store.offsets.begin());
  const std::uint64_t total = store.offsets[rows];
  store.neighbours.resize(total);
  if (!edges.weight.empty()) store.weights.resize(total);
  if (!edges.time.empty()) store.times.resize(total);
  if (options.keep_edge_ids) store.edge_ids.resize(total);

  std::vector<std::uint64_t> next(store.offsets.begin(), store.offsets.end() - 1);
  const auto place = [&](std::uint64_t row, std::uint64_t neighbour, std::size_t e) {
    const std::uint64_t at = next[row]++;
    store.neighbours[at] = static_cast<Node>(neighbour);
    if (!edges.weight.empty()) store.weights[at] = edges.weight[e];
    if (!edges.time.empty()) store.times[at] = edges.time[e];
    if (options.keep_edge_ids) store.edge_ids[at] = e;
  };
  for (std::size_t e = 0; e < inputs; ++e) {
    const bool loop = !options.bipartite && row_of[e] == neighbour_of[e];
    if (loop && options.drop_self_loops) continue;
    place(row_of[e], neighbour_of[e], e);
    if (options.symmetric && !loop) place(neighbour_of[e], row_of[e], e);
  }
  std::vector<std::uint64_t>().swap(next);
  for_each_row_chunk(rows, [&](std::uint64_t first, std::uint64_t last) {
    RowSorter<Node> sorter(store);
    for (std::uint64_t v = first; v < last; ++v) sorter.sort(store.offsets[v], store.offsets[v + 1]);
  });

  if (loops > 0)
    defects.note(options.drop_self_loops ? "self loop, removed" : "self loop",
                 fmt::format("{}, edge {}", edges.where, first_loop), loops);
  if (options.merge_duplicates && edges.time.empty())
    defects.note("duplicate edge, merged", edges.where, merge_duplicates(store));
  return Graph(std::move(store), columns);
}

}  // namespace

Graph build_graph(const EdgeList& edges, const BuildOptions& options, Defects& defects) {
  PL_CHECK(edges.source.size() == edges.target.size());
  PL_CHECK(!(options.bipartite && options.symmetric));
  const Counts counts = node_counts(edges, options);
  const std::uint64_t most = std::max(counts.sources, counts.targets);
  if (most >= std::numeric_limits<std::uint64_t>::max() / 16)
    throw Error(ErrorKind::kBadInput, edges.where,
                fmt::format("{} nodes cannot be held; are the ids hashes? Number them from 0", most));
  if (options.force_wide || most >= std::numeric_limits<std::uint32_t>::max())
    return build<std::uint64_t>(edges, options, counts, defects);
  return build<std::uint32_t>(edges, options, counts, defects);
}

Asymmetry find_asymmetry(const Graph& graph) {
  return graph.visit([&](const auto& rows) {
    Asymmetry found;
    for (std::uint64_t v = 0; v < rows.rows(); ++v) {
      for (const auto u : rows.row(v)) {
        const bool has =
            u < rows.rows() &&
            (rows.times.empty() ? std::binary_search(rows.row(u).begin(), rows.row(u).end(), v)
                                : std::find(rows.row(u).begin(), rows.row(u).end(), v) != rows.row(u).end());
        if (has) continue;
        if (found.missing++ == 0) found.row = v, found.neighbour = u;
      }
    }
    return found;
  });
}

namespace {

template <class Node>
Graph symmetrise_rows(const Rows<Node>& rows, std::uint64_t columns) {
  const std::uint64_t nodes = std::max(rows.rows(), columns);
  RowStore<Node> store;
  store.offsets.assign(nodes + 1, 0);
  for (std::uint64_t v = 0; v < rows.rows(); ++v) {
    for (const Node u : rows.row(v)) {
      if (u == v) continue;
      ++store.offsets[v + 1];
      ++store.offsets[u + 1];
    }
  }
  std::partial_sum(store.offsets.begin(), store.offsets.end(), store.offsets.begin());
  store.neighbours.resize(store.offsets[nodes]);
  std::vector<std::uint64_t> next(store.offsets.begin(), store.offsets.end() - 1);
  for (std::uint64_t v = 0; v < rows.rows(); ++v) {
    for (const Node u : rows.row(v)) {
      if (u == v) continue;
      store.neighbours[next[v]++] = u;
      store.neighbours[next[u]++] = static_cast<Node>(v);
    }
  }
  std::uint64_t out = 0;
  std::uint64_t begin = 0;
  for (std::uint64_t v = 0; v < nodes; ++v) {
    const std::uint64_t end = store.offsets[v + 1];
    const auto from = store.neighbours.begin() + static_cast<std::ptrdiff_t>(begin);
    const auto to = store.neighbours.begin() + static_cast<std::ptrdiff_t>(end);
    std::sort(from, to);
    const auto last = std::unique(from, to);
    std::copy(from, last, store.neighbours.begin() + static_cast<std::ptrdiff_t>(out));
    out += static_cast<std::uint64_t>(last - from);
    begin = end;
    store.offsets[v + 1] = out;
  }
  store.neighbours.resize(out);
  store.neighbours.shrink_to_fit();
  return Graph(std::move(store), nodes);
}

template <class Node>
void validate_rows(const Rows<Node>& rows, std::uint64_t columns, const std::string& where) {
  const auto fail = [&](std::uint64_t row, const std::string& what) {
    throw Error(ErrorKind::kBadInput, fmt::format("{}, row {}", where, row), what);
  };
  if (rows.offsets.empty() || rows.offsets.front() != 0) fail(0, "offsets do not start at 0; write the graph again");
  if (rows.offsets.back() != rows.edges())
    fail(rows.rows(), fmt::format("offsets end at {}, but there are {} edges", rows.offsets.back(), rows.edges()));
  const auto check_length = [&](std::size_t length, const char* name) {
    if (length != 0 && length != rows.edges()) fail(0, fmt::format("{} {} for {} edges", length, name, rows.edges()));
  };
  check_length(rows.weights.size(), "weights");
  check_length(rows.times.size(), "times");
  check_length(rows.edge_ids.size(), "edge ids");
  for_each_row_chunk(rows.rows(), [&](std::uint64_t first, std::uint64_t last) {
    for (std::uint64_t v = first; v < last; ++v) {
      if (rows.offsets[v] > rows.offsets[v + 1] || rows.offsets[v + 1] > rows.edges())
        fail(v, fmt::format("offsets {} and {} do not ascend", rows.offsets[v], rows.offsets[v + 1]));
    }
  });
  for_each_row_chunk(rows.rows(), [&](std::uint64_t first, std::uint64_t last) {
    Node largest = 0;
    for (const Node u : rows.neighbours.subspan(rows.offsets[first], rows.offsets[last] - rows.offsets[first]))
      largest = std::max(largest, u);
    const bool ids_fine = rows.offsets[first] == rows.offsets[last] || largest < columns;
    for (std::uint64_t v = first; v < last && (!ids_fine || !rows.times.empty()); ++v) {
      for (std::uint64_t i = rows.offsets[v]; i < rows.offsets[v + 1]; ++i) {
        if (rows.neighbours[i] >= columns)
          fail(v, fmt::format("neighbour {} is not below the number of nodes {}", rows.neighbours[i], columns));
        if (!rows.times.empty() && i > rows.offsets[v] && rows.times[i] < rows.times[i - 1])
          fail(v, "times do not ascend within the row; import the edges again, which sorts them");
      }
    }
  });
}

}  // namespace

Graph symmetrise(const Graph& graph) {
  return graph.visit([&](const auto& rows) { return symmetrise_rows(rows, graph.columns()); });
}

void validate(const Graph& graph, const std::string& where) {
  graph.visit([&](const auto& rows) { validate_rows(rows, graph.columns(), where); });
}

}  // namespace paceline::gnn
