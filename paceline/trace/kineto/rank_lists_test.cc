#include "paceline/trace/kineto/rank_lists.h"

#include <gtest/gtest.h>

#include <numeric>

namespace paceline::trace::kineto {
namespace {

/// Thirty entries from `first` in steps of `stride`, then "...", as torch/csrc/profiler/util.cpp cuts them.
std::string cut_list(int first, int stride) {
  std::string text = "[";
  for (int i = 0; i < 30; ++i) text += std::to_string(first + i * stride) + ", ";
  return text + "...]";
}

TEST(RankLists, ShortOnesStayAsTheyAre) {
  EXPECT_EQ(canonical_ranks({"[0, 1, 2, 3]", 4}), "[0, 1, 2, 3]");
  EXPECT_EQ(canonical_ranks({"[0,8,16]", 3}), "[0, 8, 16]");
  EXPECT_EQ(canonical_ranks({"", -1}), "");
}

TEST(RankLists, OneGroupHasOneNameHoweverTheTraceTellsIt) {
  std::string whole = "[0";
  for (int rank = 1; rank < 64; ++rank) whole += ", " + std::to_string(rank);
  whole += "]";
  std::vector<std::int32_t> listed(64);
  std::iota(listed.begin(), listed.end(), 0);
  EXPECT_EQ(canonical_ranks({whole, 64}), "[0-63]");
  EXPECT_EQ(canonical_ranks({cut_list(0, 1), 64, 0, 1}), "[0-63]");
  EXPECT_EQ(canonical_ranks({cut_list(0, 1), 64, -1, -1, &listed}), "[0-63]");
  EXPECT_EQ(canonical_ranks({"[]", 64, 0, 1}), "[0-63]") << "the default group";
  EXPECT_EQ(canonical_ranks({cut_list(3, 8), 64, 3, 8}), "[3-507 by 8]");
}

TEST(RankLists, OfTwoGroupsThatBeginAlikeStayApart) {
  EXPECT_NE(canonical_ranks({cut_list(0, 1), 64}), canonical_ranks({cut_list(0, 1), 128}));
  EXPECT_NE(canonical_ranks({cut_list(0, 1), 64}), canonical_ranks({cut_list(64, 1), 64}));
  EXPECT_EQ(canonical_ranks({cut_list(0, 1), 64}).find("..."), std::string::npos);
}

TEST(RankLists, StartAndStrideThatContradictTheListAreNotBelieved) {
  const std::string text = canonical_ranks({cut_list(0, 1), 64, 0, 2});
  EXPECT_NE(text, "[0-126 by 2]");
  EXPECT_NE(text.find("and 34 more"), std::string::npos);
}

TEST(RankLists, WhatIsNoListIsNone) {
  for (const char* text : {"", "0, 1", "[0, x]", "[-1, 2]", "[0, 1", "[99999999999999]"}) {
    EXPECT_FALSE(parse_rank_list(text)) << text;
  }
  EXPECT_TRUE(parse_rank_list("[]")->ranks.empty());
}

}  // namespace
}  // namespace paceline::trace::kineto
