#include "paceline/gnn/npy.h"

#include <fmt/core.h>
#include <zlib.h>

#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>

#include "paceline/base/error.h"
#include "paceline/base/file.h"

namespace paceline::gnn {
namespace {

[[noreturn]] void bad(const std::string& where, const std::string& what) {
  throw Error(ErrorKind::kBadInput, where, what);
}

template <class T>
T read_at(std::string_view bytes, std::size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof(T));
  return value;
}

/// The text after 'key': in the header's dictionary.
std::string_view header_value(std::string_view header, std::string_view key, const std::string& where) {
  const std::size_t at = header.find(fmt::format("'{}'", key));
  const std::size_t colon = at == std::string_view::npos ? at : header.find(':', at);
  if (colon == std::string_view::npos) bad(where, fmt::format("numpy header without '{}'", key));
  std::string_view value = header.substr(colon + 1);
  value.remove_prefix(std::min(value.find_first_not_of(' '), value.size()));
  return value;
}

template <class To, class From>
std::vector<To> convert(const NpyArray& array) {
  std::vector<To> values(array.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    const From value = read_at<From>(array.data, i * sizeof(From));
    if constexpr (std::is_integral_v<To>) {
      bool fits = true;
      if constexpr (std::is_floating_point_v<From>) fits = std::floor(value) == value && std::fabs(value) < 9.0e18;
      if constexpr (std::is_unsigned_v<To>) fits = fits && !(value < From{});
      if constexpr (std::is_same_v<From, std::uint64_t> && std::is_signed_v<To>)
        fits = value <= std::numeric_limits<std::int64_t>::max();
      if (!fits)
        bad(array.where, fmt::format("element {} is {}, expected {}", i, value,
                                     std::is_unsigned_v<To> ? "a node id (0 or more)" : "an integer"));
    }
    values[i] = static_cast<To>(value);
  }
  return values;
}

template <class To>
std::vector<To> convert_any(const NpyArray& array) {
  if (array.kind == 'i' && array.bytes == 1) return convert<To, std::int8_t>(array);
  if (array.kind == 'i' && array.bytes == 2) return convert<To, std::int16_t>(array);
  if (array.kind == 'i' && array.bytes == 4) return convert<To, std::int32_t>(array);
  if (array.kind == 'i' && array.bytes == 8) return convert<To, std::int64_t>(array);
  if ((array.kind == 'u' || array.kind == 'b') && array.bytes == 1) return convert<To, std::uint8_t>(array);
  if (array.kind == 'u' && array.bytes == 2) return convert<To, std::uint16_t>(array);
  if (array.kind == 'u' && array.bytes == 4) return convert<To, std::uint32_t>(array);
  if (array.kind == 'u' && array.bytes == 8) return convert<To, std::uint64_t>(array);
  if (array.kind == 'f' && array.bytes == 4) return convert<To, float>(array);
  if (array.kind == 'f' && array.bytes == 8) return convert<To, double>(array);
  if (array.kind == 'f' && array.bytes == 2) {
    std::vector<float> values(array.size());
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = half_to_float(read_at<std::uint16_t>(array.data, i * 2));
    NpyArray widened = array;
    widened.bytes = 4;
    widened.data = {reinterpret_cast<const char*>(values.data()), values.size() * 4};
    return convert<To, float>(widened);
  }
  bad(array.where, fmt::format("element type {}{} is not supported", array.kind, array.bytes));
}

std::string inflate_member(std::string_view packed, std::uint64_t size, const std::string& where) {
  if (size > packed.size() * 1100 + 64)
    bad(where, fmt::format("claims {} bytes from {} compressed ones; the archive is damaged", size, packed.size()));
  std::string out(size, '\0');
  z_stream stream{};
  if (inflateInit2(&stream, -MAX_WBITS) != Z_OK) throw Error(ErrorKind::kSystem, where, "cannot start decompression");
  std::size_t taken = 0;
  std::size_t made = 0;
  int code = Z_OK;
  while (code == Z_OK) {  // zlib counts in 32 bits
    constexpr std::size_t kStep = std::size_t{1} << 30;
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data() + taken));
    stream.avail_in = static_cast<uInt>(std::min(kStep, packed.size() - taken));
    stream.next_out = reinterpret_cast<Bytef*>(out.data() + made);
    stream.avail_out = static_cast<uInt>(std::min(kStep, out.size() - made));
    const std::size_t in = stream.avail_in;
    const std::size_t room = stream.avail_out;
    code = inflate(&stream, Z_NO_FLUSH);
    taken += in - stream.avail_in;
    made += room - stream.avail_out;
    if (in == stream.avail_in && room == stream.avail_out && code == Z_OK) code = Z_BUF_ERROR;
  }
  inflateEnd(&stream);
  if (code != Z_STREAM_END || made != size) bad(where, "compressed data is damaged or cut short");
  return out;
}

