#include "paceline/schedule/csv.h"

#include <gtest/gtest.h>

#include "paceline/base/error.h"

namespace paceline::schedule {
namespace {

TEST(Csv, NamesTheMissingColumn) {
  const Csv csv("a,b\r\n1,2\n\n3,4\n", "f.csv");
  EXPECT_EQ(csv.rows().size(), 2u);
  EXPECT_EQ(csv.rows()[1].line, 4);
  EXPECT_EQ(csv.rows()[0].cells[1], "2");
  EXPECT_THROW(csv.column("c"), Error);
}

TEST(ParseSeconds, KeepsEveryNanosecondAndRefusesWords) {
  EXPECT_EQ(parse_seconds("12")->count(), 12'000'000'000);
  EXPECT_EQ(parse_seconds("0.000000001")->count(), 1);
  EXPECT_EQ(parse_seconds("-1.5")->count(), -1'500'000'000);
  EXPECT_FALSE(parse_seconds("1e3").has_value());
  EXPECT_FALSE(parse_seconds("").has_value());
  EXPECT_FALSE(parse_seconds("soon").has_value());
}

}  // namespace
}  // namespace paceline::schedule
