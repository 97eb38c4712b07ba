#include "paceline/base/format.h"

#include <gtest/gtest.h>

#include <limits>

namespace paceline::base {
namespace {

TEST(Format, TimesHaveThreeDigitsAndTheUnitThatFits) {
  EXPECT_EQ(format_time(Nanos{0}), "0 ns");
  EXPECT_EQ(format_time(Nanos{7}), "7 ns");
  EXPECT_EQ(format_time(Nanos{1'234'567}), "1.23 ms");
  EXPECT_EQ(format_time(Nanos{45'600}), "45.6 us");
  EXPECT_EQ(format_time(Nanos{123'456}), "123 us");
  EXPECT_EQ(format_time(Nanos{-1'500'000'000}), "-1.50 s");
  EXPECT_EQ(format_time(Nanos{7'200'000'000'000}), "7200 s");
}

TEST(Format, RoundingUpMovesToTheNextDigitAndUnit) {
  EXPECT_EQ(format_time(Nanos{9'996}), "10.0 us");
  EXPECT_EQ(format_time(Nanos{99'960}), "100 us");
  EXPECT_EQ(format_time(Nanos{999'400}), "999 us");
  EXPECT_EQ(format_time(Nanos{999'600}), "1.00 ms");
}

TEST(Format, BytesAreDecimal) {
  EXPECT_EQ(format_bytes(Bytes{999}), "999 B");
  EXPECT_EQ(format_bytes(Bytes{53'733'385}), "53.7 MB");
}

TEST(Format, CountsAreGrouped) {
  EXPECT_EQ(format_count(0), "0");
  EXPECT_EQ(format_count(999), "999");
  EXPECT_EQ(format_count(1'234'567), "1,234,567");
  EXPECT_EQ(format_count(-123'456), "-123,456");
  EXPECT_EQ(format_count(std::numeric_limits<std::int64_t>::min()), "-9,223,372,036,854,775,808");
}

TEST(Format, SharesArePercent) {
  EXPECT_EQ(format_percent(0.0314, 2), "3.14 %");
  EXPECT_EQ(format_percent(1.0), "100.0 %");
}

}  // namespace
}  // namespace paceline::base
