#pragma once
#include <chrono>
#include <compare>
#include <cstdint>
#include <type_traits>

namespace paceline::base {

/// Time. Always an integer: storage never holds a double of seconds.
using Nanos = std::chrono::nanoseconds;

/// An amount with a unit of its own: adds to and compares with the same unit only.
template <class Unit>
struct Quantity {
  std::int64_t value = 0;

  constexpr auto operator<=>(const Quantity&) const = default;
  constexpr Quantity& operator+=(Quantity other) { return value += other.value, *this; }
  constexpr Quantity& operator-=(Quantity other) { return value -= other.value, *this; }
  friend constexpr Quantity operator+(Quantity a, Quantity b) { return {a.value + b.value}; }
  friend constexpr Quantity operator-(Quantity a, Quantity b) { return {a.value - b.value}; }
  friend constexpr Quantity operator*(Quantity a, std::int64_t factor) { return {a.value * factor}; }
  friend constexpr Quantity operator*(std::int64_t factor, Quantity a) { return {a.value * factor}; }
};

using Bytes = Quantity<struct BytesUnit>;
using Flops = Quantity<struct FlopsUnit>;  // floating-point operations, a count and not a rate

/// Ids are 32-bit indices into a table; two tables' ids do not mix. `kNone` marks "no such row".
enum class RankId : std::uint32_t {};
enum class NameId : std::uint32_t {};
enum class LaneId : std::uint32_t {};
enum class TaskId : std::uint32_t {};

template <class Id>
inline constexpr Id kNone = static_cast<Id>(0xFFFFFFFFu);

template <class Id>
  requires std::is_enum_v<Id>
constexpr std::uint32_t index(Id id) {
  return static_cast<std::uint32_t>(id);
}

constexpr double to_ms(Nanos time) {
  return static_cast<double>(time.count()) / 1e6;
}
constexpr double to_us(Nanos time) {
  return static_cast<double>(time.count()) / 1e3;
}

}  // namespace paceline::base
