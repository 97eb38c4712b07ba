#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace paceline::trace::chakra {

/// The encoding of protocol buffers (protobuf.dev/programming-guides/encoding), as far as execution traces use it.
enum class WireType : std::uint8_t { kVarint = 0, kFixed64 = 1, kLength = 2, kFixed32 = 5 };

struct WireField {
  std::uint32_t number = 0;
  WireType type = WireType::kVarint;
  std::uint64_t value = 0;      // of all but kLength
  std::string_view bytes = {};  // of kLength
};

/// Walks over the fields of a message. After next() gave nothing, broken() says whether the message ended or broke.
class WireReader {
 public:
  explicit WireReader(std::string_view bytes) : bytes_(bytes) {}

  std::optional<std::uint64_t> varint() {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (at_ == bytes_.size()) return std::nullopt;
      const auto byte = static_cast<unsigned char>(bytes_[at_++]);
      value |= static_cast<std::uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
    return std::nullopt;
  }

  std::optional<WireField> next() {
    if (at_ == bytes_.size()) return std::nullopt;
    auto field = take();
    broken_ = !field;
    return field;
  }

  bool broken() const { return broken_; }
  std::size_t at() const { return at_; }
  std::optional<std::string_view> take(std::uint64_t size) {
    if (size > bytes_.size() - at_) return std::nullopt;
    const std::string_view taken = bytes_.substr(at_, size);
    at_ += size;
    return taken;
  }

 private:
  std::optional<WireField> take() {
    const auto key = varint();
    if (!key || *key >> 3 == 0 || *key >> 3 > 0x1FFFFFFF) return std::nullopt;
    WireField field;
    field.number = static_cast<std::uint32_t>(*key >> 3);
    field.type = static_cast<WireType>(*key & 7);
    switch (field.type) {
      case WireType::kVarint: {
        const auto value = varint();
        if (!value) return std::nullopt;
        field.value = *value;
        return field;
      }
      case WireType::kLength: {
        const auto size = varint();
        const auto bytes = size ? take(*size) : std::nullopt;
        if (!bytes) return std::nullopt;
        field.bytes = *bytes;
        return field;
      }
      case WireType::kFixed64:
      case WireType::kFixed32: {
        const auto bytes = take(field.type == WireType::kFixed64 ? 8 : 4);
        if (!bytes) return std::nullopt;
        for (std::size_t i = bytes->size(); i > 0; --i) {
          field.value = field.value << 8 | static_cast<unsigned char>((*bytes)[i - 1]);
        }
        return field;
      }
    }
    return std::nullopt;  // groups, which proto3 has not
  }

  std::string_view bytes_;
  std::size_t at_ = 0;
  bool broken_ = false;
};

class WireWriter {
 public:
  void varint(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>(value | 0x80);
    bytes_ += static_cast<char>(value);
  }
  void field(const WireField& field) {
    varint(std::uint64_t{field.number} << 3 | static_cast<std::uint64_t>(field.type));
    if (field.type == WireType::kVarint) return varint(field.value);
    if (field.type == WireType::kLength) {
      varint(field.bytes.size());
      bytes_ += field.bytes;
      return;
    }
    for (int i = 0; i < (field.type == WireType::kFixed64 ? 8 : 4); ++i) {
      bytes_ += static_cast<char>(field.value >> (8 * i));
    }
  }
  void number(std::uint32_t number, std::uint64_t value) { field({number, WireType::kVarint, value}); }
  void text(std::uint32_t number, std::string_view text) { field({number, WireType::kLength, 0, text}); }
  void raw(std::string_view bytes) { bytes_ += bytes; }

  const std::string& bytes() const { return bytes_; }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

}  // namespace paceline::trace::chakra
