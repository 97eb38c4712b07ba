#include "paceline/gnn/feature_file.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <liburing.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "paceline/base/error.h"
#include "paceline/gnn/graph_file.h"
#include "paceline/gnn/npy.h"

namespace paceline::gnn {
namespace fs = std::filesystem;
namespace {

constexpr std::array<char, 8> kMagic{'P', 'L', 'F', 'E', 'A', 'T', 'S', '\n'};
constexpr std::uint32_t kVersion = 1;
constexpr std::uint64_t kPage = 4096;
constexpr std::uint64_t kSector = 512;
constexpr std::uint64_t kLongestRead = 16384;

struct Header {
  std::array<char, 8> magic = kMagic;
  std::uint32_t version = kVersion;
  RowCodec codec = RowCodec::kFloat32;
  std::uint32_t columns = 0;
  std::uint32_t reserved = 0;
  std::uint64_t rows = 0;
  std::uint64_t checksum = 0;  // of the bytes before it
};

std::uint64_t header_checksum(const Header& header) {
  return checksum({reinterpret_cast<const char*>(&header), offsetof(Header, checksum)});
}

[[noreturn]] void throw_system(const fs::path& path, const std::string& action, int code) {
  throw Error(ErrorKind::kSystem, path.string(), fmt::format("cannot {}: {}", action, std::strerror(code)));
}

[[noreturn]] void throw_bad(const fs::path& path, const std::string& what) {
  throw Error(ErrorKind::kBadInput, path.string(), what);
}

}  // namespace

std::uint32_t row_bytes(RowCodec codec, std::uint32_t columns) {
  switch (codec) {
    case RowCodec::kFloat32:
      return 4 * columns;
    case RowCodec::kFloat16:
      return 2 * columns;
    case RowCodec::kInt8:
      return 4 + columns;
  }
  return 0;
}

void encode_row(RowCodec codec, std::span<const float> row, char* to) {
  if (codec == RowCodec::kFloat32) {
    std::memcpy(to, row.data(), row.size_bytes());
  } else if (codec == RowCodec::kFloat16) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      const std::uint16_t half = float_to_half(row[i]);
      std::memcpy(to + 2 * i, &half, 2);
    }
  } else {
    float largest = 0;
    for (const float value : row) largest = std::max(largest, std::fabs(value));
    const float scale = largest / 127;
    std::memcpy(to, &scale, 4);
    for (std::size_t i = 0; i < row.size(); ++i)
      to[4 + i] = static_cast<char>(scale == 0 ? 0 : std::lround(row[i] / scale));
  }
}

void decode_row(RowCodec codec, const char* from, std::span<float> row) {
  if (codec == RowCodec::kFloat32) {
    std::memcpy(row.data(), from, row.size_bytes());
  } else if (codec == RowCodec::kFloat16) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      std::uint16_t half = 0;
      std::memcpy(&half, from + 2 * i, 2);
      row[i] = half_to_float(half);
    }
  } else {
    float scale = 0;
    std::memcpy(&scale, from, 4);
    for (std::size_t i = 0; i < row.size(); ++i)
      row[i] = scale * static_cast<float>(static_cast<signed char>(from[4 + i]));
  }
}

FeatureWriter::FeatureWriter(fs::path path, std::uint32_t columns, RowCodec codec)
    : path_(std::move(path)),
      temporary_(path_.string() + ".part"),
      columns_(columns),
      codec_(codec),
      buffer_(kPage, 0) {
  if (columns == 0) throw Error(ErrorKind::kUsage, path_.string(), "features need one column at least");
  file_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (file_ < 0) throw_system(path_, "write", errno);
}

FeatureWriter::~FeatureWriter() {
  if (file_ < 0) return;
  ::close(file_);
  ::unlink(temporary_.c_str());
}

void FeatureWriter::flush() {
  std::size_t done = 0;
  while (done < buffer_.size()) {
    const ssize_t wrote = ::write(file_, buffer_.data() + done, buffer_.size() - done);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) throw_system(path_, "write", errno);
    done += static_cast<std::size_t>(wrote);
  }
  buffer_.clear();
}

void FeatureWriter::add(std::span<const float> row) {
  if (row.size() != columns_)
    throw Error(ErrorKind::kUsage, path_.string(),
                fmt::format("row {} has {} columns, expected {}", rows_, row.size(), columns_));
  const std::size_t at = buffer_.size();
  buffer_.resize(at + row_bytes(codec_, columns_));
  encode_row(codec_, row, buffer_.data() + at);
  ++rows_;
  if (buffer_.size() >= (std::size_t{1} << 20)) flush();
}

