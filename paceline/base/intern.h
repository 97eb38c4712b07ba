#pragma once
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "paceline/base/units.h"

namespace paceline::base {

/// Maps strings to dense 32-bit ids in order of first appearance. Lookup O(length); views stay valid for the table's
/// life. Not safe for concurrent writers: parallel readers fill one table each and merge in a fixed order.
class InternTable {
 public:
  InternTable();
  InternTable(InternTable&&) = default;  // the views stay valid, so a table moves but does not copy
  InternTable& operator=(InternTable&&) = default;

  NameId intern(std::string_view text);
  std::string_view text(NameId id) const { return texts_[index(id)]; }
  std::uint32_t size() const { return static_cast<std::uint32_t>(texts_.size()); }

 private:
  void grow();

  struct Slot {
    std::uint64_t hash;
    std::uint32_t id;  // kEmpty when free
  };
  std::vector<Slot> slots_;
  std::vector<std::string_view> texts_;
  // Own the characters, which never move: the table moves without its views going stale, and does not copy.
  std::vector<std::unique_ptr<char[]>> chunks_;
  char* free_ = nullptr;  // the unused rest of the last chunk
  std::size_t free_size_ = 0;
};

/// A fast, seedless 64-bit hash for in-memory tables; not stable across versions, never written to files.
std::uint64_t hash_bytes(std::string_view text);

}  // namespace paceline::base
