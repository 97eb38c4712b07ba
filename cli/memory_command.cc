#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>

#include "cli/command.h"
#include "cli/output.h"
#include "paceline/report/memory.h"
#include "paceline/trace/memory/memory.h"

namespace paceline::cli {
namespace {

struct Options {
  std::vector<std::string> inputs;
  bool json = false;
  std::size_t rows = 10;
};

int run(const Options& options) {
  const std::vector<trace::RankMemory> ranks = trace::load_memory(options.inputs);
  print_result(options.json ? report::memory_json(ranks) : report::memory_text(ranks, options.rows));
  int code = 0;
  for (const trace::RankMemory& rank : ranks) code = std::max(code, report_damage(rank.header));
  return code;
}

}  // namespace

void add_memory(CLI::App& app, Run& chosen) {
  const auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("memory", "The peak of each device's memory, and whose bytes they were");
  command->footer(
      "Example:\n"
      "  paceline memory 'traces/rank*.json.gz' --rows 20\n"
      "Reads traces of the PyTorch profiler with allocator events: profile(profile_memory=True, record_shapes=True).\n"
      "Exit codes: 0 fine, 2 usage, 3 bad input, 5 system, 6 damaged input (the result is from what was readable).");
  command->add_option("TRACES", options->inputs, "Trace files, directories or patterns")->required();
  command->add_flag("--json", options->json, "The result for machines, on standard output");
  command->add_option("--rows", options->rows, "Rows of the table of owners (default 10)");
  command->callback([options, &chosen] { chosen = [options] { return run(*options); }; });
}

}  // namespace paceline::cli
