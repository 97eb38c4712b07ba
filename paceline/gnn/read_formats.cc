// METIS, GAP, Matrix Market, npy and npz.
#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cstring>

#include "paceline/base/error.h"
#include "paceline/gnn/dataset.h"
#include "paceline/gnn/lines.h"
#include "paceline/gnn/npy.h"

namespace paceline::gnn {
namespace fs = std::filesystem;
namespace {

[[noreturn]] void bad(const std::string& where, const std::string& what) {
  throw Error(ErrorKind::kBadInput, where, what);
}

std::uint64_t number(std::string_view text, const std::string& where, const char* what) {
  std::uint64_t value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc{} || end != text.data() + text.size())
    bad(where, fmt::format("{} is '{}', expected a whole number", what, text.substr(0, 40)));
  return value;
}

/// The lines of one text file that may be compressed.
template <class Line>
void for_each_line(const fs::path& path, Defects& defects, Line&& visit) {
  base::for_each_document(path, [&](const std::string& name, base::ByteSource& bytes) {
    LineReader lines(bytes);
    std::string_view line;
    while (lines.next(line)) visit(line, name, lines.number());
    if (bytes.damage()) defects.lose(*bytes.damage(), name);
    if (lines.overlong() > 0) defects.lose("line longer than 1 MiB", name, lines.overlong());
  });
}

std::uint32_t narrow(std::uint64_t id) {
  return static_cast<std::uint32_t>(id);
}

}  // namespace

namespace {

/// Reads a METIS file line by line; a row may have any length, so fields are taken from the bytes one by one.
class MetisReader {
 public:
  explicit MetisReader(const fs::path& path) : where_(path.string()) {
    base::for_each_document(path, [&](const std::string& name, base::ByteSource& bytes) {
      where_ = name;
      text_ = base::read_all(bytes);
      if (bytes.damage()) bad(where_, *bytes.damage());
    });
  }

  Graph read(Defects& defects) {
    read_header();
    RowStore<std::uint32_t> store;
    store.offsets.reserve(nodes_ + 1);
    // Every entry takes two bytes at least: a wrong count in the header cannot make us reserve more than that.
    store.neighbours.reserve(std::min<std::uint64_t>(2 * edges_, text_.size() / 2));
    while (store.offsets.size() <= nodes_) read_row(store);
    if (next_line()) {
      std::string_view rest = line_;
      rest.remove_prefix(std::min(rest.find_first_not_of(" \t\r"), rest.size()));
      if (!rest.empty()) bad(where(), fmt::format("more rows than the {} nodes of the header", nodes_));
    }
    if (store.neighbours.size() != 2 * edges_)
      bad(where_, fmt::format("has {} neighbour entries, the header's {} edges need {}", store.neighbours.size(),
                              edges_, 2 * edges_));
    sort_rows(store);
    Graph graph(std::move(store), nodes_);
    const Asymmetry asymmetry = find_asymmetry(graph);
    if (asymmetry.missing > 0)
      bad(where_,
          fmt::format(
              "node {} lists {}, but {} does not list {} ({} such edges); METIS graphs list every edge from both ends",
              asymmetry.row + 1, asymmetry.neighbour + 1, asymmetry.neighbour + 1, asymmetry.row + 1,
              asymmetry.missing));
    if (loops_ > 0) defects.note("self loop", where_, loops_);
    if (sizes_ > 0) defects.note("node weights, not used", where_, sizes_);
    return graph;
  }

 private:
  std::string where() const { return fmt::format("{}:{}", where_, number_); }

  bool next_line() {
    while (at_ < text_.size()) {
      const std::size_t end = std::min(text_.find('\n', at_), text_.size());
      line_ = std::string_view(text_).substr(at_, end - at_);
      at_ = end + 1;
      ++number_;
      if (!line_.starts_with('%')) return true;
    }
    return false;
  }

