#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace paceline::gnn {

/// One array of numpy's format (versions 1 to 3), still as bytes. `data` points into what was parsed.
struct NpyArray {
  char kind = 'i';  // i, u, f or b
  int bytes = 8;    // of one element
  std::vector<std::uint64_t> shape;
  bool fortran_order = false;
  std::string_view data;
  std::string where;

  std::uint64_t size() const;
};

/// Throws Error(kBadInput) for what is not an array, is cut short, big-endian, or holds objects.
NpyArray parse_npy(std::string_view bytes, const std::string& where);
/// Elements as integers; Error(kBadInput) for floats with decimals, negative or too large values.
std::vector<std::uint64_t> npy_ids(const NpyArray& array);
std::vector<std::int64_t> npy_integers(const NpyArray& array);
/// Elements as floats, from f2, f4, f8 or integers.
std::vector<float> npy_floats(const NpyArray& array);

/// The members of a zip archive (npz), stored or deflated; Error(kBadInput) naming the member that is damaged.
std::vector<std::pair<std::string, std::string>> read_zip(std::string_view bytes, const std::string& where);

/// Writes one array of 64-bit integers or floats.
void write_npy(const std::filesystem::path& path, const std::vector<std::int64_t>& values);
void write_npy(const std::filesystem::path& path, const std::vector<std::int64_t>& values, std::uint64_t rows,
               std::uint64_t columns);
void write_npy(const std::filesystem::path& path, const std::vector<float>& values, std::uint64_t rows,
               std::uint64_t columns);

float half_to_float(std::uint16_t half);
std::uint16_t float_to_half(float value);

}  // namespace paceline::gnn
