#include "paceline/base/units.h"

#include <gtest/gtest.h>

namespace paceline::base {
namespace {

template <class A, class B>
concept Adds = requires(A a, B b) { a + b; };
template <class A, class B>
concept Subtracts = requires(A a, B b) { a - b; };
template <class A, class B>
concept Compares = requires(A a, B b) { a < b; };
template <class A, class B>
concept Equates = requires(A a, B b) { a == b; };
template <class A, class B>
concept Assigns = requires(A a, B b) { a = b; };
template <class A, class B>
concept Accumulates = requires(A a, B b) { a += b; };
template <class A, class B>
concept Multiplies = requires(A a, B b) { a* b; };

template <class A, class B>
constexpr bool kMixes =
    Adds<A, B> || Adds<B, A> || Subtracts<A, B> || Subtracts<B, A> || Compares<A, B> || Compares<B, A> ||
    Equates<A, B> || Assigns<A, B> || Assigns<B, A> || Accumulates<A, B> || Accumulates<B, A>;

static_assert(!kMixes<Bytes, Flops> && !kMixes<Bytes, Nanos> && !kMixes<Flops, Nanos>, "units must not mix");
static_assert(!kMixes<Bytes, std::int64_t> && !kMixes<Flops, double>, "a bare number has no unit");
static_assert(!Adds<Nanos, std::int64_t> && !Assigns<Nanos, std::int64_t> && !Compares<Nanos, std::int64_t>);
static_assert(!Multiplies<Bytes, Bytes> && !Multiplies<Bytes, Flops>, "square bytes are no bytes");
static_assert(!kMixes<RankId, TaskId> && !kMixes<NameId, LaneId> && !kMixes<TaskId, LaneId>, "ids must not mix");
static_assert(!kMixes<RankId, std::uint32_t> && !Adds<TaskId, TaskId>, "an id is no number");
static_assert(!Assigns<Nanos, std::chrono::duration<double>>, "time is never a double of seconds");

static_assert(Adds<Bytes, Bytes> && Compares<Flops, Flops> && Multiplies<Bytes, std::int64_t> && Adds<Nanos, Nanos> &&
                  Equates<RankId, RankId>,
              "what these concepts forbid above they can also see");

TEST(Units, AddAndCompareWithTheirOwnKind) {
  Bytes bytes{3};
  bytes += Bytes{4};
  EXPECT_EQ(bytes, Bytes{7});
  EXPECT_EQ(2 * (bytes - Bytes{1}) * 2, Bytes{24});
  EXPECT_LT(Flops{1}, Flops{2});
}

TEST(Units, NoneIsNoRow) {
  EXPECT_NE(kNone<RankId>, RankId{0});
  EXPECT_EQ(index(kNone<TaskId>), 0xFFFFFFFFu);
  EXPECT_EQ(index(NameId{5}), 5u);
}

TEST(Units, TimesShowAsMillisecondsAndMicroseconds) {
  EXPECT_DOUBLE_EQ(to_ms(Nanos{1'500'000}), 1.5);
  EXPECT_DOUBLE_EQ(to_us(Nanos{-250}), -0.25);
}

}  // namespace
}  // namespace paceline::base
