#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>

#include "paceline/gnn/graph.h"

namespace paceline::gnn {

/// Our graph file: a 4096-byte header (magic, version, counts, one row per column with place, length and checksum, and
/// a checksum of the header itself), then the columns, each at a multiple of 4096. Little-endian.
struct GraphLayout {
  std::uint64_t rows = 0;
  std::uint64_t columns = 0;
  std::uint64_t edges = 0;
  bool wide = false;
  bool weights = false;
  bool times = false;
  bool edge_ids = false;
};

/// Writes a graph file column by column through a mapping, so that a graph larger than memory can be written. The file
/// appears under its name only in finish(). Space is reserved first: a full disk is an Error, not a crash.
class GraphWriter {
 public:
  enum class Space { kReserved, kSparse };  // sparse: pages never written stay holes that read as 0

  GraphWriter(std::filesystem::path path, const GraphLayout& layout, Space space = Space::kReserved);
  ~GraphWriter();
  GraphWriter(const GraphWriter&) = delete;
  GraphWriter& operator=(const GraphWriter&) = delete;

  std::span<std::uint64_t> offsets();
  std::span<std::uint32_t> narrow_neighbours();
  std::span<std::uint64_t> wide_neighbours();
  std::span<float> weights();
  std::span<std::int64_t> times();
  std::span<std::uint64_t> edge_ids();
  /// Without checksums of the columns the reader can only check the header (a sparse file would be read whole).
  void finish(bool checksums = true);

 private:
  std::filesystem::path path_;
  std::filesystem::path temporary_;
  GraphLayout layout_;
  char* data_ = nullptr;
  std::uint64_t size_ = 0;
};

void write_graph(const std::filesystem::path& path, const Graph& graph);

enum class Check {
  kAll,    // checksums of all columns and the graph's own rules: reads the whole file once
  kHeader  // header, sizes and the last offset only, for files written by this machine
};

/// Maps a graph file. Throws Error(kBadInput) that says what is wrong: not a graph file, a newer version, cut short,
/// a damaged header or column, or rows that break the rules of a graph.
Graph open_graph(const std::filesystem::path& path, Check check = Check::kAll);
bool is_graph_file(const std::filesystem::path& path);

/// Reads the rows of a graph file (32-bit node ids) one after the other through a buffer, without mapping it.
class GraphReader {
 public:
  /// Checks the header; Error as open_graph().
  explicit GraphReader(const std::filesystem::path& path);
  ~GraphReader();
  GraphReader(const GraphReader&) = delete;
  GraphReader& operator=(const GraphReader&) = delete;

  std::uint64_t rows() const { return rows_; }
  std::uint64_t columns() const { return columns_; }
  std::uint64_t edges() const { return edges_; }
  /// Two buffers of `buffer_bytes`; a row longer than the buffer grows it. Throws Error(kBadInput) for offsets or ids
  /// out of range.
  void for_each_row(std::size_t buffer_bytes,
                    const std::function<void(std::uint64_t, std::span<const std::uint32_t>)>& visit);

 private:
  void read_at(void* to, std::uint64_t bytes, std::uint64_t place);

  std::filesystem::path path_;
  int file_ = -1;
  std::uint64_t rows_ = 0;
  std::uint64_t columns_ = 0;
  std::uint64_t edges_ = 0;
  std::uint64_t offsets_place_ = 0;
  std::uint64_t neighbours_place_ = 0;
};

/// Four interleaved multiply-rotate lanes over 8-byte words; detects damage, is not cryptographic.
std::uint64_t checksum(std::span<const char> bytes);

}  // namespace paceline::gnn
