#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cli/run_command.h"
#include "paceline/base/json.h"

namespace paceline::cli {

/// Where the hook of `record` tells of each rank; hidden, so that readers of traces pass it over.
inline constexpr const char* kNotes = ".notes";

/// A run of `record`: what was asked for, how the command ended, and what the hook left of each rank.
struct Recording {
  std::string out;  // as the user wrote it
  std::filesystem::path folder;
  std::vector<std::string> command;
  int first_step = 0, steps = 0;  // asked for
  bool join = false;              // other hosts record into the same folder
  Outcome outcome;
  std::optional<Outcome> plain;  // the same command without recording

  std::map<std::int64_t, base::Json> ranks;  // by rank: its note
  bool python = false, torch = false, without_rank = false;
};

/// Reads the hook's notes in `recording.folder`. A launcher that was interrupted may end before its ranks: those of
/// this host that are still writing get some seconds to finish.
void read_notes(Recording& recording);

bool anything_recorded(const Recording& recording);
/// The most likely reason that nothing was.
std::string why_nothing(const Recording& recording);

/// Schema paceline/recording/1.
base::Json manifest_of(const Recording& recording);

/// What was recorded, what is missing and why, what it cost and what to do next: lines for standard error.
std::string summary_text(const Recording& recording);

}  // namespace paceline::cli