  void read_header() {
    if (!next_line()) bad(where_, "is empty, expected a METIS header `nodes edges [format [constraints]]`");
    std::vector<std::string_view> fields;
    if (!line_.empty() && line_.back() == '\r') line_.remove_suffix(1);
    split_fields(line_, ' ', fields);
    if (fields.size() < 2 || fields.size() > 4)
      bad(where(), "header needs 2 to 4 numbers: nodes, edges, format, constraints");
    nodes_ = number(fields[0], where(), "number of nodes");
    edges_ = number(fields[1], where(), "number of edges");
    if (nodes_ >= 0xFFFFFFFFu || nodes_ > text_.size())
      bad(where(), fmt::format("{} nodes do not fit a file of {} bytes", nodes_, text_.size()));
    if (edges_ > text_.size())
      bad(where(), fmt::format("{} edges do not fit a file of {} bytes", edges_, text_.size()));
    const std::string_view format = fields.size() > 2 ? fields[2] : "0";
    if (format.size() > 3 || format.find_first_not_of("01") != std::string_view::npos)
      bad(where(), fmt::format("format '{}', expected up to three digits 0 or 1", format));
    const auto flag = [&](std::size_t from_right) {
      return format.size() > from_right && format[format.size() - 1 - from_right] == '1';
    };
    edge_weights_ = flag(0);
    node_numbers_ =
        (flag(2) ? 1 : 0) + (flag(1) ? (fields.size() > 3 ? number(fields[3], where(), "constraints") : 1) : 0);
  }

  bool next_number(std::uint64_t& value) {
    const std::size_t begin = line_.find_first_not_of(" \t\r");
    if (begin == std::string_view::npos) return false;
    const std::size_t end = std::min(line_.find_first_of(" \t\r", begin), line_.size());
    value = number(line_.substr(begin, end - begin), where(), "entry");
    line_.remove_prefix(end);
    return true;
  }

  void read_row(RowStore<std::uint32_t>& store) {
    const std::uint64_t row = store.offsets.size();  // 1-based
    if (!next_line()) bad(where_, fmt::format("ends after {} rows, the header says {}", row - 1, nodes_));
    std::uint64_t value = 0;
    for (std::uint64_t i = 0; i < node_numbers_; ++i, ++sizes_)
      if (!next_number(value)) bad(where(), fmt::format("node {} has too few weights", row));
    while (next_number(value)) {
      if (value == 0 || value > nodes_) bad(where(), fmt::format("neighbour {} is outside of 1..{}", value, nodes_));
      loops_ += value == row;
      store.neighbours.push_back(narrow(value - 1));
      if (!edge_weights_) continue;
      if (!next_number(value)) bad(where(), fmt::format("the last neighbour of node {} has no weight", row));
      store.weights.push_back(static_cast<float>(value));
    }
    store.offsets.push_back(store.neighbours.size());
  }

  void sort_rows(RowStore<std::uint32_t>& store) const {
    std::vector<std::pair<std::uint32_t, float>> row;
    for (std::uint64_t v = 0; v + 1 < store.offsets.size(); ++v) {
      row.clear();
      for (std::uint64_t i = store.offsets[v]; i < store.offsets[v + 1]; ++i)
        row.emplace_back(store.neighbours[i], edge_weights_ ? store.weights[i] : 0.0f);
      std::sort(row.begin(), row.end());
      for (std::size_t i = 0; i < row.size(); ++i) {
        store.neighbours[store.offsets[v] + i] = row[i].first;
        if (edge_weights_) store.weights[store.offsets[v] + i] = row[i].second;
      }
    }
  }

  std::string where_;
  std::string text_;
  std::string_view line_;
  std::size_t at_ = 0;
  std::uint64_t number_ = 0;
  std::uint64_t nodes_ = 0;
  std::uint64_t edges_ = 0;
  std::uint64_t node_numbers_ = 0;
  std::uint64_t loops_ = 0;
  std::uint64_t sizes_ = 0;
  bool edge_weights_ = false;
};

}  // namespace

Graph read_metis(const fs::path& path, Defects& defects) {
  return MetisReader(path).read(defects);
}