void FeatureWriter::finish() {
  const std::uint64_t end = kPage + rows_ * row_bytes(codec_, columns_);
  buffer_.resize(buffer_.size() + (kPage - end % kPage) % kPage, 0);
  flush();
  Header header;
  header.codec = codec_;
  header.columns = columns_;
  header.rows = rows_;
  header.checksum = header_checksum(header);
  if (::pwrite(file_, &header, sizeof(header), 0) != static_cast<ssize_t>(sizeof(header)) || ::fsync(file_) != 0)
    throw_system(path_, "write", errno);
  ::close(std::exchange(file_, -1));
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) throw_system(path_, "rename the written file to", errno);
}

struct FeatureReader::Impl {
  /// Consecutive sectors that hold wanted rows [first, last) of the sorted list.
  struct Read {
    std::uint64_t place = 0;
    std::uint32_t bytes = 0;
    std::size_t first = 0;
    std::size_t last = 0;
  };

  Impl(fs::path file_path, unsigned queue_depth) : path_(std::move(file_path)), depth_(std::max(1u, queue_depth)) {
    file_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECT);
    direct_ = file_ >= 0;
    if (!direct_) file_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC);
    if (file_ < 0) throw_bad(path_, fmt::format("cannot open: {}", std::strerror(errno)));
    try {
      open();
    } catch (...) {
      close();
      throw;
    }
  }
  ~Impl() { close(); }

  void open() {
    // The longest row plus a sector on either side, or a coalesced run.
    buffer_each_ = kPage;
    allocate(1);
    const ssize_t got = ::pread(file_, buffers_, kPage, 0);
    Header header;
    if (got < static_cast<ssize_t>(sizeof(header)) || std::memcmp(buffers_, kMagic.data(), kMagic.size()) != 0)
      throw_bad(path_, "is not a Paceline feature file; make one with `paceline gnn import`");
    std::memcpy(&header, buffers_, sizeof(header));
    if (header.version > kVersion)
      throw_bad(path_,
                fmt::format("feature file version {}, but this Paceline reads up to {}", header.version, kVersion));
    if (header.checksum != header_checksum(header) || header.columns == 0 || header.codec > RowCodec::kInt8)
      throw_bad(path_, "the header is damaged; import the features again");
    header_ = header;
    row_bytes_ = row_bytes(header.codec, header.columns);
    struct stat status{};
    if (::fstat(file_, &status) != 0) throw_system(path_, "read", errno);
    const auto size = static_cast<std::uint64_t>(status.st_size);
    if (size < kPage || (size - kPage) / row_bytes_ < header.rows)
      throw_bad(path_, fmt::format("is cut short: {} rows of {} bytes do not fit {} bytes; copy or import it again",
                                   header.rows, row_bytes_, size));
    if (::io_uring_queue_init(depth_, &ring_, 0) == 0) uring_ = true;
    buffer_each_ = std::max(kLongestRead, (row_bytes_ + 2 * kSector + kPage - 1) / kPage * kPage);
    allocate(uring_ ? depth_ : 1);
  }

  void allocate(std::size_t count) {
    std::free(buffers_);
    buffers_ = static_cast<char*>(std::aligned_alloc(kPage, buffer_each_ * count));
    if (buffers_ == nullptr) throw_system(path_, "get memory for", ENOMEM);
  }

  void close() {
    if (uring_) ::io_uring_queue_exit(&ring_);
    if (file_ >= 0) ::close(file_);
    std::free(buffers_);
  }

  void read(std::span<const std::uint64_t> ids, std::span<float> out) {
    PL_CHECK(out.size() == ids.size() * header_.columns);
    wanted_.resize(ids.size());
    for (std::size_t i = 0; i < ids.size(); ++i) {
      if (ids[i] >= header_.rows)
        throw Error(ErrorKind::kUsage, path_.string(), fmt::format("row {} of {} is asked for", ids[i], header_.rows));
      wanted_[i] = {ids[i], i};
    }
    std::sort(wanted_.begin(), wanted_.end());
    plan();
    if (uring_)
      run_ring(out);
    else
      for (const Read& each : plan_) decode(each, read_plain(each), buffers_, out);
  }

  /// Joins wanted rows whose sectors touch or lie within one page of each other.
  void plan() {
    plan_.clear();
    for (std::size_t i = 0; i < wanted_.size(); ++i) {
      const std::uint64_t begin = (kPage + wanted_[i].first * row_bytes_) / kSector * kSector;
      const std::uint64_t end = (kPage + (wanted_[i].first + 1) * row_bytes_ + kSector - 1) / kSector * kSector;
      if (!plan_.empty()) {
        Read& last = plan_.back();
        if (begin <= last.place + last.bytes + kPage && end - last.place <= kLongestRead) {
          last.bytes = static_cast<std::uint32_t>(std::max(end, last.place + last.bytes) - last.place);
          last.last = i + 1;
          continue;
        }
      }
      plan_.push_back({begin, static_cast<std::uint32_t>(end - begin), i, i + 1});
    }
  }

  void decode(const Read& each, std::int64_t got, const char* bytes, std::span<float> out) const {
    if (got < 0)
      throw_system(path_, fmt::format("read {} bytes at {}", each.bytes, each.place), static_cast<int>(-got));
    const std::uint64_t needed = kPage + (wanted_[each.last - 1].first + 1) * row_bytes_ - each.place;
    if (static_cast<std::uint64_t>(got) < needed)
      throw Error(
          ErrorKind::kSystem, path_.string(),
          fmt::format("short read at {}: {} of {} bytes; was the file cut while in use?", each.place, got, needed));
    for (std::size_t i = each.first; i < each.last; ++i) {
      const char* const from = bytes + (kPage + wanted_[i].first * row_bytes_ - each.place);
      decode_row(header_.codec, from, out.subspan(wanted_[i].second * header_.columns, header_.columns));
    }
  }

  std::int64_t read_plain(const Read& each) {
    ++reads_;
    bytes_read_ += each.bytes;
    const ssize_t got = ::pread(file_, buffers_, each.bytes, static_cast<off_t>(each.place));
    return got < 0 ? -errno : got;
  }

  void run_ring(std::span<float> out) {
    std::vector<unsigned> free_buffers(depth_);
    for (unsigned i = 0; i < depth_; ++i) free_buffers[i] = i;
    std::vector<std::size_t> of_buffer(depth_);
    std::size_t next = 0;
    std::size_t under_way = 0;
    std::optional<Error> failure;
    while ((next < plan_.size() && !failure) || under_way > 0) {
      while (next < plan_.size() && !free_buffers.empty() && !failure) {
        io_uring_sqe* const entry = ::io_uring_get_sqe(&ring_);
        if (entry == nullptr) break;
        const unsigned buffer = free_buffers.back();
        free_buffers.pop_back();
        of_buffer[buffer] = next;
        const Read& each = plan_[next++];
        ::io_uring_prep_read(entry, file_, buffers_ + buffer * buffer_each_, each.bytes, each.place);
        ::io_uring_sqe_set_data(entry, reinterpret_cast<void*>(static_cast<std::uintptr_t>(buffer)));
        ++under_way;
        ++reads_;
        bytes_read_ += each.bytes;
      }
      const int submitted = ::io_uring_submit_and_wait(&ring_, 1);
      if (submitted < 0 && submitted != -EINTR && submitted != -EAGAIN && submitted != -EBUSY)
        PL_CHECK(false && "io_uring_submit_and_wait");
      io_uring_cqe* done[32];
      const unsigned count = ::io_uring_peek_batch_cqe(&ring_, done, 32);
      for (unsigned i = 0; i < count; ++i) {
        const auto buffer = static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(::io_uring_cqe_get_data(done[i])));
        const int result = done[i]->res;
        try {
          decode(plan_[of_buffer[buffer]], result, buffers_ + buffer * buffer_each_, out);
        } catch (const Error& error) {
          if (!failure) failure = error;  // reads under way still write to our buffers: end them first
        }
        free_buffers.push_back(buffer);
        --under_way;
      }
      ::io_uring_cq_advance(&ring_, count);
    }
    if (failure) throw *failure;
  }

  fs::path path_;
  unsigned depth_;
  int file_ = -1;
  bool direct_ = false;
  bool uring_ = false;
  io_uring ring_{};
  Header header_;
  std::uint64_t row_bytes_ = 0;
  std::uint64_t buffer_each_ = 0;
  char* buffers_ = nullptr;
  std::vector<std::pair<std::uint64_t, std::size_t>> wanted_;  // row, place in the request
  std::vector<Read> plan_;
  std::uint64_t reads_ = 0;
  std::uint64_t bytes_read_ = 0;
};

FeatureReader::FeatureReader(const fs::path& path, unsigned depth) : impl_(std::make_unique<Impl>(path, depth)) {}
FeatureReader::~FeatureReader() = default;
std::uint64_t FeatureReader::rows() const {
  return impl_->header_.rows;
}
std::uint32_t FeatureReader::columns() const {
  return impl_->header_.columns;
}
RowCodec FeatureReader::codec() const {
  return impl_->header_.codec;
}
std::string FeatureReader::method() const {
  if (!impl_->uring_) return "pread";
  return impl_->direct_ ? "io_uring O_DIRECT" : "io_uring";
}
std::uint64_t FeatureReader::buffer_bytes() const {
  return impl_->buffer_each_ * (impl_->uring_ ? impl_->depth_ : 1);
}
void FeatureReader::read(std::span<const std::uint64_t> ids, std::span<float> out) {
  impl_->read(ids, out);
}
std::uint64_t FeatureReader::reads() const {
  return impl_->reads_;
}
std::uint64_t FeatureReader::bytes_read() const {
  return impl_->bytes_read_;
}

}  // namespace paceline::gnn
