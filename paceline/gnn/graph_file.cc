#include "paceline/gnn/graph_file.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <vector>

#include "paceline/base/error.h"
#include "paceline/base/parallel.h"

namespace paceline::gnn {
namespace fs = std::filesystem;
namespace {

static_assert(std::endian::native == std::endian::little, "graph files are little-endian");

constexpr std::array<char, 8> kMagic{'P', 'L', 'G', 'R', 'A', 'P', 'H', '\n'};
constexpr std::uint32_t kVersion = 1;
constexpr std::uint64_t kPage = 4096;
constexpr std::uint64_t kChecksumBlock = std::uint64_t{8} << 20;

enum Column { kOffsets, kNeighbours, kWeights, kTimes, kEdgeIds, kColumns };
constexpr std::array<const char*, kColumns> kColumnNames{"offsets", "neighbours", "weights", "times", "edge ids"};

struct Section {
  std::uint64_t place = 0;
  std::uint64_t bytes = 0;
  std::uint64_t checksum = 0;
  std::uint64_t checked = 0;  // 1 when checksum holds
};

struct Header {
  std::array<char, 8> magic = kMagic;
  std::uint32_t version = kVersion;
  std::uint32_t node_bytes = 4;
  std::uint64_t rows = 0;
  std::uint64_t columns = 0;
  std::uint64_t edges = 0;
  std::array<Section, kColumns> sections;
  std::uint64_t checksum = 0;  // of all bytes before it
};
static_assert(sizeof(Header) <= kPage);

std::uint64_t header_checksum(const Header& header) {
  return checksum({reinterpret_cast<const char*>(&header), offsetof(Header, checksum)});
}

std::uint64_t round_up(std::uint64_t bytes) {
  return (bytes + kPage - 1) / kPage * kPage;
}

/// Blocks in parallel, then a checksum of the checksums: the same for any number of threads.
std::uint64_t column_checksum(std::span<const char> bytes) {
  const std::size_t blocks = static_cast<std::size_t>((bytes.size() + kChecksumBlock - 1) / kChecksumBlock);
  std::vector<std::uint64_t> sums(blocks);
  base::parallel_for(blocks, [&](std::size_t i) {
    const std::uint64_t begin = i * kChecksumBlock;
    sums[i] = checksum(bytes.subspan(begin, std::min<std::uint64_t>(kChecksumBlock, bytes.size() - begin)));
  });
  return checksum({reinterpret_cast<const char*>(sums.data()), sums.size() * sizeof(std::uint64_t)});
}

Header make_header(const GraphLayout& layout) {
  Header header;
  header.node_bytes = layout.wide ? 8 : 4;
  header.rows = layout.rows;
  header.columns = layout.columns;
  header.edges = layout.edges;
  const std::array<std::uint64_t, kColumns> sizes{
      (layout.rows + 1) * 8, layout.edges * header.node_bytes, layout.weights ? layout.edges * 4 : 0,
      layout.times ? layout.edges * 8 : 0, layout.edge_ids ? layout.edges * 8 : 0};
  std::uint64_t place = kPage;
  for (int c = 0; c < kColumns; ++c) {
    header.sections[static_cast<std::size_t>(c)].place = place;
    header.sections[static_cast<std::size_t>(c)].bytes = sizes[static_cast<std::size_t>(c)];
    place += round_up(sizes[static_cast<std::size_t>(c)]);
  }
  return header;
}

[[noreturn]] void throw_system(const fs::path& path, const char* action, int code) {
  throw Error(ErrorKind::kSystem, path.string(), fmt::format("cannot {}: {}", action, std::strerror(code)));
}

[[noreturn]] void throw_bad(const fs::path& path, const std::string& what) {
  throw Error(ErrorKind::kBadInput, path.string(), what);
}

/// Reads and checks the header against the file's size.
Header read_header(const fs::path& path, std::string_view text, std::uint64_t file_size) {
  Header header;
  if (text.size() < sizeof(Header) || std::memcmp(text.data(), kMagic.data(), kMagic.size()) != 0)
    throw_bad(path, "is not a Paceline graph file; make one with `paceline gnn import`");
  std::memcpy(&header, text.data(), sizeof(Header));
  if (header.version > kVersion)
    throw_bad(path, fmt::format("graph file version {}, but this Paceline reads up to {}; import again or update",
                                header.version, kVersion));
  if (header.checksum != header_checksum(header)) throw_bad(path, "the header is damaged; import the graph again");
  if (header.node_bytes != 4 && header.node_bytes != 8)
    throw_bad(path, fmt::format("node ids of {} bytes, expected 4 or 8", header.node_bytes));
  const std::array<std::uint64_t, kColumns> width{8, header.node_bytes, 4, 8, 8};
  for (std::size_t c = 0; c < kColumns; ++c) {
    const Section& section = header.sections[c];
    const std::uint64_t wanted = c == kOffsets ? (header.rows + 1) * 8 : header.edges * width[c];
    if (section.bytes != wanted && !(section.bytes == 0 && c > kNeighbours))
      throw_bad(path, fmt::format("column {} has {} bytes, expected {}", kColumnNames[c], section.bytes, wanted));
    if (section.place % kPage != 0 || section.place > file_size || section.bytes > file_size - section.place)
      throw_bad(path, fmt::format("is cut short: column {} needs {} bytes, the file has {}; copy or import it again",
                                  kColumnNames[c], section.place + section.bytes, file_size));
  }
  return header;
}

template <class T>
std::span<const T> column(std::string_view text, const Header& header, Column which) {
  const Section& section = header.sections[which];
  return {reinterpret_cast<const T*>(text.data() + section.place), section.bytes / sizeof(T)};
}

template <class Node>
Graph map_rows(std::unique_ptr<base::MappedFile> file, const Header& header) {
  const std::string_view text = file->text();
  Rows<Node> rows{column<std::uint64_t>(text, header, kOffsets), column<Node>(text, header, kNeighbours),
                  column<float>(text, header, kWeights), column<std::int64_t>(text, header, kTimes),
                  column<std::uint64_t>(text, header, kEdgeIds)};
  return Graph(std::move(file), rows, header.columns);
}

}  // namespace

std::uint64_t checksum(std::span<const char> bytes) {
  constexpr std::uint64_t kMultiplier = 0x9E3779B97F4A7C15u;
  std::array<std::uint64_t, 4> lanes{1, 2, 3, 4};
  std::size_t i = 0;
  for (; i + 32 <= bytes.size(); i += 32) {
    std::array<std::uint64_t, 4> words;
    std::memcpy(words.data(), bytes.data() + i, 32);
    for (std::size_t k = 0; k < 4; ++k) lanes[k] = std::rotl((lanes[k] ^ words[k]) * kMultiplier, 29);
  }
  std::uint64_t sum = bytes.size();
  for (const std::uint64_t lane : lanes) sum = std::rotl((sum ^ lane) * kMultiplier, 31);
  for (; i < bytes.size(); ++i) sum = std::rotl((sum ^ static_cast<unsigned char>(bytes[i])) * kMultiplier, 31);
  return sum ^ (sum >> 32);
}

GraphWriter::GraphWriter(fs::path path, const GraphLayout& layout, Space space)
    : path_(std::move(path)), temporary_(path_.string() + ".part"), layout_(layout) {
  const Header header = make_header(layout);
  size_ = header.sections.back().place + round_up(header.sections.back().bytes);
  const int fd = ::open(temporary_.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) throw_system(path_, "write", errno);
  const auto length = static_cast<off_t>(size_);
  const int code =
      space == Space::kReserved ? ::posix_fallocate(fd, 0, length) : (::ftruncate(fd, length) != 0 ? errno : 0);
  void* mapped = code == 0 ? ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
  const int map_code = errno;
  ::close(fd);
  if (mapped == MAP_FAILED) {
    ::unlink(temporary_.c_str());
    throw_system(path_, code != 0 ? "reserve space for" : "map", code != 0 ? code : map_code);
  }
  data_ = static_cast<char*>(mapped);
  std::memcpy(data_, &header, sizeof(header));
}

GraphWriter::~GraphWriter() {
  if (data_ == nullptr) return;
  ::munmap(data_, size_);
  ::unlink(temporary_.c_str());
}

namespace {
template <class T>
std::span<T> writable(char* data, Column which) {
  Header header;
  std::memcpy(&header, data, sizeof(header));
  const Section& section = header.sections[which];
  return {reinterpret_cast<T*>(data + section.place), section.bytes / sizeof(T)};
}
}  // namespace

std::span<std::uint64_t> GraphWriter::offsets() {
  return writable<std::uint64_t>(data_, kOffsets);
}
std::span<std::uint32_t> GraphWriter::narrow_neighbours() {
  PL_CHECK(!layout_.wide);
  return writable<std::uint32_t>(data_, kNeighbours);
}
std::span<std::uint64_t> GraphWriter::wide_neighbours() {
  PL_CHECK(layout_.wide);
  return writable<std::uint64_t>(data_, kNeighbours);
}
std::span<float> GraphWriter::weights() {
  return writable<float>(data_, kWeights);
}
std::span<std::int64_t> GraphWriter::times() {
  return writable<std::int64_t>(data_, kTimes);
}
std::span<std::uint64_t> GraphWriter::edge_ids() {
  return writable<std::uint64_t>(data_, kEdgeIds);
}

void GraphWriter::finish(bool checksums) {
  Header header;
  std::memcpy(&header, data_, sizeof(header));
  for (Section& section : header.sections) {
    if (!checksums) continue;
    section.checksum = column_checksum({data_ + section.place, section.bytes});
    section.checked = 1;
  }
  header.checksum = header_checksum(header);
  std::memcpy(data_, &header, sizeof(header));
  if (::msync(data_, size_, MS_SYNC) != 0) throw_system(path_, "write", errno);
  ::munmap(data_, size_);
  data_ = nullptr;
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) throw_system(path_, "rename the written file to", errno);
}