Graph read_gap(const fs::path& path, bool weighted) {
  const base::MappedFile file(path);
  const std::string_view text = file.text();
  const std::string where = path.string();
  std::size_t at = 0;
  const auto take = [&](void* to, std::uint64_t bytes, const char* what) {
    if (bytes > text.size() - at)
      bad(where, fmt::format("is cut short in its {}: {} bytes more needed", what, bytes - (text.size() - at)));
    std::memcpy(to, text.data() + at, bytes);
    at += bytes;
  };
  std::uint8_t directed = 0;
  std::int64_t edges = 0;
  std::int64_t nodes = 0;
  take(&directed, 1, "header");
  take(&edges, 8, "header");
  take(&nodes, 8, "header");
  if (directed > 1 || edges < 0 || nodes < 0 || nodes >= 0xFFFFFFFF || static_cast<std::uint64_t>(edges) > text.size())
    bad(where, fmt::format("is not a GAP serialized graph (directed {}, {} edges, {} nodes)", directed, edges, nodes));
  // Undirected graphs count each edge once but list it twice.
  const std::uint64_t listed = static_cast<std::uint64_t>(edges) * (directed != 0 ? 1 : 2);
  const std::uint64_t entry = weighted ? 8 : 4;
  if (directed != 0) {  // we keep incoming edges: skip the outgoing half
    std::string skipped;
    const std::uint64_t skip = (static_cast<std::uint64_t>(nodes) + 1) * 8 + listed * entry;
    if (skip > text.size() - at) bad(where, "is cut short in its outgoing edges");
    at += skip;
  }
  RowStore<std::uint32_t> store;
  if (static_cast<std::uint64_t>(nodes) * 8 > text.size()) bad(where, "is cut short in its offsets");
  store.offsets.resize(static_cast<std::uint64_t>(nodes) + 1);
  take(store.offsets.data(), store.offsets.size() * 8, "offsets");
  if (listed * entry > text.size() - at) bad(where, "is cut short in its neighbours");
  store.neighbours.resize(listed);
  if (!weighted) {
    take(store.neighbours.data(), listed * 4, "neighbours");
  } else {
    store.weights.resize(listed);
    for (std::uint64_t i = 0; i < listed; ++i) {
      std::int32_t weight = 0;
      take(&store.neighbours[i], 4, "neighbours");
      take(&weight, 4, "weights");
      store.weights[i] = static_cast<float>(weight);
    }
  }
  Graph graph(std::move(store), static_cast<std::uint64_t>(nodes));
  validate(graph, where);
  return graph;
}

// https://math.nist.gov/MatrixMarket/formats.html: coordinate format, 1-based, `rows columns entries`.
Graph read_matrix_market(const fs::path& path, const BuildOptions& options, Defects& defects) {
  EdgeList edges;
  edges.where = path.string();
  BuildOptions build = options;
  std::uint64_t declared = 0;
  bool banner = false;
  bool sized = false;
  bool pattern = false;
  std::vector<std::string_view> fields;
  for_each_line(path, defects, [&](std::string_view line, const std::string& name, std::uint64_t count) {
    const std::string where = fmt::format("{}:{}", name, count);
    split_fields(line, ' ', fields);
    if (!std::exchange(banner, true)) {
      if (fields.size() < 5 || fields[0] != "%%MatrixMarket" || fields[1] != "matrix" || fields[2] != "coordinate")
        bad(where, "expected `%%MatrixMarket matrix coordinate TYPE SYMMETRY`");
      if (fields[3] == "complex") bad(where, "holds complex values, expected pattern, integer or real");
      pattern = fields[3] == "pattern";
      if (fields[4] == "symmetric")
        build.symmetric = true;
      else if (fields[4] != "general")
        bad(where, fmt::format("symmetry '{}', expected general or symmetric", fields[4]));
      return;
    }
    if (fields.empty() || fields[0].front() == '%') return;
    if (!std::exchange(sized, true)) {
      if (fields.size() != 3) bad(where, "expected `rows columns entries`");
      edges.targets = number(fields[0], where, "rows");
      edges.sources = number(fields[1], where, "columns");
      declared = number(fields[2], where, "entries");
      return;
    }
    if (fields.size() < (pattern ? 2u : 3u)) return defects.lose("too few columns", where);
    const std::uint64_t row = number(fields[0], where, "row");
    const std::uint64_t column = number(fields[1], where, "column");
    if (row == 0 || column == 0) return defects.lose("node id 0 in a 1-based file", where);
    edges.add(column - 1, row - 1);
    if (pattern) return;
    float weight = 0;
    std::from_chars(fields[2].data(), fields[2].data() + fields[2].size(), weight);
    edges.weight.push_back(weight);
  });
  if (!sized) bad(path.string(), "has no size line");
  if (edges.size() != declared)
    defects.lose("entry declared but absent", path.string(),
                 declared > edges.size() ? declared - edges.size() : edges.size() - declared);
  return build_graph(edges, build, defects);
}

