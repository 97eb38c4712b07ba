#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "cli/command.h"
#include "cli/output.h"
#include "paceline/base/error.h"
#include "paceline/report/chrome.h"
#include "paceline/trace/load.h"

namespace paceline::cli {
namespace {

struct Options {
  std::vector<std::string> inputs;
  std::string output;
  bool raw_clocks = false;
};

int run(const Options& options) {
  trace::Loaded loaded = trace::load(options.inputs);
  std::vector<trace::Clock> clocks;
  if (!options.raw_clocks && loaded.ranks.size() > 1) clocks = trace::load_job(options.inputs).clocks;
  for (const std::string& warning : loaded.warnings) fmt::print(stderr, "paceline: {}\n", warning);
  report::write_chrome(loaded.ranks, clocks, options.output);
  fmt::print(stderr, "wrote {} ({} rank{})\n", options.output, loaded.ranks.size(),
             loaded.ranks.size() == 1 ? "" : "s");
  int code = 0;
  for (const trace::RankTrace& rank : loaded.ranks) {
    if (!rank.repairs.lost_data()) continue;
    print_damage(rank);
    code = static_cast<int>(ErrorKind::kDamagedInput);
  }
  return code;
}

}  // namespace

void add_convert(CLI::App& app, Run& chosen) {
  const auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("convert", "Traces as one clean Chrome/Perfetto file on one clock");
  command->footer(
      "Example:\n"
      "  paceline convert examples/slow_rank job.json    # then open it at ui.perfetto.dev");
  command->add_option("IN", options->inputs, "Trace files, directories or patterns")->required()->expected(1, -1);
  command->add_option("OUT", options->output, "File to write")->required();
  command->add_flag("--raw-clocks", options->raw_clocks, "Keep each rank's own clock");
  command->callback([options, &chosen] { chosen = [options] { return run(*options); }; });
}

}  // namespace paceline::cli
