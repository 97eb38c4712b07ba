// for_each_document: files, compressed streams and archives, recognised by their first bytes.
#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>

#include "paceline/base/error.h"
#include "paceline/base/file.h"
#include "paceline/base/inflate.h"

namespace paceline::base {
namespace fs = std::filesystem;
namespace {

constexpr std::size_t kTarBlock = 512;

class FileSource final : public ByteSource {
 public:
  FileSource(const fs::path& path, const std::function<void(std::int64_t)>& on_read)
      : fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)), on_read_(on_read) {
    if (fd_ < 0)
      throw Error(ErrorKind::kBadInput, path.string(),
                  fmt::format("cannot open: {}; check the path and its permissions", std::strerror(errno)));
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
      damage_ = errno == EISDIR ? "is a directory, expected a file"
                                : fmt::format("cannot read on after byte {}: {}", taken_, std::strerror(errno));
      return 0;
    }
    taken_ += count;
    if (on_read_) on_read_(count);
    return static_cast<std::size_t>(count);
  }

 private:
  int fd_;
  const std::function<void(std::int64_t)>& on_read_;
  std::int64_t taken_ = 0;
};

/// A source whose next bytes can be looked at before they are read.
class PeekSource final : public ByteSource {
 public:
  explicit PeekSource(ByteSource& inner) : inner_(inner) {}

