#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace paceline::gnn {

/// How a row of floats is stored.
enum class RowCodec : std::uint32_t {
  kFloat32 = 0,
  kFloat16 = 1,  // IEEE 754 binary16, ties to even
  kInt8 = 2      // a float scale, then round(value / scale) with scale = max |value| / 127
};
std::uint32_t row_bytes(RowCodec codec, std::uint32_t columns);
void encode_row(RowCodec codec, std::span<const float> row, char* to);
void decode_row(RowCodec codec, const char* from, std::span<float> row);

/// Writes a feature file row by row: a 4096-byte header with checksum, then the rows one after the other, unpadded, and
/// zeros up to a multiple of 4096. The file appears under its name in finish().
class FeatureWriter {
 public:
  FeatureWriter(std::filesystem::path path, std::uint32_t columns, RowCodec codec);
  ~FeatureWriter();
  FeatureWriter(const FeatureWriter&) = delete;
  FeatureWriter& operator=(const FeatureWriter&) = delete;
  /// Error(kSystem) when the disk is full.
  void add(std::span<const float> row);
  void finish();

 private:
  void flush();
  std::filesystem::path path_;
  std::filesystem::path temporary_;
  std::uint32_t columns_;
  RowCodec codec_;
  std::uint64_t rows_ = 0;
  std::vector<char> buffer_;
  int file_ = -1;
};

/// Reads rows of a feature file past the page cache: io_uring with O_DIRECT, rows sorted by place and neighbouring
/// blocks read together, `depth` reads under way. Memory: depth times the longest read (16 KiB or one row). Falls back
/// to plain reads where the file system refuses O_DIRECT or the kernel io_uring, and says so in method(). One per
/// thread.
class FeatureReader {
 public:
  /// Error(kBadInput) when the file is not a feature file, is damaged or cut short.
  explicit FeatureReader(const std::filesystem::path& path, unsigned depth = 64);
  ~FeatureReader();
  FeatureReader(const FeatureReader&) = delete;
  FeatureReader& operator=(const FeatureReader&) = delete;

  std::uint64_t rows() const;
  std::uint32_t columns() const;
  RowCodec codec() const;
  std::string method() const;  // "io_uring O_DIRECT", "io_uring", "pread"
  std::uint64_t buffer_bytes() const;

  /// Row ids[i] goes to out[i * columns()]; ids may repeat. Error(kUsage) for an id that is no row, Error(kSystem) for
  /// a failed or short read, after all reads under way have ended.
  void read(std::span<const std::uint64_t> ids, std::span<float> out);
  /// Counters since the start.
  std::uint64_t reads() const;
  std::uint64_t bytes_read() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace paceline::gnn
