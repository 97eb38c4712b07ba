#include "cli/inputs.h"

#include <CLI/CLI.hpp>

namespace paceline::cli {

void add_load_options(CLI::App& command, trace::LoadOptions& options) {
  trace::LoadOptions* const load = &options;
  command.add_option("--trace-glob", load->glob, "Only files whose name matches, e.g. 'rank*_trace.json'");
  command.add_option("--rank-regex", load->rank_regex, "Where a path has its rank, e.g. 'gpu([0-9]+)'");
  command.add_option("--capture", load->capture, "Of several captures in one tree this one (default: the last)");
  command
      .add_option(
          "--ranks",
          [load](const CLI::results_t& text) {
            load->ranks = trace::Ranges(text.front(), "--ranks");
            return true;
          },
          "Only these ranks, e.g. 0-7,16")
      ->expected(1);
  command
      .add_option(
          "--steps",
          [load](const CLI::results_t& text) {
            load->steps = trace::Ranges(text.front(), "--steps");
            return true;
          },
          "Only these steps, by the numbers of ProfilerStep#N, e.g. 12-14")
      ->expected(1);
  command.add_option("--hosts", load->hosts,
                     "Where each rank runs: a file of lines 'RANK HOST' or 'HOST slots=8', or a list of nodes as Slurm "
                     "writes it, e.g. 'node[01-08]'");
}

}  // namespace paceline::cli
