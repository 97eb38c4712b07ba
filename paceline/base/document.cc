// for_each_document: files, compressed streams and archives, recognised by their first bytes.
#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>

#include "paceline/base/error.h"
#include "paceline/base/file.h"

namespace paceline::base {
namespace fs = std::filesystem;
namespace {

constexpr std::size_t kBuffer = 256 * 1024;
constexpr std::size_t kTarBlock = 512;

class FileSource final : public ByteSource {
 public:
  FileSource(const fs::path& path, const std::function<void(std::int64_t)>& on_read)
      : fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)), on_read_(on_read) {
    if (fd_ < 0) throw Error(ErrorKind::kBadInput, path.string(), fmt::format("cannot open: {}", std::strerror(errno)));
    ::posix_fadvise(fd_, 0, 0, POSIX_FADV_SEQUENTIAL);
  }
  ~FileSource() override { ::close(fd_); }
  FileSource(const FileSource&) = delete;
  FileSource& operator=(const FileSource&) = delete;

  std::size_t read(std::span<char> to) override {
    ssize_t count = 0;
    do count = ::read(fd_, to.data(), to.size());
    while (count < 0 && errno == EINTR);
    if (count < 0) {
      damage_ = fmt::format("cannot read on: {}", std::strerror(errno));
      return 0;
    }
    if (on_read_) on_read_(count);
    return static_cast<std::size_t>(count);
  }

 private:
  int fd_;
  const std::function<void(std::int64_t)>& on_read_;
};

/// A source whose next bytes can be looked at before they are read.
class PeekSource final : public ByteSource {
 public:
  explicit PeekSource(ByteSource& inner) : inner_(inner) {}

  std::string_view peek(std::size_t count) {
    while (ahead_.size() - at_ < count) {
      std::array<char, kTarBlock> piece;
      const std::size_t got = inner_.read(piece);
      if (got == 0) break;
      ahead_.append(piece.data(), got);
    }
    return std::string_view(ahead_).substr(at_, count);
  }

  std::size_t read(std::span<char> to) override {
    if (at_ < ahead_.size()) {
      const std::size_t count = std::min(to.size(), ahead_.size() - at_);
      std::memcpy(to.data(), ahead_.data() + at_, count);
      at_ += count;
      return count;
    }
    const std::size_t count = inner_.read(to);
    if (count == 0) damage_ = inner_.damage();
    return count;
  }

 private:
  ByteSource& inner_;
  std::string ahead_;
  std::size_t at_ = 0;
};

class GzipSource final : public ByteSource {
 public:
  explicit GzipSource(ByteSource& inner) : inner_(inner) {
    constexpr int kGzipOnly = 16;
    PL_CHECK(inflateInit2(&stream_, MAX_WBITS + kGzipOnly) == Z_OK);
  }
  ~GzipSource() override { inflateEnd(&stream_); }
  GzipSource(const GzipSource&) = delete;
  GzipSource& operator=(const GzipSource&) = delete;

  std::size_t read(std::span<char> to) override {
    if (finished_) return 0;
    stream_.next_out = reinterpret_cast<Bytef*>(to.data());
    stream_.avail_out = static_cast<uInt>(std::min<std::size_t>(to.size(), 1u << 30));
    const uInt wanted = stream_.avail_out;
    while (stream_.avail_out == wanted) {
      if (stream_.avail_in == 0) refill();
      if (stream_.avail_in == 0) {
        if (!between_members_) damage_ = fmt::format("ends inside the gzip data, after byte {}", taken_);
        if (inner_.damage()) damage_ = inner_.damage();
        finished_ = true;
        break;
      }
      if (between_members_ && !start_member()) break;
      const int code = inflate(&stream_, Z_NO_FLUSH);
      if (code == Z_STREAM_END) {
        between_members_ = true;
      } else if (code != Z_OK && code != Z_BUF_ERROR) {
        damage_ = fmt::format("gzip data is damaged near byte {} ({})", taken_ - stream_.avail_in,
                              stream_.msg != nullptr ? stream_.msg : "unreadable");
        finished_ = true;
        break;
      }
    }
    return wanted - stream_.avail_out;
  }

 private:
  void refill() {
    const std::size_t count = inner_.read(buffer_);
    stream_.next_in = reinterpret_cast<Bytef*>(buffer_.data());
    stream_.avail_in = static_cast<uInt>(count);
    taken_ += static_cast<std::int64_t>(count);
  }

