#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/output.h"
#include "paceline/base/error.h"
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

/// A saved profile, or the traces of a run.
bool is_saved_profile(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return false;
  constexpr std::size_t kHead = 256;
  bool saved = false;
  base::for_each_document(path, [&](const std::string&, base::ByteSource& source) {
    std::string head(kHead, '\0');
    head.resize(source.read(head));
    saved = saved || head.find("\"paceline/baseline/") != std::string::npos;
  });
  return saved;
}

diagnose::Profile profile(const std::string& path, const trace::JobOptions& job, int& code) {
  if (is_saved_profile(path)) return diagnose::read_profile(path);
  const trace::Trace trace = trace::load_job({path}, job);
  for (const trace::RankSummary& rank : trace.ranks) code = std::max(code, report_damage(rank));
  return diagnose::profile_of(trace, path);
}

/// "step>+5%": the share by which the step may grow.
double bound_of(const std::string& text) {
  constexpr std::string_view kForm = "step>+";
  double percent = 0;
  const bool form = text.starts_with(kForm) && text.ends_with('%');
  const char* end = text.data() + text.size() - 1;
  const auto read = form ? std::from_chars(text.data() + kForm.size(), end, percent) : std::from_chars_result{};
  if (!form || read.ec != std::errc{} || read.ptr != end) {
    throw Error(ErrorKind::kUsage, "--fail-on", fmt::format("'{}', expected a bound such as 'step>+5%'", text));
  }
  return percent / 100.0;
}

int run(const Options& options) {
  const bool bounded = !options.fail_on.empty();
  const double bound = bounded ? bound_of(options.fail_on) : 0;
  int code = 0;
  const diagnose::Profile before = profile(options.before, options.job, code);
  const diagnose::Profile after = profile(options.after, options.job, code);
  if (!options.save.empty()) {
    base::write_text_file(options.save, diagnose::to_json(after).dump() + "\n");
    fmt::print(stderr, "wrote {}\n", options.save);
  }
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
  const bool broken =
      bounded && static_cast<double>(comparison.change) > bound * static_cast<double>(comparison.step_before);
  if (broken) {
    fmt::print(stderr, "paceline: the step grew by {:.1f} %, more than {} allows\n",
               100.0 * static_cast<double>(comparison.change) / static_cast<double>(comparison.step_before),
               options.fail_on);
    return static_cast<int>(ErrorKind::kBoundBroken);
  }
  return code;
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