template <class T>
void write_array(const std::filesystem::path& path, const char* type, const std::string& shape,
                 const std::vector<T>& values) {
  std::string header = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': {}, }}", type, shape);
  header.append((64 - (header.size() + 11) % 64) % 64, ' ');
  header += '\n';
  std::string text("\x93NUMPY\x01\x00", 8);
  const auto length = static_cast<std::uint16_t>(header.size());
  text.append(reinterpret_cast<const char*>(&length), 2);
  text += header;
  text.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
  base::write_text_file(path, text);
}

}  // namespace

std::uint64_t NpyArray::size() const {
  std::uint64_t product = 1;
  for (const std::uint64_t extent : shape) product *= extent;
  return product;
}

NpyArray parse_npy(std::string_view bytes, const std::string& where) {
  if (bytes.size() < 12 || bytes.substr(0, 6) != "\x93NUMPY") bad(where, "is not a numpy array (.npy)");
  const auto major = static_cast<unsigned char>(bytes[6]);
  if (major < 1 || major > 3) bad(where, fmt::format("numpy format version {}, expected 1 to 3", major));
  const std::size_t start = major == 1 ? 10 : 12;
  const std::size_t length = major == 1 ? read_at<std::uint16_t>(bytes, 8) : read_at<std::uint32_t>(bytes, 8);
  if (length > bytes.size() - start) bad(where, "is cut short inside its header");
  const std::string_view header = bytes.substr(start, length);

  NpyArray array;
  array.where = where;
  const std::string_view type = header_value(header, "descr", where);
  if (type.size() < 5 || type[0] != '\'') bad(where, "holds records, expected one plain number type");
  if (type[1] == '>') bad(where, "is big-endian; save it again with little-endian numbers (astype('<i8'))");
  array.kind = type[2];
  array.bytes = type[3] - '0';
  if (std::string_view("iufb").find(array.kind) == std::string_view::npos || type[4] != '\'')
    bad(where, fmt::format("holds elements of type {}, expected numbers", type.substr(0, type.find('\'', 1) + 1)));
  if (array.bytes != 1 && array.bytes != 2 && array.bytes != 4 && array.bytes != 8)
    bad(where, "elements of an unknown size");
  array.fortran_order = header_value(header, "fortran_order", where).substr(0, 4) == "True";
  std::string_view shape = header_value(header, "shape", where);
  shape = shape.substr(0, shape.find(')'));
  std::uint64_t total = static_cast<std::uint64_t>(array.bytes);
  for (std::size_t at = shape.find_first_of("0123456789"); at < shape.size();
       at = shape.find_first_of("0123456789", at)) {
    std::uint64_t extent = 0;
    const auto [end, code] = std::from_chars(shape.data() + at, shape.data() + shape.size(), extent);
    if (code != std::errc{} || __builtin_mul_overflow(total, extent, &total))
      bad(where, "has a shape that is too large");
    array.shape.push_back(extent);
    at = static_cast<std::size_t>(end - shape.data());
  }
  array.data = bytes.substr(start + length);
  if (array.data.size() < total)
    bad(where, fmt::format("is cut short: {} bytes of data, the shape needs {}", array.data.size(), total));
  return array;
}

std::vector<std::uint64_t> npy_ids(const NpyArray& array) {
  return convert_any<std::uint64_t>(array);
}
std::vector<std::int64_t> npy_integers(const NpyArray& array) {
  return convert_any<std::int64_t>(array);
}
std::vector<float> npy_floats(const NpyArray& array) {
  return convert_any<float>(array);
}

