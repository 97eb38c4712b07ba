#include "paceline/trace/decimal.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <string>

#include "paceline/base/rng.h"
#include "paceline/base/wide.h"

namespace paceline::trace {
namespace {

TEST(Decimal, KeepsEveryDigitOfAbsoluteMicroseconds) {
  // 17 digits and more: the nearest double is 0.25 us away (ns_resolution traces of PyTorch 2.3).
  EXPECT_EQ(parse_us("1712195501123456.789"), 1'712'195'501'123'456'789);
  EXPECT_EQ(parse_us("1712195501123456.001"), 1'712'195'501'123'456'001);
  EXPECT_EQ(parse_us("1735776000000000"), 1'735'776'000'000'000'000);
}

TEST(Decimal, ReadsMicrosecondsAsNanoseconds) {
  EXPECT_EQ(parse_us("0"), 0);
  EXPECT_EQ(parse_us("3"), 3000);
  EXPECT_EQ(parse_us("0.001"), 1);
  EXPECT_EQ(parse_us("-2.5"), -2500);
  EXPECT_EQ(parse_us("+2.5"), 2500);
  EXPECT_EQ(parse_us("7."), 7000);
  EXPECT_EQ(parse_us(".5"), 500);
  EXPECT_EQ(parse_us("000012.300000"), 12300);
}

TEST(Decimal, RoundsHalfAwayFromZeroOnce) {
  EXPECT_EQ(parse_us("0.0005"), 1);
  EXPECT_EQ(parse_us("-0.0005"), -1);
  EXPECT_EQ(parse_us("0.00049"), 0);
  EXPECT_EQ(parse_us("0.0004999999999999999999999"), 0);  // rounding digit by digit would give 1
  EXPECT_EQ(parse_us("0.0014999999999999999999999"), 1);
  EXPECT_EQ(parse_us("0.00150000000000000000000001"), 2);
  EXPECT_EQ(parse_us("0.9999"), 1000);
}

TEST(Decimal, ReadsExponents) {
  EXPECT_EQ(parse_us("1.5e3"), 1'500'000);
  EXPECT_EQ(parse_us("1.5E+3"), 1'500'000);
  EXPECT_EQ(parse_us("1500e-3"), 1500);
  EXPECT_EQ(parse_us("1.712195501123456789e15"), 1'712'195'501'123'456'789);
  EXPECT_EQ(parse_us("0e300"), 0);
  EXPECT_EQ(parse_us("5e-300"), 0);
  EXPECT_EQ(parse_us("12345678901234567890123e-20"), 123'457);
}

TEST(Decimal, RefusesWhatIsNoNumber) {
  for (const char* text :
       {"",   "-",  "+",    ".",   "e3",       "1e",  "1e+", "1e+-3", "1e-+3", "--1",  "+-1", "1.2.3",
        "1 ", " 1", "0x10", "NaN", "Infinity", "nan", "inf", "1,5",   "\"1\"", "null", "1e3x"}) {
    EXPECT_FALSE(parse_us(text)) << "'" << text << "'";
  }
}

TEST(Decimal, RefusesWhatDoesNotFit) {
  EXPECT_EQ(parse_us("9223372036854775.807"), 9'223'372'036'854'775'807);
  EXPECT_EQ(parse_us("-9223372036854775.807"), -9'223'372'036'854'775'807);
  EXPECT_FALSE(parse_us("9223372036854775.808"));
  EXPECT_FALSE(parse_us("9223372036854775.8075"));
  EXPECT_FALSE(parse_us("99999999999999999999"));
  EXPECT_FALSE(parse_us("1e300"));
  EXPECT_FALSE(parse_us("1e99999999999"));
  EXPECT_FALSE(parse_us(std::string(400, '9')));
}

TEST(Decimal, AgreesWithWideIntegersOnRandomNumbers) {
  base::Rng rng(20240403);
  for (int i = 0; i < 100'000; ++i) {
    // whole * 10^6 + millionths of a microsecond, all in 128 bits; the microseconds are those of this century.
    const auto whole = static_cast<std::int64_t>(rng.below(4'000'000'000'000'000));
    const auto millionths = static_cast<std::int64_t>(rng.below(1'000'000));
    const base::Wide picos = static_cast<base::Wide>(whole) * 1'000'000 + static_cast<base::Wide>(millionths);
    const auto expected = static_cast<std::int64_t>((picos + 500) / 1000);
    const std::string text = fmt::format("{}.{:06}", whole, millionths);
    ASSERT_EQ(parse_us(text), expected) << text;
    ASSERT_EQ(parse_us("-" + text), -expected) << text;
  }
}

TEST(Decimal, IntegersAreWholeOrNothing) {
  EXPECT_EQ(parse_integer("42"), 42);
  EXPECT_EQ(parse_integer("-1"), -1);
  EXPECT_EQ(parse_integer("9223372036854775807"), 9'223'372'036'854'775'807);
  for (const char* text : {"", "4.0", "4e2", "0x1F", " 4", "4 ", "9223372036854775808", "+4"}) {
    EXPECT_FALSE(parse_integer(text)) << "'" << text << "'";
  }
}

}  // namespace
}  // namespace paceline::trace