  std::string_view peek(std::size_t count) {
    ahead_.erase(0, at_);
    at_ = 0;
    while (ahead_.size() < count) {
      std::array<char, kTarBlock> piece;
      const std::size_t got = inner_.read(piece);
      if (got == 0) break;
      ahead_.append(piece.data(), got);
    }
    return std::string_view(ahead_).substr(0, count);
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

/// No bytes, only the reason why there are none.
class DamagedSource final : public ByteSource {
 public:
  explicit DamagedSource(std::string why) { damage_ = std::move(why); }
  std::size_t read(std::span<char>) override { return 0; }
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
      damage_ = inner_.damage() ? *inner_.damage()
                                : fmt::format("the archive ends inside this member, {} bytes before its end", left_);
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

/// The value of `key` in a pax extended header: records of the form "<length> <key>=<value>\n".
std::optional<std::string> pax_value(std::string_view records, std::string_view key) {
  std::optional<std::string> value;
  while (!records.empty()) {
    std::size_t length = 0;
    const auto [end, code] = std::from_chars(records.data(), records.data() + records.size(), length);
    if (code != std::errc{} || length == 0 || length > records.size()) break;
    std::string_view record = records.substr(0, length - 1);
    record.remove_prefix(std::min(record.size(), static_cast<std::size_t>(end - records.data()) + 1));
    if (record.starts_with(key) && record.substr(key.size()).starts_with("=")) value = record.substr(key.size() + 1);
    records.remove_prefix(length);
  }
  return value;
}

void visit_source(const std::string& name, ByteSource& raw, const DocumentVisitor& visit, int depth);

/// Walks through one archive. A header that cannot be read costs the members up to the next good one.
class TarWalk {
 public:
  TarWalk(const std::string& archive, PeekSource& source, const DocumentVisitor& visit, int depth)
      : archive_(archive), source_(source), visit_(visit), depth_(depth) {}

  void run() {
    bool ended = false;
    for (std::string_view block; !(block = source_.peek(kTarBlock)).empty();) {
      if (const std::optional<TarHeader> header = parse_tar_header(block)) {
        read_member(*header);
        continue;
      }
      const bool blank = block.find_first_not_of('\0') == std::string_view::npos;
      ended = ended || blank;
      if (!blank && !lost_from_) lost_from_ = position_;
      skip(block.size());
    }
    end_of_lost();
    if (source_.read(waste_) == 0 && source_.damage()) report(*source_.damage());
    if (!ended) report("the archive ends without its end mark; members may be missing");
  }

 private:
  void read_member(TarHeader header) {
    end_of_lost();
    skip(kTarBlock);
    constexpr std::uint64_t kLongestNote = 64 * 1024;
    const bool note = header.type == 'L' || header.type == 'K' || header.type == 'x' || header.type == 'g';
    if (!note && size_) header.size = *size_;
    const std::uint64_t padding = (kTarBlock - header.size % kTarBlock) % kTarBlock;
    MemberSource member(source_, header.size);
    if (note && header.size <= kLongestNote) {
      take_note(header.type, read_all(member));
    } else if (header.type == '0' || header.type == '\0' || header.type == '7') {
      const std::string name = name_.empty() ? header.name : name_;
      const bool hidden = fs::path(name).filename().string().starts_with(".");  // also AppleDouble "._" files
      if (!hidden) visit_source(archive_ + "/" + name, member, visit_, depth_ + 1);
      reported_ = reported_ || member.damage();
    } else if (header.type == 'S') {
      report(fmt::format("member {} is stored sparse, which is not read; pack it plainly", header.name), true);
    }
    if (!note) {
      name_.clear();
      size_.reset();
    }
    while (member.read(waste_) > 0) {
    }
    if (member.damage()) report(*member.damage());
    position_ += header.size;
    skip(padding);
  }

  /// Notes speak of the member behind them: 'L' is GNU's long name, 'x' the attributes of pax.
  void take_note(char type, const std::string& text) {
    if (type == 'L') name_ = text.substr(0, text.find('\0'));
    if (type != 'x') return;
    name_ = pax_value(text, "path").value_or(name_);
    const std::string size = pax_value(text, "size").value_or("");  // members of 8 GiB and more
    std::uint64_t bytes = 0;
    if (std::from_chars(size.data(), size.data() + size.size(), bytes).ec == std::errc{}) size_ = bytes;
  }

  void skip(std::uint64_t count) {
    MemberSource rest(source_, count);
    while (rest.read(waste_) > 0) {
    }
    position_ += count;
  }

  void end_of_lost() {
    if (!lost_from_) return;
    report(
        fmt::format("bytes {} to {} of the archive are no members; what began there is lost", *lost_from_, position_),
        true);
    lost_from_.reset();
  }

  /// A cut is told once: of the member that it hit, else of the archive.
  void report(const std::string& what, bool in_the_middle = false) {
    if (reported_ && !in_the_middle) return;
    reported_ = reported_ || !in_the_middle;
    DamagedSource damaged(what);
    visit_(archive_, damaged);
  }

  const std::string& archive_;
  PeekSource& source_;
  const DocumentVisitor& visit_;
  int depth_;
  std::vector<char> waste_ = std::vector<char>(64 * 1024);
  std::string name_;                   // of the next member, from a note before it
  std::optional<std::uint64_t> size_;  // likewise
  std::uint64_t position_ = 0;
  std::optional<std::uint64_t> lost_from_;
  bool reported_ = false;
};

void visit_source(const std::string& name, ByteSource& raw, const DocumentVisitor& visit, int depth) {
  constexpr int kDeepest = 4;  // .tar.gz of .gz is 3; more is a bomb
  PeekSource source(raw);
  const std::string_view magic = source.peek(4);
  // A zstd stream may begin with a skippable frame (pzstd writes one).
  const bool skippable = magic.size() == 4 && (magic[0] & 0xF0) == 0x50 && magic.substr(1) == "\x2A\x4D\x18";
  if (depth < kDeepest && magic.starts_with("\x1F\x8B")) {
    visit_source(name, *gzip_source(source), visit, depth + 1);
  } else if (depth < kDeepest && (magic == "\x28\xB5\x2F\xFD" || skippable)) {
    visit_source(name, *zstd_source(source), visit, depth + 1);
  } else if (depth < kDeepest && parse_tar_header(source.peek(kTarBlock))) {
    TarWalk(name, source, visit, depth).run();
  } else {
    visit(name, source);
  }
}

}  // namespace

void for_each_document(const fs::path& path, const DocumentVisitor& visit,
                       const std::function<void(std::int64_t)>& on_read) {
  FileSource file(path, on_read);
  PeekSource source(file);
  if (source.peek(1).empty()) {
    std::array<char, 1> none;
    if (source.read(none) == 0 && source.damage()) throw Error(ErrorKind::kBadInput, path.string(), *source.damage());
    throw Error(ErrorKind::kBadInput, path.string(), "the file is empty, expected a document; record it again");
  }
  visit_source(path.string(), source, visit, 0);
}

}  // namespace paceline::base
