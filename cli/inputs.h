#pragma once
#include <string>
#include <vector>

#include "paceline/trace/load.h"

namespace CLI {
class App;
}

namespace paceline::cli {

/// The options that say which traces are read, and how: the same for every command that reads a job.
void add_load_options(CLI::App& command, trace::LoadOptions& load);

/// As one word for a shell.
std::string quoted(const std::string& text);

/// The traces and how they are read, as on the command line; ranks and steps are left out.
std::string command_line_of(const std::vector<std::string>& inputs, const trace::LoadOptions& load);

}  // namespace paceline::cli
