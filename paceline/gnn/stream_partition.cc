#include "paceline/gnn/stream_partition.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "paceline/base/error.h"
#include "paceline/gnn/graph_file.h"
#include "paceline/gnn/random.h"

namespace paceline::gnn {
namespace {

constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();

/// The state of a streamed partition: one part per node and the loads.
class Streamer {
 public:
  Streamer(std::uint64_t nodes, std::uint64_t edges, std::span<const std::uint8_t> is_train,
           const PartitionOptions& options)
      : is_train_(is_train),
        parts_(static_cast<std::size_t>(options.parts)),
        part_(nodes, kNone),
        weight_(parts_, 0),
        train_(parts_, 0),
        ties_(parts_, 0) {
    const double k = options.parts;
    std::uint64_t train = 0;
    for (const std::uint8_t mark : is_train) train += mark != 0;
    most_weight_ = limit(nodes, k, options.imbalance);
    most_train_ = train == 0 ? std::numeric_limits<std::uint64_t>::max() : limit(train, k, options.train_imbalance);
    // Fennel's penalty alpha * gamma * load^(gamma - 1) with gamma = 1.5 and alpha = sqrt(k) * m / n^1.5.
    const double n = static_cast<double>(std::max<std::uint64_t>(1, nodes));
    alpha_ = 1.5 * std::sqrt(k) * static_cast<double>(edges) / 2 / std::pow(n, 1.5);
  }

  /// Assigns or moves node `v` with the given neighbours. `penalty` scales the load term.
  template <class Node>
  void visit(std::uint64_t v, std::span<const Node> row, double penalty) {
    std::fill(ties_.begin(), ties_.end(), 0);
    for (const Node u : row)
      if (part_[u] != kNone) ++ties_[part_[u]];
    const std::uint32_t own = part_[v];
    const std::uint64_t trains = !is_train_.empty() && is_train_[v] != 0;
    std::size_t best = parts_;
    double most = -std::numeric_limits<double>::infinity();
    for (std::size_t p = 0; p < parts_; ++p) {
      const bool here = p == own;
      if (!here && (weight_[p] + 1 > most_weight_ || train_[p] + trains > most_train_)) continue;
      const double load = static_cast<double>(weight_[p] - (here ? 1 : 0));
      const double score = ties_[p] - penalty * alpha_ * std::sqrt(load) + (here ? 1e-9 : 0);
      if (score > most) most = score, best = p;
    }
    if (best == parts_) {  // both limits bind everywhere: the least loaded part
      best = static_cast<std::size_t>(std::min_element(weight_.begin(), weight_.end()) - weight_.begin());
    }
    if (best == own) return;
    if (own != kNone) --weight_[own], train_[own] -= trains;
    ++weight_[best];
    train_[best] += trains;
    part_[v] = static_cast<std::uint32_t>(best);
    ++moved_;
  }

  std::uint64_t take_moved() { return std::exchange(moved_, 0); }
  std::vector<std::uint32_t> take() { return std::move(part_); }

 private:
  static std::uint64_t limit(std::uint64_t total, double parts, double imbalance) {
    const double mean = static_cast<double>(total) / parts;
    return std::max(static_cast<std::uint64_t>(mean * (1 + imbalance)), static_cast<std::uint64_t>(std::ceil(mean)));
  }

  std::span<const std::uint8_t> is_train_;
  std::size_t parts_;
  std::vector<std::uint32_t> part_;
  std::vector<std::uint64_t> weight_;
  std::vector<std::uint64_t> train_;
  std::vector<double> ties_;
  std::uint64_t most_weight_ = 0;
  std::uint64_t most_train_ = 0;
  double alpha_ = 0;
  std::uint64_t moved_ = 0;
};

constexpr int kPasses = 8;
/// The load penalty fades over the passes: later ones are held by the limits alone.
double penalty_of(int pass) {
  return pass < 4 ? 1.0 / (1 << pass) : 0.0;
}

}  // namespace

std::vector<std::uint32_t> stream_partition(const Graph& graph, std::span<const std::uint8_t> is_train,
                                            const PartitionOptions& options) {
  const std::uint64_t nodes = std::max(graph.rows(), graph.columns());
  Streamer streamer(nodes, graph.edges(), is_train, options);
  graph.visit([&](const auto& rows) {
    using Node = std::remove_cvref_t<decltype(rows.neighbours[0])>;
    for (int pass = 0; pass < kPasses; ++pass) {
      for (std::uint64_t v = 0; v < nodes; ++v)
        streamer.visit<Node>(v, v < rows.rows() ? rows.row(v) : std::span<const Node>{}, penalty_of(pass));
      if (streamer.take_moved() < nodes / 1000) break;
    }
  });
  return streamer.take();
}

std::vector<std::uint32_t> stream_partition_file(const std::filesystem::path& path,
                                                 std::span<const std::uint8_t> is_train,
                                                 const PartitionOptions& options, std::size_t buffer_bytes) {
  GraphReader reader(path);
  const std::uint64_t nodes = std::max(reader.rows(), reader.columns());
  Streamer streamer(nodes, reader.edges(), is_train, options);
  for (int pass = 0; pass < kPasses; ++pass) {
    reader.for_each_row(buffer_bytes, [&](std::uint64_t v, std::span<const std::uint32_t> row) {
      streamer.visit(v, row, penalty_of(pass));
    });
    for (std::uint64_t v = reader.rows(); v < nodes; ++v) streamer.visit<std::uint32_t>(v, {}, penalty_of(pass));
    if (streamer.take_moved() < nodes / 1000) break;
  }
  return streamer.take();
}

}  // namespace paceline::gnn
