#pragma once
#include <map>
#include <string>
#include <vector>

namespace paceline::cli {

inline constexpr int kNotFound = 127, kNotExecutable = 126, kSignalBase = 128;  // exit codes, as shells have them

/// How a command ended.
struct Outcome {
  int exit_code = 0;  // kSignalBase + n when signal n ended it
  bool started = true;
  bool by_signal = false;
  double cpu_seconds = 0;  // its own and of all children that it waited for
  double wall_seconds = 0;
};

/// Runs `command` to its end with `variables` set in its environment. Signals that are sent to this process are passed
/// on; a terminal sends Ctrl-C to the command by itself. One line on standard error when it cannot be started.
/// With `discard_output` it reads nothing and what it writes to standard output is lost.
Outcome run_command(const std::vector<std::string>& command, const std::map<std::string, std::string>& variables,
                    bool discard_output);

}  // namespace paceline::cli
