#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace paceline::trace {

/// What a reader mended or had to leave out. Nothing is dropped silently: every case is counted here and shown.
enum class Repair : std::uint8_t {
  kTruncatedInput,
  kDamagedCompression,
  kDamagedEvent,
  kDamagedHeader,
  kMendedText,
  kInvalidUtf8,
  kMissingTime,
  kNegativeDuration,
  kAbsurdDuration,
  kOverlappingSlices,
  kUnmatchedBegin,
  kUnmatchedFlow,
  kInferredTime,
  kCount
};

/// Events or bytes of the input were lost (exit code 6), not merely put right.
bool loses_data(Repair repair);
/// Short machine name, e.g. "damaged_event".
std::string_view repair_name(Repair repair);
/// What it means and what was done, in words.
std::string_view repair_meaning(Repair repair);

class Repairs {
 public:
  /// `place` (byte of the uncompressed document, or a time) and `detail` are kept for the first case only.
  void add(Repair repair, std::string_view place, std::string_view detail, std::int64_t count = 1);

  std::int64_t count(Repair repair) const { return rows_[static_cast<std::size_t>(repair)].count; }
  bool any() const;
  bool lost_data() const;

  struct Row {
    std::int64_t count = 0;
    std::string first_place;
    std::string first_detail;
  };
  const Row& row(Repair repair) const { return rows_[static_cast<std::size_t>(repair)]; }

 private:
  std::array<Row, static_cast<std::size_t>(Repair::kCount)> rows_;
};

}  // namespace paceline::trace
