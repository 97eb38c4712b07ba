#pragma once
#include "paceline/trace/load.h"

namespace CLI {
class App;
}

namespace paceline::cli {

/// The options that say which traces are read, and how: the same for every command that reads a job.
void add_load_options(CLI::App& command, trace::LoadOptions& load);

}  // namespace paceline::cli
