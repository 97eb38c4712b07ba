#include "paceline/base/intern.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

#include "paceline/base/rng.h"

namespace paceline::base {
namespace {

TEST(InternTable, IdsAreDenseInOrderOfFirstAppearance) {
  InternTable table;
  EXPECT_EQ(table.intern("b"), NameId{0});
  EXPECT_EQ(table.intern("a"), NameId{1});
  EXPECT_EQ(table.intern("b"), NameId{0});
  EXPECT_EQ(table.size(), 2u);
  EXPECT_EQ(table.text(NameId{1}), "a");
}

TEST(InternTable, TakesEmptyLongAndBinaryText) {
  InternTable table;
  const std::string huge(300'000, 'x');
  const NameId empty = table.intern(std::string_view());
  const NameId zero = table.intern(std::string_view("\0", 1));
  const NameId zeros = table.intern(std::string_view("\0\0", 2));
  const NameId large = table.intern(huge);
  EXPECT_EQ(table.size(), 4u);
  EXPECT_EQ(table.intern(""), empty);
  EXPECT_EQ(table.text(zero).size(), 1u);
  EXPECT_EQ(table.text(zeros).size(), 2u);
  EXPECT_EQ(table.text(large), huge);
}

TEST(InternTable, AgreesWithAMapAndItsViewsStayWhileItGrows) {
  Rng random(1);
  InternTable table;
  std::map<std::string, NameId, std::less<>> naive;
  const std::string_view first = table.text(table.intern("first"));
  naive["first"] = NameId{0};
  for (int i = 0; i < 50'000; ++i) {
    std::string text(random.below(24), ' ');
    for (char& c : text) c = static_cast<char>('a' + random.below(3));
    const auto [place, is_new] = naive.try_emplace(text, NameId{static_cast<std::uint32_t>(naive.size())});
    ASSERT_EQ(table.intern(text), place->second);
  }
  ASSERT_EQ(table.size(), naive.size());
  for (const auto& [text, id] : naive) ASSERT_EQ(table.text(id), text);
  EXPECT_EQ(first.data(), table.text(NameId{0}).data());
}

TEST(InternTable, MovesWithItsViewsAndDoesNotCopy) {
  static_assert(!std::is_copy_constructible_v<InternTable> && !std::is_copy_assignable_v<InternTable>);
  InternTable table;
  const std::string_view view = table.text(table.intern("short"));
  const InternTable moved = std::move(table);
  EXPECT_EQ(moved.text(NameId{0}).data(), view.data());
}

TEST(HashBytes, DiffersForAllShortTexts) {
  std::set<std::uint64_t> hashes;
  std::size_t count = 0;
  for (std::size_t length = 0; length <= 40; ++length) {
    for (char c = 'a'; c <= 'z'; ++c) {
      for (std::size_t at = 0; at < std::max<std::size_t>(length, 1); ++at) {
        std::string text(length, '.');
        if (length > 0) text[at] = c;
        if (length == 0 && c != 'a') continue;
        hashes.insert(hash_bytes(text));
        ++count;
      }
    }
  }
  EXPECT_EQ(hashes.size(), count);
}

}  // namespace
}  // namespace paceline::base
