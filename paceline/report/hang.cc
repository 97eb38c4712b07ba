#include "paceline/report/hang.h"

#include <fmt/core.h>

#include <algorithm>

#include "paceline/base/table.h"

namespace paceline::report {

using base::Table;
using diagnose::HangFinding;

std::string hang_text(const diagnose::HangVerdict& verdict, std::size_t rows) {
  std::string text = fmt::format("Verdict: {}\n", verdict.sentence);
  text += fmt::format("Dumps of {} rank{}", verdict.ranks, verdict.ranks == 1 ? "" : "s");
  if (!verdict.missing.empty()) text += fmt::format(", none of {}", diagnose::named_ranks(verdict.missing));
  text += '\n';
  Table table;
  for (const char* title : {"", "group", "collective", "fault", "held up by", "host", "waiting", "where"}) {
    table.add_column(title, Table::Align::kLeft);
  }
  for (std::size_t i = 0; i < std::min(rows, verdict.findings.size()); ++i) {
    const HangFinding& one = verdict.findings[i];
    const auto host = one.blamed.empty() ? verdict.hosts.end() : verdict.hosts.find(one.blamed[0]);
    table.add_row({one.cause ? "cause" : "follows", one.description.empty() ? one.group : one.description,
                   fmt::format("{} #{}", one.operation, one.sequence), std::string(hang_kind_name(one.kind)),
                   one.blamed.empty() ? "" : diagnose::named_ranks(one.blamed),
                   host == verdict.hosts.end() ? "" : host->second,
                   one.waiting.empty() ? "" : diagnose::named_ranks(one.waiting), one.where});
  }
  if (!table.empty()) text += "\n" + table.to_string();
  if (verdict.findings.size() > rows) {
    text += fmt::format("  ... {} more; --rows N or --json shows them\n", verdict.findings.size() - rows);
  }
  for (const std::string& message : verdict.unreadable) text += "Not readable: " + message + "\n";
  for (const std::string& message : verdict.warnings) text += "Note: " + message + "\n";
  return text;
}

}  // namespace paceline::report