void write_graph(const fs::path& path, const Graph& graph) {
  graph.visit([&](const auto& rows) {
    GraphWriter writer(path, {rows.rows(), graph.columns(), rows.edges(), graph.wide(), !rows.weights.empty(),
                              !rows.times.empty(), !rows.edge_ids.empty()});
    std::copy(rows.offsets.begin(), rows.offsets.end(), writer.offsets().begin());
    if constexpr (sizeof(rows.neighbours[0]) == 8)
      std::copy(rows.neighbours.begin(), rows.neighbours.end(), writer.wide_neighbours().begin());
    else
      std::copy(rows.neighbours.begin(), rows.neighbours.end(), writer.narrow_neighbours().begin());
    std::copy(rows.weights.begin(), rows.weights.end(), writer.weights().begin());
    std::copy(rows.times.begin(), rows.times.end(), writer.times().begin());
    std::copy(rows.edge_ids.begin(), rows.edge_ids.end(), writer.edge_ids().begin());
    writer.finish();
  });
}

Graph open_graph(const fs::path& path, Check check) {
  auto file = std::make_unique<base::MappedFile>(path);
  const std::string_view text = file->text();
  const Header header = read_header(path, text, text.size());
  if (column<std::uint64_t>(text, header, kOffsets).back() != header.edges)
    throw_bad(path, fmt::format("offsets do not end at the number of edges {}; import the graph again", header.edges));
  for (std::size_t c = 0; c < kColumns && check == Check::kAll; ++c) {
    const Section& section = header.sections[c];
    if (section.checked != 0 && column_checksum({text.data() + section.place, section.bytes}) != section.checksum)
      throw_bad(path,
                fmt::format("column {} is damaged (its checksum differs); import the graph again", kColumnNames[c]));
  }
  Graph graph = header.node_bytes == 8 ? map_rows<std::uint64_t>(std::move(file), header)
                                       : map_rows<std::uint32_t>(std::move(file), header);
  if (check == Check::kAll) validate(graph, path.string());
  return graph;
}

