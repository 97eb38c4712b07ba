#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

#include "paceline/base/file.h"

namespace paceline::gnn {

/// Cuts a byte stream into lines without their ends (\n or \r\n); a line longer than 1 MiB is dropped and counted.
class LineReader {
 public:
  explicit LineReader(base::ByteSource& source) : source_(source), buffer_(kBuffer) {}

  /// The next line, valid until the next call.
  bool next(std::string_view& line);
  std::uint64_t number() const { return number_; }
  std::uint64_t overlong() const { return overlong_; }

 private:
  static constexpr std::size_t kBuffer = std::size_t{1} << 20;
  bool refill();

  base::ByteSource& source_;
  std::vector<char> buffer_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  bool ended_ = false;
  std::uint64_t number_ = 0;
  std::uint64_t overlong_ = 0;
};

/// Fields between separators, blanks around them removed; runs of spaces count as one separator when it is ' '.
void split_fields(std::string_view line, char separator, std::vector<std::string_view>& fields);

}  // namespace paceline::gnn
