#include "paceline/base/table.h"

#include <gtest/gtest.h>

#include "paceline/base/error.h"

namespace paceline::base {
namespace {

TEST(Table, AlignsColumnsByCodePointsNotBytes) {
  Table table;
  table.add_column("kernel", Table::Align::kLeft);
  table.add_column("ms");
  table.add_row({"größe", "1.5"});
  table.add_row({"a", "12.25"});
  table.add_row({"µ·…", ""});
  EXPECT_EQ(table.to_string(),
            "  kernel     ms\n"
            "  ──────  ─────\n"
            "  größe     1.5\n"
            "  a       12.25\n"
            "  µ·…\n");
}

TEST(Table, MissingCellsStayEmptyAndTooManyAreABug) {
  Table table;
  table.add_column("a");
  table.add_column("b");
  table.add_row({"1"});
  EXPECT_EQ(table.to_string(""), "a  b\n─  ─\n1\n");
  EXPECT_THROW(table.add_row({"1", "2", "3"}), Error);
}

TEST(Table, NamesFromFilesCannotBreakTheLineOrSteerTheTerminal) {
  Table table;
  table.add_column("name", Table::Align::kLeft);
  table.add_row({"a\nb\x1b[31mc\x7f"});
  EXPECT_EQ(table.to_string(""), "name\n──────────\na?b?[31mc?\n");
}

TEST(Table, ShortenCutsBetweenCodePoints) {
  EXPECT_EQ(shorten("größe", 5), "größe");
  EXPECT_EQ(shorten("größer", 5), "größ…");
  EXPECT_EQ(shorten("größer", 4), "grö…");
  EXPECT_EQ(shorten("ab", 1), "…");
  EXPECT_EQ(shorten("ab", 0), "");
}

}  // namespace
}  // namespace paceline::base