GraphReader::GraphReader(const fs::path& path) : path_(path), file_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
  if (file_ < 0) throw_bad(path, fmt::format("cannot open: {}", std::strerror(errno)));
  std::string text(kPage, '\0');
  try {
    const std::uint64_t size = fs::file_size(path);
    text.resize(std::min<std::uint64_t>(kPage, size));
    read_at(text.data(), text.size(), 0);
    const Header header = read_header(path, text, size);
    if (header.node_bytes != 4) throw_bad(path, "has 64-bit node ids; this reader takes 32-bit ones");
    rows_ = header.rows;
    columns_ = header.columns;
    edges_ = header.edges;
    offsets_place_ = header.sections[kOffsets].place;
    neighbours_place_ = header.sections[kNeighbours].place;
  } catch (...) {
    ::close(file_);
    throw;
  }
}

GraphReader::~GraphReader() {
  ::close(file_);
}

void GraphReader::read_at(void* to, std::uint64_t bytes, std::uint64_t place) {
  auto* at = static_cast<char*>(to);
  while (bytes > 0) {
    const ssize_t got = ::pread(file_, at, bytes, static_cast<off_t>(place));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) throw_system(path_, "read", got == 0 ? EIO : errno);
    at += got;
    place += static_cast<std::uint64_t>(got);
    bytes -= static_cast<std::uint64_t>(got);
  }
}

