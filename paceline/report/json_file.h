#pragma once
#include <fmt/format.h>

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace paceline::base {
class Deflater;
}

namespace paceline::report {

/// A large JSON file, written piece by piece, packed when its name ends in ".gz". It appears only when complete;
/// devices and pipes are written to as they are. Throws Error(kSystem) when the disk is full, Error(kBadInput) when the
/// path cannot be written.
class JsonFile {
 public:
  explicit JsonFile(std::string path);
  ~JsonFile();
  JsonFile(const JsonFile&) = delete;
  JsonFile& operator=(const JsonFile&) = delete;

  fmt::appender to() { return fmt::appender(buffer_); }
  void flush_if_full();
  void finish();

 private:
  void flush();
  void write(std::string_view bytes);
  void discard() const;
  [[noreturn]] void fail() const;

  std::string path_;
  bool renames_;
  std::string written_;
  std::FILE* file_;
  std::unique_ptr<base::Deflater> deflater_;
  fmt::memory_buffer buffer_;
};

/// The text between the quotes of a JSON string.
void append_escaped(fmt::appender to, std::string_view text);

/// The first of a lane's tracks on which a slice nests, so that slices of one track never overlap otherwise. Slices
/// come by start, the longer first; `tracks` holds the ends of the open slices of each track.
std::size_t track_for(std::vector<std::vector<std::int64_t>>& tracks, std::int64_t begin, std::int64_t end);

}  // namespace paceline::report
