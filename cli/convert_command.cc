#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>

#include "cli/command.h"
#include "cli/output.h"
#include "paceline/base/parallel.h"
#include "paceline/report/chrome.h"
#include "paceline/trace/load.h"

namespace paceline::cli {
namespace {

struct Options {
  std::vector<std::string> paths;  // inputs, and last what to write
  bool raw_clocks = false;
};

int run(const Options& options) {
  const std::vector<std::string> inputs(options.paths.begin(), options.paths.end() - 1);
  const std::string& output = options.paths.back();
  trace::Loaded loaded = trace::load(inputs);
  std::vector<trace::Clock> clocks;
  if (!options.raw_clocks && loaded.ranks.size() > 1) {
    std::vector<trace::RankSummary> summaries(loaded.ranks.size());
    base::parallel_for(summaries.size(), [&](std::size_t i) { summaries[i] = trace::reduce(loaded.ranks[i]); });
    clocks = trace::assemble(std::move(summaries)).clocks;
  }
  for (const std::string& warning : loaded.warnings) fmt::print(stderr, "paceline: {}\n", warning);
  report::write_chrome(loaded.ranks, clocks, output);
  fmt::print(stderr, "wrote {} ({} rank{})\n", output, loaded.ranks.size(), loaded.ranks.size() == 1 ? "" : "s");
  int code = 0;
  for (const trace::RankTrace& rank : loaded.ranks) code = std::max(code, report_damage(rank));
  return code;
}

}  // namespace

void add_convert(CLI::App& app, Run& chosen) {
  const auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("convert", "Traces as one clean Chrome/Perfetto file on one clock");
  command->footer(
      "Example:\n"
      "  paceline convert examples/slow_rank job.json    # then open it at ui.perfetto.dev");
  // One list: a greedy list of inputs would leave nothing to OUT.
  command->add_option("IN OUT", options->paths, "Trace files, directories or patterns, and last the file to write")
      ->required()
      ->expected(2, -1)
      ->option_text("IN... OUT");
  command->add_flag("--raw-clocks", options->raw_clocks, "Keep each rank's own clock");
  command->callback([options, &chosen] { chosen = [options] { return run(*options); }; });
}

}  // namespace paceline::cli
