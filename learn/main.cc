// paceline-learn: trains policies. `paceline schedule learn` runs it.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "learn/learn.h"
#include "paceline/base/error.h"
#include "paceline/base/file.h"
#include "paceline/base/parallel.h"

int main(int argc, char** argv) {
  using namespace paceline;
  CLI::App app{"Trains what the paceline command runs.", "paceline-learn"};
  app.require_subcommand(1);
  learn::Setting setting;
  learn::SearchOptions search;
  learn::WarmUpOptions warm_up;
  std::string out;
  int threads = 0;
  CLI::App* step = app.add_subcommand("schedule", "Policy search for the step policy");
  CLI::App* windowed = app.add_subcommand("schedule-warm-up", "DL2's windowed network from a rule's decisions");
  for (CLI::App* command : {step, windowed}) {
    command->add_option("--speeds", setting.speeds, "DL2's table of measured speeds")
        ->required()
        ->check(CLI::ExistingFile);
    command->add_option("--arrivals", setting.arrivals, "Arrival patterns")->required()->check(CLI::ExistingFile);
    command->add_option("--nodes", setting.cluster.nodes, "Nodes")->check(CLI::PositiveNumber);
    command->add_option("--slot", setting.cluster.slot_seconds, "Seconds of a slot")->check(CLI::PositiveNumber);
    command->add_option("--restart", setting.cluster.restart_seconds, "Seconds lost when an allocation changes");
    command->add_option("--seed", setting.seed, "Seed");
    command->add_option("--threads", threads, "Threads (default: all cores)");
    command->add_option("--out", out, "Where the policy goes")->required();
  }
  step->add_option("--seconds", search.seconds, "Wall time to spend");
  step->add_option("--iterations", search.iterations, "At most so many iterations");
  step->add_option("--traces", search.traces, "Traces an iteration");
  windowed->add_option("--teacher", warm_up.teacher, "DRF, DRF-repaired, Optimus or Optimus-repaired");
  windowed->add_option("--window", warm_up.window, "Jobs in the window");
  windowed->add_option("--passes", warm_up.passes, "Passes over the decisions");
  windowed->add_option("--hidden", warm_up.hidden, "Neurons of a layer");
  CLI11_PARSE(app, argc, argv);
  base::set_threads(threads);
  // Arrivals of the patterns are in 20-minute slots.
  setting.cluster.slots_per_arrival = std::max(1, static_cast<int>(1200 / setting.cluster.slot_seconds + 0.5));
  try {
    base::Json result = base::make_result("schedule-policy", 1);
    base::Json learned;
    if (step->parsed()) {
      learned = learn::search_step_policy(setting, search);
    } else {
#ifdef PACELINE_LEARN_TORCH
      learned = learn::warm_up_windowed(setting, warm_up);
#else
      throw Error(ErrorKind::kSystem, "paceline-learn",
                  "was built without libtorch; install libtorch-dev and build again");
#endif
    }
    result.update(learned);
    base::write_text_file(out, base::to_text(result));
    learned.erase("network");
    fmt::print("{}\n", learned.dump());
    return 0;
  } catch (const Error& error) {
    fmt::print(stderr, "paceline-learn: {}\n", error.what());
    return error.exit_code();
  }
}
