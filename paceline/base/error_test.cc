#include "paceline/base/error.h"

#include <gtest/gtest.h>

namespace paceline {
namespace {

TEST(Error, SaysWhereAndWhat) {
  const Error error(ErrorKind::kBadInput, "trace.json:3", "no name; give one");
  EXPECT_STREQ(error.what(), "trace.json:3: no name; give one");
  EXPECT_EQ(error.where(), "trace.json:3");
  EXPECT_STREQ(Error(ErrorKind::kUsage, "", "no input").what(), "no input");
}

TEST(Error, KindsAreTheDocumentedExitCodes) {
  EXPECT_EQ(Error(ErrorKind::kBoundBroken, "", "").exit_code(), 1);
  EXPECT_EQ(Error(ErrorKind::kUsage, "", "").exit_code(), 2);
  EXPECT_EQ(Error(ErrorKind::kBadInput, "", "").exit_code(), 3);
  EXPECT_EQ(Error(ErrorKind::kInfeasible, "", "").exit_code(), 4);
  EXPECT_EQ(Error(ErrorKind::kSystem, "", "").exit_code(), 5);
  EXPECT_EQ(Error(ErrorKind::kDamagedInput, "", "").exit_code(), 6);
  EXPECT_EQ(Error(ErrorKind::kBug, "", "").exit_code(), 70);
  EXPECT_EQ(Error(ErrorKind::kInterrupted, "", "").exit_code(), 130);
}

TEST(Error, AFailedCheckIsABugOfOursWithItsPlace) {
  try {
    PL_CHECK(1 + 1 == 3);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kBug);
    EXPECT_NE(error.where().find("error_test.cc:"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("1 + 1 == 3"), std::string::npos);
  }
}

}  // namespace
}  // namespace paceline
