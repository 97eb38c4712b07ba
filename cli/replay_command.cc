#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/output.h"
#include "paceline/base/error.h"
#include "paceline/replay/roles.h"
#include "paceline/report/stragglers.h"

namespace paceline::cli {
namespace {

struct Options {
  std::vector<std::string> inputs;
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
  for (const trace::RankSummary& rank : loaded.trace.ranks) job.code = std::max(job.code, report_damage(rank));
  return job;
}

int run(const Options& options) {
  if (!options.without_stragglers) {
    throw Error(ErrorKind::kUsage, "replay", "nothing to ask; give --without-stragglers");
  }
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
      "  paceline replay examples/slow_rank --without-stragglers\n"
      "  paceline replay timeline.json.gz --without-stragglers --json\n"
      "TRACES are the PyTorch profiler's traces of all ranks, or one ndtimeline (veScale, StragglerAnalysis).");
  command->add_option("TRACES", options->inputs, "Trace files, directories or patterns of one job")->required();
  command->add_flag("--without-stragglers", options->without_stragglers,
                    "If all workers were alike: the gain, who is to blame, what the repair of each worker wins");
  command->add_flag("--json", options->json, "The result for machines, on standard output");
  command->add_option("--rows", options->rows, "Rows of the table of workers (default 12)");
  command->callback([options, &chosen] { chosen = [options] { return run(*options); }; });
}

}  // namespace paceline::cli
