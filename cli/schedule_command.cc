#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/output.h"
#include "paceline/base/error.h"
#include "paceline/base/file.h"
#include "paceline/base/json.h"
#include "paceline/schedule/compare.h"

namespace paceline::cli {
namespace {

int simulate(schedule::CompareOptions options, const std::vector<std::string>& inputs, bool json) {
  options.workloads = base::expand_inputs(inputs);
  const auto results = schedule::compare_policies(options);
  print_result(json ? base::to_text(schedule::to_json(results)) : schedule::to_text(results));
  return 0;
}

void add_simulate(CLI::App& schedule, Run& chosen) {
  struct Options {
    schedule::CompareOptions compare;
    std::vector<std::string> inputs;
    bool json = false;
  };
  const auto options = std::make_shared<Options>();
  CLI::App* command = schedule.add_subcommand("simulate", "Policies on a workload, in an exact simulator");
  command->footer(
      "Example:\n"
      "  paceline schedule simulate workload-6.csv --profiles traces --policy Tiresias,Optimus,Pollux,Paceline\n"
      "  paceline schedule simulate sacct.txt --nodes 16 --gpus-per-node 8 --policy FIFO,backfill\n"
      "Workloads: Pollux, Philly, Tiresias, Alibaba, Gavel, SWF, sacct -P, DL2; each asks for its simulator.");
  command->add_option("WORKLOAD", options->inputs, "Workload files, directories or patterns")->required();
  command->add_option("--policy", options->compare.policies, "Policies, comma-separated (default: all)")->delimiter(',');
  command->add_option("--profiles", options->compare.profiles, "Measured speeds: folder of applications, or DL2's table");
  command->add_option("--nodes", options->compare.nodes, "Nodes of the cluster")->check(CLI::PositiveNumber);
  command->add_option("--gpus-per-node", options->compare.gpus_per_node, "GPUs of a node")->check(CLI::Range(1, 255));
  command->add_option("--slot", options->compare.slot_seconds, "Seconds between decisions")->check(CLI::PositiveNumber);
  command->add_option("--restart", options->compare.restart_seconds, "Seconds lost when an allocation changes")
      ->check(CLI::NonNegativeNumber);
  command->add_option("--interference", options->compare.interference, "Slow-down of distributed jobs sharing a node")
      ->check(CLI::Range(0.0, 0.99));
  command->add_option("--learned", options->compare.learned, "Network of the policy Learned")->check(CLI::ExistingFile);
  command->add_option("--seed", options->compare.seed, "Seed of policies that search at random");
  command->add_flag("--timeline", options->compare.timeline, "Every change of an allocation, in the JSON");
  command->add_flag("--json", options->json, "The result for machines, on standard output");
  command->callback([options, &chosen] {
    chosen = [options] { return simulate(options->compare, options->inputs, options->json); };
  });
}

}  // namespace

void add_schedule(CLI::App& app, Run& chosen) {
  CLI::App* command = app.add_subcommand("schedule", "Who gets which GPUs: simulate, backtest, explain, learn");
  command->require_subcommand(1);
  add_simulate(*command, chosen);
}

}  // namespace paceline::cli
