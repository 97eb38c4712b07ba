#include <fmt/core.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/inputs.h"
#include "cli/output.h"
#include "paceline/base/error.h"
#include "paceline/base/file.h"
#include "paceline/base/json.h"
#include "paceline/diagnose/diagnosis.h"
#include "paceline/report/html.h"
#include "paceline/report/text.h"
#include "paceline/report/timeline.h"

namespace paceline::cli {
namespace {

struct Options {
  std::vector<std::string> inputs;
  bool json = false;
  bool faults = false;
  std::string html;
  std::string timeline;  // ranks, "none", or empty for a choice of ours
  report::TimelineOptions timeline_options;
  trace::JobOptions job;
  report::TextOptions text;
};

std::string timeline(const Options& options, const diagnose::Diagnosis& diagnosis, const trace::Trace& trace) {
  if (options.timeline == "none") return "null";
  report::TimelineOptions wanted = options.timeline_options;
  if (!options.timeline.empty()) wanted.ranks = trace::Ranges(options.timeline, "--timeline");
  return report::read_timeline(options.inputs, options.job.load, diagnosis, trace, wanted);
}

int run(const Options& options) {
  if (options.faults) {
    print_result(diagnose::fault_catalogue());
    return 0;
  }
  if (options.inputs.empty()) {
    throw Error(ErrorKind::kUsage, "diagnose",
                "no traces given; name files, directories or patterns, see paceline --help");
  }
  const trace::Trace trace = trace::load_job(options.inputs, options.job);
  const diagnose::Diagnosis diagnosis = diagnose::diagnose(trace);
  if (options.json || !options.html.empty()) {
    const std::string json = base::to_text(diagnose::to_json(diagnosis, trace));
    if (!options.html.empty()) {
      base::write_text_file(options.html, report::diagnosis_page(json, timeline(options, diagnosis, trace)));
      fmt::print(stderr, "wrote {}\n", options.html);
    }
    if (options.json) print_result(json);
  }
  if (!options.json) print_result(report::diagnosis_text(diagnosis, trace, options.text));
  int code = 0;
  for (const trace::RankSummary& rank : trace.ranks) code = std::max(code, report_damage(rank));
  return code;
}

}  // namespace

void add_diagnose(CLI::App& app, Run& chosen) {
  const auto options = std::make_shared<Options>();
  CLI::App* command =
      app.add_subcommand("diagnose", "Where the time of a training job went and which rank is to blame");
  command->footer(
      "Example:\n"
      "  paceline diagnose examples/slow_rank\n"
      "  paceline diagnose 'traces/rank*.json.gz' --html report.html\n"
      "  paceline diagnose profile_trace --capture iteration_20 --steps 18-20 --hosts \"$SLURM_JOB_NODELIST\"\n"
      "Reads traces of the PyTorch profiler: files, directories, patterns, .gz, .zst, .tar.\n"
      "Exit codes: 0 fine, 2 usage, 3 bad input, 5 system, 6 damaged input (the result is from what was readable).");
  command->add_option("TRACES", options->inputs, "Trace files, directories or patterns, all ranks of one job");
  command->add_flag("--json", options->json, "The result for machines, on standard output");
  command->add_option("--html", options->html, "Also write one self-contained page to this file");
  command->add_option("--timeline", options->timeline,
                      "Ranks in the page's timeline, e.g. 0-3,16; 'none' leaves it out (default: the late rank and the "
                      "7 that wait longest for it)");
  command->add_option("--timeline-step", options->timeline_options.step,
                      "Step of the page's timeline, by the number of ProfilerStep#N (default: the median step)");
  add_load_options(*command, options->job.load);
  command->add_flag("--faults", options->faults, "Print the catalogue of faults that are told apart, and end");
  command->add_option("--rows", options->text.rows, "Rows of each table (default 10)");
  command->add_flag("--every-step", options->text.every_step, "A row for each step of each rank");
  command->add_flag("--skip-last-step", options->job.reduce.skip_last_step,
                    "Leave the last step out: it is often cut short");
  command->callback([options, &chosen] {
    const char* no_color = std::getenv("NO_COLOR");  // no-color.org: set and not empty
    options->text.color = isatty(STDOUT_FILENO) == 1 && (no_color == nullptr || *no_color == '\0');
    chosen = [options] { return run(*options); };
  });
}

}  // namespace paceline::cli
