#include <fmt/core.h>
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/baseline.h"
#include "cli/command.h"
#include "cli/inputs.h"
#include "cli/output.h"
#include "paceline/base/error.h"
#include "paceline/base/file.h"
#include "paceline/base/json.h"
#include "paceline/base/progress.h"
#include "paceline/diagnose/diagnosis.h"
#include "paceline/diagnose/hang.h"
#include "paceline/diagnose/next.h"
#include "paceline/report/hang.h"
#include "paceline/report/html.h"
#include "paceline/report/text.h"
#include "paceline/report/timeline.h"

namespace paceline::cli {
namespace {

struct Options {
  std::vector<std::string> inputs;
  bool json = false;
  bool faults = false;
  std::string html, baseline, save, fail_on;
  std::string timeline;  // ranks, "none", or empty for a choice of ours
  report::TimelineOptions timeline_options;
  trace::JobOptions job;
  report::TextOptions text;
};

diagnose::Profile profile_of(const Options& options, const trace::Trace& trace) {
  return diagnose::profile_of(trace, fmt::format("{}", fmt::join(options.inputs, " ")));
}

struct Against {
  diagnose::Profile before, after;
  diagnose::Comparison comparison;
};

Against compare_with_baseline(const Options& options, const trace::Trace& trace, int& code) {
  // Ranks, steps and captures of one run are not those of the other.
  trace::JobOptions job = options.job;
  job.load.ranks = job.load.steps = {};
  job.load.capture = job.load.hosts = "";
  Against against{load_profile(options.baseline, job, code), profile_of(options, trace), {}};
  against.comparison = diagnose::compare(against.before, against.after);
  return against;
}

std::string timeline(const Options& options, const diagnose::Diagnosis& diagnosis, const trace::Trace& trace) {
  if (options.timeline == "none") return "null";
  report::TimelineOptions wanted = options.timeline_options;
  if (!options.timeline.empty()) wanted.ranks = trace::Ranges(options.timeline, "--timeline");
  return report::read_timeline(options.inputs, options.job.load, diagnosis, trace, wanted);
}

/// Who watches a long job being read need not wait for its last rank to know where this goes.
class EarlyVerdict {
 public:
  void preliminary(const trace::Trace& part, std::size_t files, std::size_t all) {
    const std::string verdict = report::verdict_text(diagnose::diagnose(part));
    if (verdict.empty()) return;
    base::tell_terminal(fmt::format("{} after {} ranks ({} of {} files), may change: {}",
                                    shown_ ? "Verdict" : "First verdict", part.ranks.size(), files, all, verdict));
    shown_ = true;
  }

  void last(const diagnose::Diagnosis& diagnosis) const {
    if (shown_) base::tell_terminal("Verdict after all files: " + report::verdict_text(diagnosis));
  }

 private:
  bool shown_ = false;
};

int run_hang(const Options& options) {
  const diagnose::HangVerdict verdict = diagnose::find_hang(trace::load_flight_dumps(options.inputs));
  print_result(options.json ? base::to_text(diagnose::to_json(verdict))
                            : report::hang_text(verdict, options.text.rows));
  return verdict.unreadable.empty() ? 0 : static_cast<int>(ErrorKind::kDamagedInput);
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
  if (trace::are_flight_dumps(options.inputs)) return run_hang(options);
  const StepBound bound(options.fail_on);
  if (!options.fail_on.empty() && options.baseline.empty()) {
    throw Error(ErrorKind::kUsage, "--fail-on", "compares with a run before; name it with --baseline");
  }
  EarlyVerdict early;
  trace::JobOptions job = options.job;
  if (isatty(STDERR_FILENO) == 1) {
    job.preview.show = [&](const auto& part, auto files, auto all) { early.preliminary(part, files, all); };
  }
  const trace::Trace trace = trace::load_job(options.inputs, job);
  diagnose::Diagnosis diagnosis = diagnose::diagnose(trace);
  early.last(diagnosis);
  add_next_commands(diagnosis, command_line_of(options.inputs, options.job.load));
  int code = report_damage(trace);
  std::optional<Against> against;
  if (!options.baseline.empty()) against = compare_with_baseline(options, trace, code);
  if (!options.save.empty()) save_profile(profile_of(options, trace), options.save);
  if (options.json || !options.html.empty()) {
    base::Json result = diagnose::to_json(diagnosis, trace);
    if (against) result["comparison"] = diagnose::to_json(against->comparison);
    const std::string json = base::to_text(result);
    if (!options.html.empty()) {
      base::write_text_file(options.html, report::diagnosis_page(json, timeline(options, diagnosis, trace)));
      fmt::print(stderr, "wrote {}\n", options.html);
    }
    if (options.json) print_result(json);
  }
  if (!options.json) {
    std::string text = report::diagnosis_text(diagnosis, trace, options.text);
    if (against) {
      text += "\nAgainst the baseline: " +
              report::comparison_text(against->comparison, against->before, against->after, options.text.rows);
    }
    print_result(text);
  }
  return against ? bound.check(against->comparison, code) : code;
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
      "  paceline diagnose today/ --baseline last_week/ --fail-on 'step>+5%'\n"
      "  paceline diagnose /tmp/nccl_trace_rank_*\n"
      "Reads traces of the PyTorch profiler: files, directories, patterns, .gz, .zst, .tar. Given dumps of NCCL's "
      "flight "
      "recorder instead, it says what a hanging job waits for.\n"
      "Exit codes: 0 fine, 1 a bound of --fail-on is broken, 2 usage, 3 bad input, 5 system, 6 damaged input (the "
      "result is from what was readable).");
  command->add_option("TRACES", options->inputs, "Trace files, directories or patterns, all ranks of one job");
  command->add_flag("--json", options->json, "The result for machines, on standard output");
  command->add_option("--html", options->html, "Also write one self-contained page to this file");
  command->add_option("--timeline", options->timeline,
                      "Ranks in the page's timeline, e.g. 0-3,16; 'none' leaves it out (default: the late rank and the "
                      "7 that wait longest for it)");
  command->add_option("--timeline-step", options->timeline_options.step,
                      "Step of the page's timeline, by the number of ProfilerStep#N (default: the median step)");
  add_load_options(*command, options->job.load);
  command->add_option("--baseline", options->baseline,
                      "A run before, or a file that --save wrote: where the difference of the step time comes from");
  command->add_option("--save", options->save, "Keep what the run consists of in this small file, a later baseline");
  command->add_option("--fail-on", options->fail_on, "Exit 1 when this holds against the baseline, e.g. 'step>+5%'");
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