  /// Concatenated members go on; zero padding and foreign bytes after the last member do not count as damage of it.
  bool start_member() {
    if (*stream_.next_in != 0x1F) {
      finished_ = true;
      return false;
    }
    inflateReset(&stream_);
    between_members_ = false;
    return true;
  }

  ByteSource& inner_;
  z_stream stream_{};
  std::vector<char> buffer_ = std::vector<char>(kBuffer);
  std::int64_t taken_ = 0;
  bool between_members_ = false;
  bool finished_ = false;
};

class ZstdSource final : public ByteSource {
 public:
  explicit ZstdSource(ByteSource& inner) : inner_(inner), stream_(ZSTD_createDStream()) {
    PL_CHECK(stream_ != nullptr);
  }
  ~ZstdSource() override { ZSTD_freeDStream(stream_); }
  ZstdSource(const ZstdSource&) = delete;
  ZstdSource& operator=(const ZstdSource&) = delete;

  std::size_t read(std::span<char> to) override {
    ZSTD_outBuffer out{to.data(), to.size(), 0};
    while (out.pos == 0 && !finished_) {
      if (in_.pos == in_.size && !flushing_) {
        in_ = {buffer_.data(), inner_.read(buffer_), 0};
        taken_ += static_cast<std::int64_t>(in_.size);
        if (in_.size == 0) {
          if (!frame_done_) damage_ = fmt::format("ends inside the zstd data, after byte {}", taken_);
          if (inner_.damage()) damage_ = inner_.damage();
          finished_ = true;
          break;
        }
      }
      const std::size_t code = ZSTD_decompressStream(stream_, &out, &in_);
      if (ZSTD_isError(code)) {
        damage_ = fmt::format("zstd data is damaged near byte {} ({})",
                              taken_ - static_cast<std::int64_t>(in_.size - in_.pos), ZSTD_getErrorName(code));
        finished_ = true;
      } else {
        frame_done_ = code == 0;
        flushing_ = out.pos == out.size;
      }
    }
    return out.pos;
  }

 private:
  ByteSource& inner_;
  ZSTD_DStream* stream_;
  std::vector<char> buffer_ = std::vector<char>(kBuffer);
  ZSTD_inBuffer in_{nullptr, 0, 0};
  std::int64_t taken_ = 0;
  bool frame_done_ = false;
  bool flushing_ = false;  // the output was full: more may come without more input
  bool finished_ = false;
};

/// The bytes of one archive member.
class MemberSource final : public ByteSource {
 public:
  MemberSource(ByteSource& inner, std::uint64_t size) : inner_(inner), left_(size) {}

  std::size_t read(std::span<char> to) override {
    if (left_ == 0) return 0;
    const std::size_t wanted = static_cast<std::size_t>(std::min<std::uint64_t>(to.size(), left_));
    const std::size_t count = inner_.read(to.subspan(0, wanted));
    left_ -= count;
    if (count == 0) {
      damage_ = inner_.damage() ? *inner_.damage() : fmt::format("the archive ends {} bytes before its member", left_);
      left_ = 0;
    }
    return count;
  }

 private:
  ByteSource& inner_;
  std::uint64_t left_;
};

struct TarHeader {
  std::string name;
  std::uint64_t size = 0;
  char type = '0';
};

/// One 512-byte header (POSIX ustar, GNU long names come as members of their own); nothing when the sum is wrong.
std::optional<TarHeader> parse_tar_header(std::string_view block) {
  if (block.size() < kTarBlock) return std::nullopt;
  const auto number = [&](std::size_t offset, std::size_t length) -> std::uint64_t {
    std::uint64_t value = 0;
    if (static_cast<unsigned char>(block[offset]) == 0x80) {  // GNU base-256 for sizes of 8 GiB and more
      for (std::size_t i = 1; i < length; ++i) value = value << 8 | static_cast<unsigned char>(block[offset + i]);
      return value;
    }
    std::size_t begin = offset;
    while (begin < offset + length && block[begin] == ' ') ++begin;
    std::from_chars(block.data() + begin, block.data() + offset + length, value, 8);
    return value;
  };
  constexpr std::size_t kSumOffset = 148, kSumLength = 8;
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < kTarBlock; ++i) {
    const bool in_sum = i >= kSumOffset && i < kSumOffset + kSumLength;
    sum += in_sum ? static_cast<unsigned char>(' ') : static_cast<unsigned char>(block[i]);
  }
  if (sum != number(kSumOffset, kSumLength) || block[0] == '\0') return std::nullopt;
  const auto text = [&](std::size_t offset, std::size_t length) {
    const std::string_view field = block.substr(offset, length);
    return std::string(field.substr(0, field.find('\0')));
  };
  TarHeader header{text(0, 100), number(124, 12), block[156]};
  const std::string prefix = block.substr(257, 5) == "ustar" ? text(345, 155) : "";
  if (!prefix.empty() && block[263] == '0') header.name = prefix + "/" + header.name;
  return header;
}