// APPNOTE.TXT 6.3 of the zip format: end-of-directory record, central directory, local headers; Zip64 for large ones.
std::vector<std::pair<std::string, std::string>> read_zip(std::string_view bytes, const std::string& where) {
  constexpr std::string_view kEnd("PK\x05\x06", 4);
  const std::size_t end = bytes.rfind(kEnd);
  if (end == std::string_view::npos || bytes.size() - end < 22) bad(where, "is not a zip archive, or is cut short");
  std::uint64_t entries = read_at<std::uint16_t>(bytes, end + 10);
  std::uint64_t at = read_at<std::uint32_t>(bytes, end + 16);
  if (at == 0xFFFFFFFFu || entries == 0xFFFFu) {
    const std::size_t end64 = bytes.rfind(std::string_view("PK\x06\x06", 4));
    if (end64 == std::string_view::npos || bytes.size() - end64 < 56) bad(where, "has a damaged directory");
    entries = read_at<std::uint64_t>(bytes, end64 + 32);
    at = read_at<std::uint64_t>(bytes, end64 + 48);
  }
  std::vector<std::pair<std::string, std::string>> members;
  for (std::uint64_t i = 0; i < entries; ++i) {
    if (at > bytes.size() || bytes.size() - at < 46 || bytes.substr(at, 4) != std::string_view("PK\x01\x02", 4))
      bad(where, fmt::format("has a damaged directory at entry {}", i));
    const auto method = read_at<std::uint16_t>(bytes, at + 10);
    const auto expected_crc = read_at<std::uint32_t>(bytes, at + 16);
    std::uint64_t packed = read_at<std::uint32_t>(bytes, at + 20);
    std::uint64_t size = read_at<std::uint32_t>(bytes, at + 24);
    const std::size_t name_length = read_at<std::uint16_t>(bytes, at + 28);
    const std::size_t extra_length = read_at<std::uint16_t>(bytes, at + 30);
    const std::size_t comment_length = read_at<std::uint16_t>(bytes, at + 32);
    std::uint64_t local = read_at<std::uint32_t>(bytes, at + 42);
    if (bytes.size() - at - 46 < name_length + extra_length)
      bad(where, fmt::format("has a damaged directory at entry {}", i));
    const std::string name(bytes.substr(at + 46, name_length));
    std::string_view extra = bytes.substr(at + 46 + name_length, extra_length);
    while (extra.size() >= 4) {
      const std::size_t length = read_at<std::uint16_t>(extra, 2);
      if (length > extra.size() - 4) break;
      if (read_at<std::uint16_t>(extra, 0) == 1) {
        std::size_t field = 4;
        for (std::uint64_t* value : {&size, &packed, &local})
          if (*value == 0xFFFFFFFFu && field + 8 <= length + 4)
            *value = read_at<std::uint64_t>(extra, field), field += 8;
      }
      extra.remove_prefix(length + 4);
    }
    const std::string member = where + "/" + name;
    if (local > bytes.size() || bytes.size() - local < 30) bad(member, "lies outside of the archive");
    const std::uint64_t data =
        local + 30u + read_at<std::uint16_t>(bytes, local + 26) + read_at<std::uint16_t>(bytes, local + 28);
    if (data > bytes.size() || packed > bytes.size() - data) bad(member, "is cut short");
    const std::string_view raw = bytes.substr(data, packed);
    if (method != 0 && method != 8)
      bad(member, fmt::format("uses compression method {}, expected stored or deflated", method));
    std::string content = method == 0 ? std::string(raw) : inflate_member(raw, size, member);
    const auto crc =
        static_cast<std::uint32_t>(crc32_z(0, reinterpret_cast<const Bytef*>(content.data()), content.size()));
    if (crc != expected_crc) bad(member, "is damaged (its CRC differs)");
    members.emplace_back(name, std::move(content));
    at += 46 + name_length + extra_length + comment_length;
  }
  return members;
}

void write_npy(const std::filesystem::path& path, const std::vector<std::int64_t>& values) {
  write_array(path, "<i8", fmt::format("({},)", values.size()), values);
}

void write_npy(const std::filesystem::path& path, const std::vector<std::int64_t>& values, std::uint64_t rows,
               std::uint64_t columns) {
  PL_CHECK(values.size() == rows * columns);
  write_array(path, "<i8", fmt::format("({}, {})", rows, columns), values);
}

void write_npy(const std::filesystem::path& path, const std::vector<float>& values, std::uint64_t rows,
               std::uint64_t columns) {
  PL_CHECK(values.size() == rows * columns);
  write_array(path, "<f4", fmt::format("({}, {})", rows, columns), values);
}

// IEEE 754 binary16, subnormals and infinities included.
float half_to_float(std::uint16_t half) {
  const std::uint32_t sign = (half & 0x8000u) << 16;
  const std::uint32_t exponent = (half >> 10) & 0x1Fu;
  const std::uint32_t mantissa = half & 0x3FFu;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7F800000u | (mantissa << 13));
  if (exponent == 0)
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(static_cast<float>(mantissa) * 0x1p-24f));
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
}

std::uint16_t float_to_half(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000u;
  const std::uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return static_cast<std::uint16_t>(sign | 0x7E00u);
  if (magnitude >= 0x477FF000u) return static_cast<std::uint16_t>(sign | 0x7C00u);
  if (magnitude < 0x38800000u)  // below the smallest normal: adding 0.5 lets the hardware round to steps of 2^-24
    return static_cast<std::uint16_t>(
        sign | (std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3F000000u));
  const std::uint32_t odd = (magnitude >> 13) & 1;
  return static_cast<std::uint16_t>(sign | ((magnitude - 0x38000000u + 0xFFFu + odd) >> 13));
}

}  // namespace paceline::gnn
