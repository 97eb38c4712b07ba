#pragma once
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

/// The folder of outside data named by PACELINE_DATA; skips the test without it.
#define PACELINE_SCHEDULE_DATA(variable)                      \
  const char* variable##_root = std::getenv("PACELINE_DATA"); \
  if (!variable##_root) GTEST_SKIP() << "SKIPPED: no data";   \
  const std::filesystem::path variable = std::filesystem::path(variable##_root) / "dl2"
