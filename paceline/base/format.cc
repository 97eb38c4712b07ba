#include "paceline/base/format.h"

#include <fmt/core.h>

#include <array>
#include <cmath>
#include <string_view>

namespace paceline::base {
namespace {
struct Unit {
  double size;
  std::string_view name;
};

template <std::size_t N>
std::string with_unit(double value, const std::array<Unit, N>& units) {
  const Unit* unit = &units.back();
  for (const Unit& candidate : units) {
    if (std::abs(value) >= candidate.size) {
      unit = &candidate;
      break;
    }
  }
  // 999.7 us has three digits only as 1.00 ms.
  if (unit != units.data() && std::abs(value) / unit->size >= 999.5) --unit;
  const double scaled = value / unit->size, size = std::abs(scaled);
  const int decimals = unit->size == 1 || size >= 99.95 ? 0 : size >= 9.995 ? 1 : 2;
  return fmt::format("{:.{}f} {}", scaled, decimals, unit->name);
}
}  // namespace

std::string format_time(Nanos time) {
  static constexpr std::array<Unit, 4> kUnits{{{1e9, "s"}, {1e6, "ms"}, {1e3, "us"}, {1, "ns"}}};
  return with_unit(static_cast<double>(time.count()), kUnits);
}

std::string format_bytes(Bytes bytes) {
  static constexpr std::array<Unit, 5> kUnits{{{1e12, "TB"}, {1e9, "GB"}, {1e6, "MB"}, {1e3, "kB"}, {1, "B"}}};
  return with_unit(static_cast<double>(bytes.value), kUnits);
}

std::string format_count(std::int64_t count) {
  std::string digits = fmt::format("{}", count);
  const std::size_t first = count < 0 ? 1 : 0;
  for (std::size_t at = digits.size(); at > first + 3;) digits.insert(at -= 3, ",");
  return digits;
}

std::string format_percent(double share, int decimals) {
  return fmt::format("{:.{}f} %", 100.0 * share, decimals);
}

}  // namespace paceline::base
