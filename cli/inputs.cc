#include "cli/inputs.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>

namespace paceline::cli {

std::string quoted(const std::string& text) {
  constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./+:,=@";
  if (!text.empty() && text.find_first_not_of(kPlain) == std::string::npos) return text;
  std::string result = "'";
  for (const char c : text) result += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return result + "'";
}

std::string command_line_of(const std::vector<std::string>& inputs, const trace::LoadOptions& load) {
  std::string text;
  for (const std::string& input : inputs) text += (text.empty() ? "" : " ") + quoted(input);
  const auto option = [&](const char* name, const std::string& value) {
    if (!value.empty()) text += fmt::format(" {} {}", name, quoted(value));
  };
  option("--trace-glob", load.glob);
  option("--rank-regex", load.rank_regex);
  option("--capture", load.capture);
  option("--hosts", load.hosts);
  return text;
}

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
