#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "paceline/base/file.h"
#include "paceline/gnn/defects.h"
#include "paceline/gnn/graph.h"

namespace paceline::gnn {

/// How time stamps in a text are to be understood.
enum class TimeUnit { kSeconds, kMilliseconds, kMicroseconds, kNanoseconds };

struct TextOptions {
  TimeUnit time_unit = TimeUnit::kSeconds;
  bool one_based = false;
  /// When set, the third column is a time even without a header that says so.
  bool third_is_time = false;
};

/// Reads an edge list: `source target [weight [time]]`, separated by comma, semicolon, tab or spaces, plain or
/// compressed. A header is recognised by its names (src|source|from|u, dst|target|to|v, weight|w|rating,
/// time|timestamp|t; other columns are skipped); without one the columns are taken in that order. Lines that start
/// with # or % are comments. A line that cannot be understood is left out and counted by what is wrong with it.
/// Times are held as nanoseconds and parsed as decimals, never through a double.
/// Throws Error(kBadInput) when nothing can be read.
EdgeList read_edge_text(const std::filesystem::path& path, const TextOptions& options, Defects& defects);
EdgeList read_edge_text(base::ByteSource& bytes, const std::string& name, const TextOptions& options, Defects& defects);

/// One integer per node, from `node,value` rows with a header or one value per line; nodes that are not named get
/// `missing`. Words train|val|valid|test|- (and t|v|e) become 0|1|1|2|-1.
std::vector<std::int64_t> read_node_values(const std::filesystem::path& path, std::int64_t missing, Defects& defects);

}  // namespace paceline::gnn
