#pragma once
#include <cstdint>
#include <optional>
#include <string_view>

namespace paceline::trace {

/// value * 10^scale as an integer, from decimal text ("-12.3456", "1.5e3"), rounded half away from zero; never through
/// a double: absolute microseconds of 2024 keep only 0.25 us there. Nothing when it is no number or out of range.
std::optional<std::int64_t> parse_decimal(std::string_view text, int scale);

/// Microseconds to nanoseconds.
inline std::optional<std::int64_t> parse_us(std::string_view text) {
  return parse_decimal(text, 3);
}

/// A whole number; nothing when it is anything else.
std::optional<std::int64_t> parse_integer(std::string_view text);

}  // namespace paceline::trace
