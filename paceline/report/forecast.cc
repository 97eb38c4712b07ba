#include "paceline/report/forecast.h"

#include <fmt/core.h>

#include <algorithm>

#include "paceline/base/table.h"

namespace paceline::report {
namespace {

using replay::Forecast;
using replay::Range;
using taskgraph::TaskKind;

double ms(std::int64_t ns) {
  return static_cast<double>(ns) / 1e6;
}

std::string range_text(const Range& range, bool has_range) {
  if (!has_range) return fmt::format("{:.2f} ms", ms(range.value));
  return fmt::format("{:.2f} ms ({:.2f} to {:.2f})", ms(range.value), ms(range.low), ms(range.high));
}

double share(std::int64_t part, std::int64_t whole) {
  return whole == 0 ? 0 : 100.0 * static_cast<double>(part) / static_cast<double>(whole);
}

std::string step_lines(const Forecast& forecast) {
  std::string text = fmt::format("  step now        {}, recorded {:.2f} ms\n",
                                 range_text(forecast.before, forecast.has_range), ms(forecast.recorded));
  text += fmt::format("  step then       {}\n", range_text(forecast.after, forecast.has_range));
  text += fmt::format("  gain            {}, {:.1f} % of the step, {:.1f} device-hours per day\n",
                      range_text(forecast.gain, forecast.has_range), share(forecast.gain.value, forecast.before.value),
                      forecast.device_hours_per_day);
  if (!forecast.has_range) text += "  one step alone does not tell how much work varies: no range\n";
  return text;
}

std::string path_table(const Forecast& forecast) {
  base::Table table;
  table.add_column("on the critical path", base::Table::Align::kLeft);
  table.add_column("now ms/step");
  table.add_column("then ms/step");
  for (std::size_t k = 0; k < forecast.by_kind_before.size(); ++k) {
    if (forecast.by_kind_before[k] == 0 && forecast.by_kind_after[k] == 0) continue;
    table.add_row({std::string(taskgraph::kind_name(static_cast<TaskKind>(k))),
                   fmt::format("{:.2f}", ms(forecast.by_kind_before[k])),
                   fmt::format("{:.2f}", ms(forecast.by_kind_after[k]))});
  }
  return table.empty() ? "" : table.to_string();
}

std::string graph_line(const trace::JobGraph& job) {
  const trace::GraphQuality& quality = job.quality;
  return fmt::format(
      "  graph           {} tasks, {} edges ({} between streams or threads inferred), {} collectives joined, "
      "{} apart\n",
      job.graph.size(), job.graph.edge_count(), quality.inferred + quality.handed_over, quality.joined, quality.apart);
}

}  // namespace

std::string forecast_text(const Forecast& forecast, const trace::JobGraph& job, const std::vector<std::string>& edits) {
  std::string text = "What if: ";
  for (std::size_t i = 0; i < edits.size(); ++i) text += (i == 0 ? "" : ", then ") + edits[i];
  if (edits.empty()) text += "nothing changes";
  return text + "\n" + step_lines(forecast) + graph_line(job) + "\n" + path_table(forecast);
}

std::string tune_text(const tune::Tuned& tuned, const trace::JobGraph& job) {
  std::string text;
  const auto chosen = [](const tune::Verdict& verdict) { return verdict.chosen; };
  const bool any = std::any_of(tuned.verdicts.begin(), tuned.verdicts.end(), chosen);
  text += any ? "All that is marked + together, by replay:\n" : "Nothing found that makes this job faster.\n";
  text += step_lines(tuned.joint) + graph_line(job);
  text += fmt::format("  search          {} graphs replayed{}\n\n", tuned.evaluations,
                      tuned.cut_short ? ", ended by --budget before it was done" : "");
  base::Table table;
  table.add_column("", base::Table::Align::kLeft);
  table.add_column("strategy", base::Table::Align::kLeft);
  table.add_column("gain alone ms");
  table.add_column("step with those above ms");
  for (const tune::Verdict& verdict : tuned.verdicts) {
    table.add_row({verdict.chosen ? "+" : "", tuned.strategies[verdict.strategy].name,
                   fmt::format("{:.2f}", ms(verdict.alone.gain.value)), fmt::format("{:.2f}", ms(verdict.step))});
  }
  if (!table.empty()) text += table.to_string() + "\n";
  for (const tune::Verdict& verdict : tuned.verdicts) {
    const tune::Strategy& strategy = tuned.strategies[verdict.strategy];
    text += fmt::format("  {}: {}\n", strategy.name, strategy.what);
    if (!strategy.assumes.empty()) text += fmt::format("    assumes that {}\n", strategy.assumes);
  }
  for (const std::string& why : tuned.passed_over) text += fmt::format("  not looked at: {}\n", why);
  return text;
}

}  // namespace paceline::report
