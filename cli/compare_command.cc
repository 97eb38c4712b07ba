#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/baseline.h"
#include "cli/command.h"
#include "cli/output.h"
#include "paceline/base/file.h"
#include "paceline/base/json.h"
#include "paceline/diagnose/compare.h"
#include "paceline/report/html.h"
#include "paceline/report/text.h"

namespace paceline::cli {
namespace {

struct Options {
  std::string before, after, save, html, fail_on;
  bool json = false;
  std::size_t rows = 12;
  trace::JobOptions job;
};

int run(const Options& options) {
  const StepBound bound(options.fail_on);
  int code = 0;
  const diagnose::Profile before = load_profile(options.before, options.job, code);
  const diagnose::Profile after = load_profile(options.after, options.job, code);
  if (!options.save.empty()) save_profile(after, options.save);
  const diagnose::Comparison comparison = diagnose::compare(before, after);
  if (!options.html.empty()) {
    const auto side = [](const diagnose::Profile& run) {
      return base::Json{{"source", run.source}, {"ranks", run.ranks}, {"steps", run.steps}};
    };
    base::Json page = diagnose::to_json(comparison);
    page["before"] = side(before);
    page["after"] = side(after);
    base::write_text_file(options.html, report::comparison_page(base::to_text(page)));
    fmt::print(stderr, "wrote {}\n", options.html);
  }
  if (options.json) {
    print_result(base::to_text(diagnose::to_json(comparison)));
  } else {
    print_result(report::comparison_text(comparison, before, after, options.rows));
  }
  return bound.check(comparison, code);
}

}  // namespace

void add_compare(CLI::App& app, Run& chosen) {
  const auto options = std::make_shared<Options>();
  CLI::App* command =
      app.add_subcommand("compare", "Two runs of a job: where the difference of the step time comes from");
  command->footer(
      "Example:\n"
      "  paceline compare last_week/ today/\n"
      "  paceline compare last_week/ today/ --save today.json    # then: paceline compare today.json tomorrow/\n"
      "Each side is a folder, file or pattern of traces, or a file that --save wrote. The differences add up exactly.");
  command->add_option("A", options->before, "The run before: the baseline")->required();
  command->add_option("B", options->after, "The run after")->required();
  command->add_flag("--json", options->json, "The result for machines, on standard output");
  command->add_option("--html", options->html, "Also write one self-contained page to this file");
  command->add_option("--save", options->save, "Also keep what B consists of in this file, as a later baseline");
  command->add_option("--fail-on", options->fail_on, "Exit 1 when this holds, e.g. 'step>+5%'");
  command->add_option("--rows", options->rows, "Rows of the table (default 12)");
  command->add_flag("--skip-last-step", options->job.reduce.skip_last_step, "Leave the last step of each run out");
  command->callback([options, &chosen] { chosen = [options] { return run(*options); }; });
}

}  // namespace paceline::cli
