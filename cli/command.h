#pragma once
#include <functional>

namespace CLI {
class App;
}

namespace paceline::cli {

/// A subcommand adds itself to `app`; when it was chosen, `run` is set to what it does, which returns the exit code.
using Run = std::function<int()>;
void add_diagnose(CLI::App& app, Run& run);
void add_compare(CLI::App& app, Run& run);
void add_replay(CLI::App& app, Run& run);
void add_tune(CLI::App& app, Run& run);
void add_convert(CLI::App& app, Run& run);
void add_record(CLI::App& app, Run& run);
void add_memory(CLI::App& app, Run& run);
void add_schedule(CLI::App& app, Run& run);
void add_gnn(CLI::App& app, Run& run);

}  // namespace paceline::cli
