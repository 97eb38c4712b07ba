#include <fmt/core.h>

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/output.h"
#include "paceline/base/error.h"
#include "paceline/base/file.h"
#include "paceline/base/json.h"
#include "paceline/schedule/compare.h"
#include "paceline/schedule/explain.h"
#include "paceline/schedule/history.h"
#include "paceline/schedule/workload.h"

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
  command->add_option("--policy", options->compare.policies, "Policies, comma-separated (default: all)")
      ->delimiter(',');
  command->add_option("--profiles", options->compare.profiles,
                      "Measured speeds: folder of applications, or DL2's table");
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

struct ClusterOptions {
  int nodes = 0, gpus_per_node = 8;
};

void add_cluster_options(CLI::App& command, ClusterOptions& cluster) {
  command.add_option("--nodes", cluster.nodes, "Nodes of the cluster")->required()->check(CLI::PositiveNumber);
  command.add_option("--gpus-per-node", cluster.gpus_per_node, "GPUs of a node (default 8)")->check(CLI::Range(1, 255));
}

schedule::QueueRule rule_of(const std::string& name) {
  if (name == "current") return schedule::QueueRule::kBackfill;
  if (const auto rule = schedule::find_queue_rule(name)) return *rule;
  std::string known = "current";
  for (const std::string& rule : schedule::policy_names("rigid")) known += ", " + rule;
  throw Error(ErrorKind::kUsage, "--policies", "'" + name + "' is none of " + known);
}

void add_backtest(CLI::App& schedule, Run& chosen) {
  struct Options {
    std::string history, incumbent = "backfill";
    std::vector<std::string> policies{"current", "FIFO", "shortest-first", "fair-share"};
    ClusterOptions cluster;
    bool json = false;
  };
  const auto options = std::make_shared<Options>();
  CLI::App* command = schedule.add_subcommand("backtest", "The recorded past under the incumbent and other policies");
  command->footer(
      "Example:\n"
      "  sacct -P -a -S 2025-01-01 -o JobID,JobName,Partition,Submit,Start,End,Timelimit,AllocTRES,State > "
      "history.txt\n"
      "  paceline schedule backtest history.txt --nodes 16 --gpus-per-node 8 --policies current,shortest-first\n"
      "First how faithfully the incumbent is replayed, only then the others.");
  command->add_option("HISTORY", options->history, "sacct -P, SWF, Alibaba: jobs with start and end")->required();
  command->add_option("--incumbent", options->incumbent, "The rule that ran (default backfill)");
  command->add_option("--policies", options->policies, "Comma-separated; 'current' is the incumbent")->delimiter(',');
  add_cluster_options(*command, options->cluster);
  command->add_flag("--json", options->json, "The result for machines, on standard output");
  command->callback([options, &chosen] {
    chosen = [options] {
      const schedule::QueueRule incumbent = rule_of(options->incumbent);
      std::vector<schedule::QueueRule> rules;
      for (const std::string& name : options->policies) rules.push_back(name == "current" ? incumbent : rule_of(name));
      const auto result = schedule::backtest(schedule::read_workload(options->history), incumbent, rules,
                                             {{options->cluster.nodes, options->cluster.gpus_per_node}});
      print_result(options->json ? base::to_text(schedule::to_json(result)) : schedule::to_text(result));
      return 0;
    };
  });
}

void add_generate(CLI::App& schedule, Run& chosen) {
  const auto generator = std::make_shared<schedule::HistoryGenerator>();
  CLI::App* command = schedule.add_subcommand("generate", "A made-up history as sacct -P prints it, by seed");
  command->add_option("--days", generator->days, "Days (default 30)")->check(CLI::Range(1, 3650));
  command->add_option("--nodes", generator->cluster.nodes, "Nodes (default 8)")->check(CLI::PositiveNumber);
  command->add_option("--gpus-per-node", generator->cluster.gpus_per_node, "GPUs of a node (default 8)")
      ->check(CLI::Range(1, 255));
  command->add_option("--load", generator->load, "GPU time asked for, of all (default 0.85)")
      ->check(CLI::Range(0.01, 2.0));
  command->add_option("--seed", generator->seed, "Seed");
  command->callback([generator, &chosen] {
    chosen = [generator] {
      print_result(schedule::to_sacct(schedule::generate_history(*generator)));
      return 0;
    };
  });
}

