#include "paceline/trace/decimal.h"

#include <charconv>
#include <limits>

namespace paceline::trace {

std::optional<std::int64_t> parse_integer(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<std::int64_t> parse_decimal(std::string_view text, int scale) {
  constexpr std::uint64_t kLargest = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  std::size_t at = 0;
  const bool negative = !text.empty() && text[0] == '-';
  if (negative || text.starts_with('+')) ++at;
  std::uint64_t value = 0;
  int point_shift = 0;  // digits after the point that are in `value`
  bool digits = false, after_point = false, round_up = false, dropped = false;
  int integer_overflow = 0;  // digits before the point that no longer fit
  for (; at < text.size(); ++at) {
    const char c = text[at];
    if (c == '.' && !after_point) {
      after_point = true;
    } else if (c >= '0' && c <= '9') {
      digits = true;
      const auto digit = static_cast<std::uint64_t>(c - '0');
      if (!dropped && value <= (kLargest - digit) / 10) {
        value = value * 10 + digit;
        if (after_point) ++point_shift;
      } else {
        if (!dropped) round_up = digit >= 5;
        dropped = true;
        if (!after_point) ++integer_overflow;
      }
    } else {
      break;
    }
  }
  if (!digits) return std::nullopt;
  int exponent = 0;
  if (at < text.size() && (text[at] == 'e' || text[at] == 'E')) {
    ++at;
    if (at + 1 < text.size() && text[at] == '+' && text[at + 1] != '-') ++at;
    const auto [end, code] = std::from_chars(text.data() + at, text.data() + text.size(), exponent);
    if (code != std::errc{} || exponent > 400 || exponent < -400) return std::nullopt;
    at = static_cast<std::size_t>(end - text.data());
  }
  if (at != text.size()) return std::nullopt;

  int shift = scale + exponent + integer_overflow - point_shift;
  if (shift < 0) {
    round_up = false;
    for (; shift < 0; ++shift) {
      round_up = value % 10 >= 5;
      value /= 10;
    }
  } else if (dropped && shift > 0) {
    return std::nullopt;  // digits were lost above the unit
  }
  if (round_up) ++value;
  for (; shift > 0; --shift) {
    if (value > kLargest / 10) return std::nullopt;
    value *= 10;
  }
  if (value > kLargest) return std::nullopt;
  return negative ? -static_cast<std::int64_t>(value) : static_cast<std::int64_t>(value);
}

}  // namespace paceline::trace
