#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/output.h"
#include "paceline/base/error.h"
#include "paceline/replay/forecast.h"
#include "paceline/replay/roles.h"
#include "paceline/replay/what_if.h"
#include "paceline/report/forecast.h"
#include "paceline/report/stragglers.h"

namespace paceline::cli {
namespace {

struct Options {
  std::vector<std::string> inputs;
  std::vector<std::string> edits;
  std::uint64_t seed = 1;
  bool without_stragglers = false, json = false;
  std::size_t rows = 12;
  trace::JobOptions job;
};

/// A recorded job as a graph, and who does what in it.
struct Job {
  taskgraph::TaskGraph graph;
  replay::Roles roles;
  int code = 0;
};

Job load(const Options& options) {
  if (options.inputs.size() == 1) {
    if (const auto recording = trace::ndtimeline::load(options.inputs.front())) {
      trace::ndtimeline::PipelineGraph job = trace::ndtimeline::build_graph(*recording);
      for (const std::string& step : job.left_out) fmt::print(stderr, "left out {}\n", step);
      replay::Roles roles = replay::roles_of(*recording, job);
      return {std::move(job.graph), std::move(roles), report_damage(recording->header)};
    }
  }
  trace::LoadedGraph loaded = trace::load_graph(options.inputs, options.job);
  replay::Roles roles = replay::roles_of(loaded.trace, loaded.job);
  Job job{std::move(loaded.job.graph), std::move(roles)};
  for (const std::string& warning : loaded.trace.warnings) fmt::print(stderr, "{}\n", warning);
  job.code = report_damage(loaded.trace);
  return job;
}

/// What the edits change, as a forecast of the step.
int run_edits(const Options& options) {
  std::vector<replay::Edit> edits;
  for (const std::string& text : options.edits) edits.push_back(replay::parse_edit(text));
  const trace::LoadedGraph loaded = trace::load_graph(options.inputs, options.job);
  for (const std::string& warning : loaded.trace.warnings) fmt::print(stderr, "{}\n", warning);
  if (loaded.job.steps.empty()) {
    throw Error(ErrorKind::kInfeasible, "replay",
                "no rank has a thread that drives steps, so there is no step to forecast");
  }
  const replay::Forecast forecast =
      replay::forecast(loaded.job, replay::delta_of(loaded.job.graph, edits), options.seed);
  print_result(options.json ? base::to_text(replay::to_json(forecast, loaded.job, options.edits))
                            : report::forecast_text(forecast, loaded.job, options.edits));
  return report_damage(loaded.trace);
}

int run(const Options& options) {
  if (options.without_stragglers && !options.edits.empty()) {
    throw Error(ErrorKind::kUsage, "replay", "--without-stragglers and --set are two questions; ask one");
  }
  if (!options.without_stragglers) return run_edits(options);
  const Job job = load(options);
  const replay::Stragglers found = replay::find_stragglers(job.graph, job.roles);
  print_result(options.json ? base::to_text(replay::to_json(found)) : report::stragglers_text(found, options.rows));
  return job.code;
}

}  // namespace

void add_replay(CLI::App& app, Run& chosen) {
  const auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("replay", "How long would a recorded job take if ...");
  command->footer(
      "Example:\n"
      "  paceline replay examples/slow_rank --set host:load_batch@2=0\n"
      "  paceline replay traces --set 'kernel:*gemm*=x0.8' --set 'link:*=x2'\n"
      "  paceline replay examples/slow_rank --without-stragglers\n"
      "  paceline replay timeline.json.gz --without-stragglers --json\n"
      "TRACES are the PyTorch profiler's traces of all ranks, or one ndtimeline (veScale, StragglerAnalysis).");
  command->add_option("TRACES", options->inputs, "Trace files, directories or patterns of one job")->required();
  command->add_option(
      "--set", options->edits,
      "An edit TARGET[:PATTERN][@RANKS]=VALUE, several one after the other. TARGET: kernel, op, span, host, "
      "rank, link (by pattern), launch, gap, ranks; VALUE: x0.8, 5us, +1ms, -1ms, 0. None: replay as it was");
  command->add_option("--seed", options->seed, "Of the ranges (default 1)");
  command->add_flag("--without-stragglers", options->without_stragglers,
                    "If all workers were alike: the gain, who is to blame, what the repair of each worker wins");
  command->add_flag("--json", options->json, "The result for machines, on standard output");
  command->add_option("--rows", options->rows, "Rows of the table of workers (default 12)");
  command->callback([options, &chosen] { chosen = [options] { return run(*options); }; });
}

}  // namespace paceline::cli