void visit_source(const std::string& name, ByteSource& raw, const DocumentVisitor& visit, int depth);

void skip(ByteSource& source, std::uint64_t count) {
  std::vector<char> waste(kBuffer);
  MemberSource rest(source, count);
  while (rest.read(waste) > 0) {
  }
}

/// The path in a pax extended header: records of the form "<length> <key>=<value>\n".
std::optional<std::string> pax_path(std::string_view records) {
  while (!records.empty()) {
    std::size_t length = 0;
    const auto [end, code] = std::from_chars(records.data(), records.data() + records.size(), length);
    if (code != std::errc{} || length == 0 || length > records.size()) break;
    std::string_view record = records.substr(0, length - 1);
    record.remove_prefix(std::min(record.size(), static_cast<std::size_t>(end - records.data()) + 1));
    if (record.starts_with("path=")) return std::string(record.substr(5));
    records.remove_prefix(length);
  }
  return std::nullopt;
}

void visit_tar(const std::string& archive, PeekSource& source, const DocumentVisitor& visit, int depth) {
  std::string long_name;
  while (const std::optional<TarHeader> header = parse_tar_header(source.peek(kTarBlock))) {
    skip(source, kTarBlock);
    const std::uint64_t padding = (kTarBlock - header->size % kTarBlock) % kTarBlock;
    MemberSource member(source, header->size);
    constexpr std::uint64_t kLongestName = 64 * 1024;
    if ((header->type == 'L' || header->type == 'x') && header->size <= kLongestName) {
      const std::string text = read_all(member);
      if (header->type == 'L') long_name = text.substr(0, text.find('\0'));
      if (header->type == 'x') long_name = pax_path(text).value_or(long_name);
    } else if (header->type == '0' || header->type == '\0') {
      const std::string name = long_name.empty() ? header->name : long_name;
      const bool hidden = fs::path(name).filename().string().starts_with(".");  // also AppleDouble "._" files
      if (!hidden) visit_source(archive + "/" + name, member, visit, depth + 1);
      long_name.clear();
    }
    std::vector<char> waste(kBuffer);
    while (member.read(waste) > 0) {
    }
    skip(source, padding);
  }
}

void visit_source(const std::string& name, ByteSource& raw, const DocumentVisitor& visit, int depth) {
  constexpr int kDeepest = 4;  // .tar.gz of .gz is 3; more is a bomb
  PeekSource source(raw);
  const std::string_view magic = source.peek(4);
  if (depth < kDeepest && magic.starts_with("\x1F\x8B")) {
    GzipSource inflated(source);
    visit_source(name, inflated, visit, depth + 1);
  } else if (depth < kDeepest && magic == "\x28\xB5\x2F\xFD") {
    ZstdSource inflated(source);
    visit_source(name, inflated, visit, depth + 1);
  } else if (depth < kDeepest && parse_tar_header(source.peek(kTarBlock))) {
    visit_tar(name, source, visit, depth);
  } else {
    visit(name, source);
  }
}

}  // namespace

void for_each_document(const fs::path& path, const DocumentVisitor& visit,
                       const std::function<void(std::int64_t)>& on_read) {
  if (fs::is_directory(path)) throw Error(ErrorKind::kBadInput, path.string(), "is a directory, expected a file");
  FileSource file(path, on_read);
  PeekSource source(file);
  if (source.peek(1).empty()) throw Error(ErrorKind::kBadInput, path.string(), "the file is empty");
  visit_source(path.string(), source, visit, 0);
}

}  // namespace paceline::base
