#include "paceline/base/intern.h"

#include <cstring>

#include "paceline/base/wide.h"

namespace paceline::base {
namespace {
constexpr std::uint32_t kEmpty = 0xFFFFFFFFu;
constexpr std::size_t kChunk = 64 * 1024;

std::uint64_t load8(const char* bytes) {
  std::uint64_t word = 0;
  std::memcpy(&word, bytes, sizeof(word));
  return word;
}

std::uint64_t load4(const char* bytes) {
  std::uint32_t word = 0;
  std::memcpy(&word, bytes, sizeof(word));
  return word;
}

/// Multiply-and-fold mixing step: both halves of the 128-bit product depend on every input bit.
std::uint64_t fold(std::uint64_t a, std::uint64_t b) {
  const auto product = static_cast<Wide>(a) * b;
  return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
}
}  // namespace

std::uint64_t hash_bytes(std::string_view text) {
  constexpr std::uint64_t kOdd1 = 0x9E3779B97F4A7C15u;
  constexpr std::uint64_t kOdd2 = 0xD6E8FEB86659FD93u;
  constexpr std::uint64_t kOdd3 = 0xA0761D6478BD642Fu;  // keeps the last factor from being 0 for short texts
  std::uint64_t hash = text.size() * kOdd2;
  const char* bytes = text.data();
  std::size_t left = text.size();
  for (; left > 16; bytes += 16, left -= 16) hash = fold(load8(bytes) ^ kOdd1, load8(bytes + 8) ^ hash);
  // The last 0 to 16 bytes by two loads that may overlap; the length is in the hash already.
  std::uint64_t low = 0, high = 0;
  if (left >= 8) {
    low = load8(bytes), high = load8(bytes + left - 8);
  } else if (left >= 4) {
    low = load4(bytes), high = load4(bytes + left - 4);
  } else if (left > 0) {
    const auto byte = [&](std::size_t i) { return std::uint64_t{static_cast<unsigned char>(bytes[i])}; };
    low = byte(0) << 16 | byte(left / 2) << 8 | byte(left - 1);
  }
  return fold(fold(low ^ kOdd1, high ^ hash ^ kOdd3), kOdd1);
}

InternTable::InternTable() : slots_(1024, Slot{0, kEmpty}) {}

NameId InternTable::intern(std::string_view text) {
  const std::uint64_t hash = hash_bytes(text);
  const std::size_t mask = slots_.size() - 1;
  std::size_t at = hash & mask;
  while (slots_[at].id != kEmpty) {
    if (slots_[at].hash == hash && texts_[slots_[at].id] == text) return NameId{slots_[at].id};
    at = (at + 1) & mask;
  }
  if (free_size_ < text.size() || free_ == nullptr) {
    free_size_ = text.size() > kChunk ? text.size() : kChunk;
    free_ = chunks_.emplace_back(std::make_unique_for_overwrite<char[]>(free_size_)).get();
  }
  if (!text.empty()) std::memcpy(free_, text.data(), text.size());
  const auto id = static_cast<std::uint32_t>(texts_.size());
  texts_.emplace_back(free_, text.size());
  free_ += text.size();
  free_size_ -= text.size();
  slots_[at] = {hash, id};
  if (texts_.size() * 2 > slots_.size()) grow();
  return NameId{id};
}

void InternTable::grow() {
  std::vector<Slot> old(slots_.size() * 2, Slot{0, kEmpty});
  old.swap(slots_);
  const std::size_t mask = slots_.size() - 1;
  for (const Slot& slot : old) {
    if (slot.id == kEmpty) continue;
    std::size_t at = slot.hash & mask;
    while (slots_[at].id != kEmpty) at = (at + 1) & mask;
    slots_[at] = slot;
  }
}

}  // namespace paceline::base