void add_eta(CLI::App& schedule, Run& chosen) {
  struct Options {
    std::vector<std::string> jobs;
    std::string history, at;
    ClusterOptions cluster;
    int draws = 200;
    bool json = false;
  };
  const auto options = std::make_shared<Options>();
  CLI::App* command = schedule.add_subcommand("eta", "When a waiting job will start and end, with an 80 % band");
  command->footer(
      "Example:\n"
      "  paceline schedule eta 1234 --history history.txt --at 2025-01-20T12:00:00 --nodes 8");
  command->add_option("JOB", options->jobs, "Jobs that wait; each at --at, or at the moment it was submitted")
      ->required();
  command->add_option("--history", options->history, "sacct -P with the jobs around that moment")->required();
  command->add_option("--at", options->at, "The moment, UTC");
  command->add_option("--draws", options->draws, "Simulated futures (default 200)")->check(CLI::Range(10, 100000));
  add_cluster_options(*command, options->cluster);
  command->add_flag("--json", options->json, "The result for machines, on standard output");
  command->callback([options, &chosen] {
    chosen = [options] {
      const schedule::Workload history = schedule::read_workload(options->history);
      std::vector<schedule::EtaRow> rows;
      for (const std::string& job : options->jobs)
        rows.push_back(schedule::eta_from_history(
            history, job, options->at,
            {{{options->cluster.nodes, options->cluster.gpus_per_node}}, options->draws, 1}));
      print_result(options->json ? base::to_text(schedule::to_json(rows)) : schedule::to_text(rows));
      return 0;
    };
  });
}

void add_why(CLI::App& schedule, Run& chosen) {
  struct Options {
    std::string job;
    std::vector<std::string> snapshots;
    bool json = false;
  };
  const auto options = std::make_shared<Options>();
  CLI::App* command = schedule.add_subcommand("why", "Why a job waits, who is ahead, what would unblock it");
  command->footer(
      "Example:\n"
      "  squeue --json > queue.json; scontrol show nodes --json > nodes.json\n"
      "  paceline schedule why 1234 queue.json nodes.json\n"
      "  kubectl get workloads,clusterqueues -A -o json > kueue.json; paceline schedule why my-job kueue.json\n"
      "Reads only.");
  command->add_option("JOB", options->job, "The job")->required();
  command->add_option("SNAPSHOT", options->snapshots, "JSON of Slurm or Kueue")->required();
  command->add_flag("--json", options->json, "The result for machines, on standard output");
  command->callback([options, &chosen] {
    chosen = [options] {
      schedule::ClusterSnapshot snapshot;
      for (const std::string& path : options->snapshots)
        schedule::add_document(snapshot, base::parse_json(schedule::read_document_text(path), path), path);
      const schedule::Why why = schedule::explain(snapshot, options->job);
      print_result(options->json ? base::to_text(schedule::to_json(why)) : schedule::to_text(why));
      return 0;
    };
  });
}

void add_learn(CLI::App& schedule, Run& chosen) {
  const auto arguments = std::make_shared<std::vector<std::string>>();
  CLI::App* command = schedule.add_subcommand("learn", "Train a policy (runs the helper program paceline-learn)");
  command->footer(
      "Example:\n"
      "  paceline schedule learn --speeds config_speed.txt --arrivals arrival_patterns.json --nodes 24 --out "
      "policy.json\n"
      "  paceline schedule simulate trace-01.csv --profiles config_speed.txt --nodes 24 --learned policy.json\n"
      "All options: paceline-learn schedule --help");
  command->prefix_command();
  command->callback([command, arguments, &chosen] {
    *arguments = command->remaining();
    chosen = [arguments]() -> int {
      const auto helper =
          std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path() / "libexec/paceline-learn";
      std::vector<std::string> words{helper.string(), "schedule"};
      words.insert(words.end(), arguments->begin(), arguments->end());
      std::vector<char*> pointers;
      for (std::string& word : words) pointers.push_back(word.data());
      pointers.push_back(nullptr);
      ::execv(helper.c_str(), pointers.data());
      throw Error(ErrorKind::kSystem, helper.string(), "cannot be run; build it with the target paceline-learn");
    };
  });
}

}  // namespace

void add_schedule(CLI::App& app, Run& chosen) {
  CLI::App* command = app.add_subcommand("schedule", "Who gets which GPUs: simulate, backtest, explain, learn");
  command->require_subcommand(1);
  add_simulate(*command, chosen);
  add_backtest(*command, chosen);
  add_eta(*command, chosen);
  add_why(*command, chosen);
  add_learn(*command, chosen);
  add_generate(*command, chosen);
}

}  // namespace paceline::cli