void GraphReader::for_each_row(std::size_t buffer_bytes,
                               const std::function<void(std::uint64_t, std::span<const std::uint32_t>)>& visit) {
  std::vector<std::uint64_t> offsets;
  std::vector<std::uint32_t> neighbours;
  const std::uint64_t rows_at_once = std::max<std::uint64_t>(1, buffer_bytes / 8 - 1);
  const std::uint64_t edges_at_once = std::max<std::uint64_t>(1, buffer_bytes / 4);
  for (std::uint64_t first = 0; first < rows_; first += rows_at_once) {
    const std::uint64_t count = std::min(rows_at_once, rows_ - first);
    offsets.resize(count + 1);
    read_at(offsets.data(), (count + 1) * 8, offsets_place_ + first * 8);
    for (std::uint64_t i = 0; i < count; ++i)
      if (offsets[i] > offsets[i + 1] || offsets[i + 1] > edges_)
        throw_bad(path_, fmt::format("row {}: offsets do not ascend; import the graph again", first + i));
    std::uint64_t begin = 0;
    while (begin < count) {
      std::uint64_t end = begin + 1;
      while (end < count && offsets[end + 1] - offsets[begin] <= edges_at_once) ++end;
      neighbours.resize(offsets[end] - offsets[begin]);
      read_at(neighbours.data(), neighbours.size() * 4, neighbours_place_ + offsets[begin] * 4);
      for (const std::uint32_t u : neighbours)
        if (u >= columns_)
          throw_bad(path_, fmt::format("rows {} to {}: neighbour {} is not below {}; import the graph again",
                                       first + begin, first + end, u, columns_));
      for (; begin < end; ++begin) {
        const std::uint64_t from = offsets[begin] - (offsets[end] - neighbours.size());
        visit(first + begin,
              std::span<const std::uint32_t>(neighbours).subspan(from, offsets[begin + 1] - offsets[begin]));
      }
    }
  }
}

bool is_graph_file(const fs::path& path) {
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored) || fs::file_size(path, ignored) < kPage) return false;
  const base::MappedFile file(path);
  return std::memcmp(file.text().data(), kMagic.data(), kMagic.size()) == 0;
}

}  // namespace paceline::gnn
