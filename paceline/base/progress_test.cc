#include "paceline/base/progress.h"

#include <gtest/gtest.h>

namespace paceline::base {
namespace {

TEST(Progress, IsSilentWhenStandardErrorIsNoTerminal) {
  testing::internal::CaptureStderr();  // a file
  {
    Progress progress("reading", 10);
    for (int i = 0; i < 10; ++i) progress.advance(1);
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST(Progress, TellsATerminalOnly) {
  testing::internal::CaptureStderr();
  tell_terminal("half of it");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

}  // namespace
}  // namespace paceline::base
