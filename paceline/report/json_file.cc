#include "paceline/report/json_file.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "paceline/base/deflate.h"
#include "paceline/base/error.h"

namespace paceline::report {
namespace {

constexpr std::size_t kBuffer = 1 << 20;

/// A device or a pipe has no old contents to keep, and must not be replaced by a file.
bool may_replace(const std::string& path) {
  std::error_code unknown;
  const std::filesystem::file_status status = std::filesystem::status(path, unknown);
  return !std::filesystem::exists(status) || std::filesystem::is_regular_file(status) ||
         std::filesystem::is_directory(status);
}

}  // namespace

JsonFile::JsonFile(std::string path)
    : path_(std::move(path)),
      renames_(may_replace(path_)),
      written_(renames_ ? fmt::format("{}.tmp{}", path_, ::getpid()) : path_),
      file_(std::fopen(written_.c_str(), "wb")) {
  if (file_ == nullptr) fail();
  if (path_.ends_with(".gz")) deflater_ = std::make_unique<base::Deflater>();
  buffer_.reserve(kBuffer * 2);
}

JsonFile::~JsonFile() {
  if (file_ == nullptr) return;
  std::fclose(file_);
  discard();
}

void JsonFile::flush_if_full() {
  if (buffer_.size() >= kBuffer) flush();
}

void JsonFile::finish() {
  flush();
  if (deflater_) {
    std::string packed;
    deflater_->finish(packed);
    write(packed);
  }
  const bool closed = std::fclose(file_) == 0;
  file_ = nullptr;
  if (closed && (!renames_ || std::rename(written_.c_str(), path_.c_str()) == 0)) return;
  const int error = errno;
  discard();
  errno = error;
  fail();
}

void JsonFile::flush() {
  const std::string_view text(buffer_.data(), buffer_.size());
  if (deflater_) {
    std::string packed;
    deflater_->add(text, packed);
    write(packed);
  } else {
    write(text);
  }
  buffer_.clear();
}

void JsonFile::write(std::string_view bytes) {
  if (std::fwrite(bytes.data(), 1, bytes.size(), file_) != bytes.size()) fail();
}

void JsonFile::discard() const {
  if (renames_) std::remove(written_.c_str());
}

void JsonFile::fail() const {
  const int code = errno;
  const bool full = code == ENOSPC || code == EFBIG || code == EDQUOT || code == EIO;
  throw Error(full ? ErrorKind::kSystem : ErrorKind::kBadInput, path_,
              fmt::format("cannot write: {}; {}", std::strerror(code),
                          full ? "free some space or write elsewhere" : "check the path and its permissions"));
}

void append_escaped(fmt::appender to, std::string_view text) {
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      fmt::format_to(to, "\\{}", c);
    } else if (byte < 0x20) {
      fmt::format_to(to, "\\u{:04x}", byte);
    } else {
      *to++ = c;
    }
  }
}

std::size_t track_for(std::vector<std::vector<std::int64_t>>& tracks, std::int64_t begin, std::int64_t end) {
  for (std::size_t track = 0;; ++track) {
    if (track == tracks.size()) tracks.emplace_back();
    auto& open = tracks[track];
    while (!open.empty() && open.back() <= begin) open.pop_back();
    if (!open.empty() && open.back() < end) continue;
    open.push_back(end);
    return track;
  }
}

}  // namespace paceline::report
