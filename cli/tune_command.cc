#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/output.h"
#include "paceline/base/error.h"
#include "paceline/base/file.h"
#include "paceline/report/forecast.h"
#include "paceline/tune/tune.h"

namespace paceline::cli {
namespace {

struct Options {
  std::vector<std::string> inputs;
  bool json = false;
  std::string out;
  trace::JobOptions job;
  tune::TuneOptions tune;
};

int run(const Options& options) {
  const trace::LoadedGraph loaded = trace::load_graph(options.inputs, options.job);
  if (loaded.job.steps.empty()) {
    throw Error(
        ErrorKind::kInfeasible, "tune",
        "the traces mark no steps and no thread runs operators, so there is no step to make faster; record with "
        "profiler.step()");
  }
  const tune::Tuned tuned = tune::tune(loaded, options.tune);
  if (!options.out.empty()) {
    std::filesystem::create_directories(options.out);
    for (const tune::Verdict& verdict : tuned.verdicts) {
      for (const tune::Strategy::File& file : tuned.strategies[verdict.strategy].files) {
        const std::string path = (std::filesystem::path(options.out) / file.name).string();
        base::write_text_file(path, file.text);
        fmt::print(stderr, "wrote {}\n", path);
      }
    }
  }
  print_result(options.json ? base::to_text(tune::to_json(tuned, loaded.job)) : report::tune_text(tuned, loaded.job));
  return report_damage(loaded.trace);
}

}  // namespace

void add_tune(CLI::App& app, Run& chosen) {
  const auto options = std::make_shared<Options>();
  CLI::App* command =
      app.add_subcommand("tune", "What would make a recorded job faster, each change verified by replay");
  command->footer(
      "Example:\n"
      "  paceline tune examples/slow_rank\n"
      "  paceline tune traces --out plan      also the bucket plan as DDP, Horovod and BytePS read it\n"
      "Exit codes: 0 fine, 2 usage, 3 bad input, 4 nothing to tune, 5 system, 6 damaged input.");
  command->add_option("TRACES", options->inputs, "Trace files, directories or patterns, all ranks of one job")
      ->required();
  command->add_flag("--json", options->json, "The result for machines, on standard output");
  command->add_option("--out", options->out, "Write the plans for frameworks into this folder");
  command->add_option("--budget", options->tune.budget, "Graphs to replay at most (default 20000)")
      ->check(CLI::PositiveNumber);
  command->add_option("--seed", options->tune.seed, "Of the ranges (default 1)");
  command->callback([options, &chosen] { chosen = [options] { return run(*options); }; });
}

}  // namespace paceline::cli
