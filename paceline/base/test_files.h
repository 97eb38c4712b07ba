#pragma once
// Helpers of the tests of all rooms: a folder that goes away, and files in the formats that people send.
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "paceline/base/error.h"

namespace paceline::base::test {

/// A new empty folder, removed with all in it at the end.
class TempFolder {
 public:
  TempFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "paceline_test_XXXXXX").string();
    PL_CHECK(::mkdtemp(pattern.data()) != nullptr);
    path_ = pattern;
  }
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }

  /// Writes a file (and the folders above it) and gives its path.
  std::filesystem::path write(const std::string& name, std::string_view text) const {
    const std::filesystem::path file = path_ / name;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file, std::ios::binary).write(text.data(), static_cast<std::streamsize>(text.size()));
    return file;
  }

 private:
  std::filesystem::path path_;
};

/// The message of the Error that `action` throws; "" when it throws none.
template <class Action>
std::string error_of(Action action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

inline std::string gzip(std::string_view text, int level = 6) {
  z_stream stream{};
  constexpr int kGzip = 16;
  PL_CHECK(deflateInit2(&stream, level, Z_DEFLATED, MAX_WBITS + kGzip, 8, Z_DEFAULT_STRATEGY) == Z_OK);
  std::string out(deflateBound(&stream, text.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  PL_CHECK(deflate(&stream, Z_FINISH) == Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

inline std::string zstd(std::string_view text) {
  std::string out(ZSTD_compressBound(text.size()), '\0');
  out.resize(ZSTD_compress(out.data(), out.size(), text.data(), text.size(), 3));
  return out;
}

/// One member as POSIX.1-1988 (ustar) lays it out: header, contents, padding to 512.
inline std::string tar_member(std::string_view name, std::string_view text, char type = '0',
                              std::string_view prefix = {}) {
  std::array<char, 512> header{};
  const auto put = [&](std::size_t offset, std::string_view field) {
    field.copy(header.data() + offset, field.size());
  };
  const auto octal = [&](std::size_t offset, int digits, unsigned long long value) {
    std::array<char, 16> field;
    const int length = std::snprintf(field.data(), field.size(), "%0*llo", digits, value);
    put(offset, {field.data(), static_cast<std::size_t>(length)});
  };
  put(0, name.substr(0, 100));
  octal(100, 7, 0644);
  octal(124, 11, text.size());
  octal(136, 11, 0);
  header[156] = type;
  put(257, std::string_view("ustar\00000", 8));
  put(345, prefix);
  put(148, "        ");
  unsigned long long sum = 0;
  for (const char byte : header) sum += static_cast<unsigned char>(byte);
  octal(148, 6, sum);
  header[154] = '\0';
  std::string member(header.data(), header.size());
  member += text;
  member.resize((member.size() + 511) / 512 * 512, '\0');
  return member;
}

inline std::string tar_end() {
  return std::string(1024, '\0');
}

}  // namespace paceline::base::test