EdgeList read_npy_edges(const fs::path& path) {
  const base::MappedFile file(path);
  const NpyArray array = parse_npy(file.text(), path.string());
  if (array.shape.size() != 2 || (array.shape[0] != 2 && array.shape[1] != 2))
    bad(path.string(), "expected an array of shape (2, edges) or (edges, 2)");
  std::vector<std::uint64_t> flat = npy_ids(array);
  EdgeList edges;
  edges.where = path.string();
  const std::size_t count = flat.size() / 2;
  // Two rows one after the other in memory: (2, M) in C order or (M, 2) in Fortran order.
  const bool two_rows = array.shape[0] == 2 ? !array.fortran_order : array.fortran_order;
  if (two_rows) {
    edges.source.assign(flat.begin(), flat.begin() + static_cast<std::ptrdiff_t>(count));
    edges.target.assign(flat.begin() + static_cast<std::ptrdiff_t>(count), flat.end());
  } else {
    for (std::size_t e = 0; e < count; ++e) edges.add(flat[2 * e], flat[2 * e + 1]);
  }
  return edges;
}

Dataset read_npz(const fs::path& path, Defects& defects) {
  const base::MappedFile file(path);
  const auto members = read_zip(file.text(), path.string());
  const auto find = [&](std::initializer_list<const char*> names) -> std::optional<NpyArray> {
    for (const char* name : names)
      for (const auto& [member, bytes] : members)
        if (member == std::string(name) + ".npy") return parse_npy(bytes, path.string() + "/" + member);
    return std::nullopt;
  };
  const auto offsets = find({"adj_indptr", "adj_matrix.indptr", "indptr"});
  const auto neighbours = find({"adj_indices", "adj_matrix.indices", "indices"});
  if (!offsets || !neighbours)
    bad(path.string(), "has no CSR: expected arrays indptr and indices (or adj_indptr, adj_indices)");
  RowStore<std::uint64_t> store;
  store.offsets = npy_ids(*offsets);
  store.neighbours = npy_ids(*neighbours);
  if (store.offsets.empty()) bad(offsets->where, "is empty, expected nodes + 1 offsets");
  std::uint64_t columns = store.offsets.size() - 1;
  if (const auto shape = find({"adj_shape", "adj_matrix.shape", "shape"})) {
    const std::vector<std::uint64_t> extent = npy_ids(*shape);
    if (extent.size() != 2 || extent[0] != columns)
      bad(shape->where,
          fmt::format("says {} rows, but there are offsets for {}", extent.empty() ? 0 : extent[0], columns));
    columns = extent[1];
  }
  validate(Graph(RowStore<std::uint64_t>(store), columns), path.string());
  EdgeList edges;  // through an edge list, so that rows get sorted and ids get their width
  edges.where = path.string();
  edges.sources = columns;
  edges.targets = store.offsets.size() - 1;
  for (std::uint64_t v = 0; v + 1 < store.offsets.size(); ++v)
    for (std::uint64_t i = store.offsets[v]; i < store.offsets[v + 1]; ++i) edges.add(store.neighbours[i], v);
  Dataset dataset;
  dataset.name = path.stem().string();
  dataset.node_types.push_back({"node", std::max(columns, *edges.targets)});
  dataset.relations.push_back({"node", "edge", "node", build_graph(edges, {}, defects)});
  if (const auto labels = find({"labels", "y"})) dataset.labels = npy_integers(*labels);
  return dataset;
}

}  // namespace paceline::gnn
