#include "paceline/report/stragglers.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "paceline/base/table.h"

namespace paceline::report {
namespace {

using replay::Blame;

std::string ms(std::int64_t time) {
  return fmt::format("{:.1f}", static_cast<double>(time) / 1e6);
}

std::string percent(double part) {
  return fmt::format("{:.0f} %", 100 * part);
}

std::string verdict(const replay::Stragglers& found) {
  std::string names;
  for (const std::uint32_t worker : found.worst) names += (names.empty() ? "" : "; ") + found.workers[worker].name;
  switch (replay::blame(found)) {
    case Blame::kNoOne:
      return "nobody: the workers are alike";
    case Blame::kWorkers:
      return fmt::format("{}: repaired alone, {} of the loss is won back", names, percent(*found.worst_share));
    case Blame::kLastStage:
      return fmt::format("the last stage: with its work evened out, {} of the loss is won back; give it fewer layers",
                         percent(*found.last_share));
    case Blame::kSpread:
      return fmt::format("no worker by itself ({}: repaired alone, {} of the loss is won back); look at the operations",
                         names, percent(found.worst_share.value_or(0)));
  }
  return "";
}

std::string slowdowns(const std::string& title, std::vector<replay::Slowdown> rows) {
  std::stable_sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) { return a.factor > b.factor; });
  base::Table table;
  table.add_column(title, base::Table::Align::kLeft);
  table.add_column("S");
  for (const replay::Slowdown& row : rows) table.add_row({row.name, fmt::format("{:.4f}", row.factor)});
  return table.to_string();
}

}  // namespace

std::string stragglers_text(const replay::Stragglers& found, std::size_t rows) {
  std::string text = fmt::format(
      "{} steps, {} workers; mean step {} ms replayed, {} ms without launch delays\n"
      "Without stragglers: {} ms per step, S = {:.3f}\n"
      "To blame: {}\n\n",
      found.steps.size(), found.workers.size(), ms(found.replayed), ms(found.without_delays), ms(found.ideal),
      found.slowdown, verdict(found));

  std::vector<std::size_t> order(found.workers.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return found.workers[a].repair > found.workers[b].repair; });
  base::Table workers;
  workers.add_column("repair of", base::Table::Align::kLeft);
  workers.add_column("step (ms)");
  workers.add_column("score");
  for (std::size_t i = 0; i < std::min(rows, order.size()); ++i) {
    const replay::WorkerEffect& worker = found.workers[order[i]];
    const double change = -static_cast<double>(worker.repair) / 1e6;
    workers.add_row({worker.name, std::abs(change) < 0.05 ? "0.0" : fmt::format("{:+.1f}", change),
                     fmt::format("{:.4f}", worker.score)});
  }
  text += workers.to_string();
  if (rows < order.size()) text += fmt::format("  ... and {} more; --rows shows them\n", order.size() - rows);
  text +=
      "  repair: only this worker takes the ideal times\n"
      "  score: S when only the part of the job that it belongs to, in each table below, keeps its own; the least\n\n";
  text += "S when only this keeps its own times and all else is ideal:\n";
  text += slowdowns("operation", found.groups);
  for (const auto& [name, places] : found.dimensions) text += "\n" + slowdowns(name, places);
  return text;
}

}  // namespace paceline::report
