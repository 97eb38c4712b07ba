#include "paceline/report/text.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>

#include "paceline/base/format.h"
#include "paceline/base/table.h"

namespace paceline::report {
namespace {

using base::Table;
using diagnose::Diagnosis;
using diagnose::StepParts;

// Bold text while the report is put together; control characters of the trace never reach the terminal.
constexpr char kBoldBegin = '\x01', kBoldEnd = '\x02';

/// Names come from the trace: what a terminal would obey (C0, DEL, C1) is shown as "?".
std::string clean(std::string_view text) {
  std::string shown;
  shown.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const bool c1 = byte == 0xC2 && i + 1 < text.size() && static_cast<unsigned char>(text[i + 1]) < 0xA0;
    const bool obeyed = (byte < 0x20 && text[i] != kBoldBegin && text[i] != kBoldEnd) || byte == 0x7F || c1;
    shown += obeyed ? '?' : text[i];
    if (c1) ++i;
  }
  return shown;
}

std::string ms(std::int64_t ns) {
  return fmt::format("{:.3f}", static_cast<double>(ns) / 1e6);
}

class Writer {
 public:
  Writer(const Diagnosis& diagnosis, const trace::Trace& trace, const TextOptions& options)
      : diagnosis_(diagnosis), trace_(trace), options_(options) {}

  std::string run() {
    overview();
    verdict();
    findings();
    ranks();
    collectives();
    kernels();
    operators();
    repairs();
    return with_bold(text_, options_.color);
  }

 private:
  static std::string bold(const std::string& text) { return kBoldBegin + text + kBoldEnd; }
  static std::string with_bold(std::string_view text, bool color) {
    std::string shown;
    shown.reserve(text.size());
    for (const char c : text) {
      if (c == kBoldBegin) {
        shown += color ? "\x1b[1m" : "";
      } else if (c == kBoldEnd) {
        shown += color ? "\x1b[0m" : "";
      } else {
        shown += c;
      }
    }
    return shown;
  }
  void line(const std::string& text) { text_ += clean(text) + "\n"; }
  void heading(const std::string& text) {
    text_ += '\n';
    line(bold(text));
  }
  void rest(std::size_t count) {
    if (count > options_.rows) line(fmt::format("  ... {} more; --rows N or --json shows them", count - options_.rows));
  }

  void verdict() {
    const std::string verdict = verdict_text(diagnosis_);
    if (!verdict.empty()) line(bold("Verdict: " + verdict));
  }

  void overview() {
    const std::size_t here = diagnosis_.ranks.size();
    line(fmt::format("{} of {} rank{}, {} step{}{}, median step {}, {} collectives", here, diagnosis_.world_size,
                     diagnosis_.world_size == 1 ? "" : "s", diagnosis_.step_count,
                     diagnosis_.step_count == 1 ? "" : "s",
                     diagnosis_.marks_steps ? "" : " (no step marks: the whole recording)",
                     base::format_time(base::Nanos{diagnosis_.median_step}), diagnosis_.collectives.size()));
  }

  void findings() {
    heading("Findings");
    if (diagnosis_.findings.empty()) line("  nothing stands out");
    for (const diagnose::Finding& finding : diagnosis_.findings) {
      line(fmt::format("  {} {} {}", bold(finding.id), finding.title, finding.measured ? "(measured)" : "(inferred)"));
      for (const std::string& evidence : finding.evidence) line("     - " + evidence);
      if (!finding.remedy.empty()) line("     > " + finding.remedy);
      if (!finding.next.empty()) line("     $ " + finding.next);
    }
  }

  void ranks() {
    heading("Where a step goes (ms, mean over steps; the columns from compute to edges add up to the step)");
    Table table;
    for (const char* title : {"rank", "step", "compute", "wait", "transfer", "copies", "host", "gap", "other", "edges",
                              "overlap", "last", "clock"}) {
      table.add_column(title);
    }
    const auto row = [&](const std::string& name, const StepParts& parts, const std::string& last,
                         const std::string& clock) {
      const std::string overlap =
          parts.communication > 0
              ? base::format_percent(static_cast<double>(parts.overlap) / static_cast<double>(parts.communication), 2)
              : "";
      table.add_row({name, ms(parts.duration), ms(parts.compute), ms(parts.exposed_wait), ms(parts.exposed_transfer),
                     ms(parts.exposed_copies), ms(parts.idle_host), ms(parts.idle_gap), ms(parts.idle_other),
                     ms(parts.lead + parts.tail), overlap, last, clock});
    };
    for (const diagnose::RankDiagnosis& rank : diagnosis_.ranks) {
      const std::string clock =
          rank.clock_offset == 0 ? "" : fmt::format("{:+.3f}", -base::to_ms(base::Nanos{rank.clock_offset}));
      row(fmt::format("{}", rank.rank), rank.mean, rank.times_last > 0 ? fmt::format("{}x", rank.times_last) : "",
          clock);
      if (!options_.every_step) continue;
      for (const StepParts& step : rank.steps) {
        row(step.number >= 0 ? fmt::format("#{}", step.number) : "", step, "", "");
      }
    }
    text_ += table.to_string();
    line(
        "  wait, transfer: in a collective with nothing else running, before and after its last rank arrived; host: "
        "idle");
    line("  because launched late; gap: short pause between kernels; edges: before the first and after the last work");
  }

  void collectives() {
    if (diagnosis_.collectives.empty()) return;
    heading("Collectives (ms)");
    struct Sum {
      std::size_t count = 0;
      std::int64_t transfer = 0, wait = 0, worst_spread = 0;
      std::map<std::uint32_t, std::size_t> last;
    };
    std::map<std::tuple<std::string, std::int64_t, std::string>, Sum> sums;
    for (const diagnose::CollectiveRow& row : diagnosis_.collectives) {
      Sum& sum = sums[{row.name, row.elements, row.group}];
      ++sum.count;
      sum.transfer += row.transfer;
      for (const std::int64_t wait : row.waits) sum.wait += wait / static_cast<std::int64_t>(row.waits.size());
      sum.worst_spread = std::max(sum.worst_spread, row.start_spread);
      if (row.ranks > 1) ++sum.last[row.last_rank];
    }
    using Entry = std::pair<std::tuple<std::string, std::int64_t, std::string>, Sum>;
    std::vector<Entry> order(sums.begin(), sums.end());
    std::stable_sort(order.begin(), order.end(), [](const Entry& a, const Entry& b) {
      return a.second.wait + a.second.transfer > b.second.wait + b.second.transfer;
    });
    Table table;
    table.add_column("collective", Table::Align::kLeft);
    for (const char* title : {"elements", "count", "transfer", "mean wait", "worst spread"}) table.add_column(title);
    table.add_column("last to arrive", Table::Align::kLeft);
    for (std::size_t i = 0; i < std::min(order.size(), options_.rows); ++i) {
      const auto& [key, sum] = order[i];
      std::string last;
      std::vector<std::pair<std::size_t, std::uint32_t>> by_count;
      for (const auto& [rank, count] : sum.last) by_count.emplace_back(count, rank);
      std::stable_sort(by_count.begin(), by_count.end(),
                       [](const auto& a, const auto& b) { return a.first > b.first; });
      for (std::size_t j = 0; j < std::min<std::size_t>(by_count.size(), 3); ++j) {
        last += fmt::format("{}rank {} {}x", j ? ", " : "", by_count[j].second, by_count[j].first);
      }
      const std::int64_t elements = std::get<1>(key);
      table.add_row({std::get<0>(key), elements < 0 ? "" : base::format_count(elements), fmt::format("{}", sum.count),
                     ms(sum.transfer), ms(sum.wait), ms(sum.worst_spread), last});
    }
    text_ += table.to_string();
    rest(order.size());
  }

  void kernels() {
    if (diagnosis_.kernels.empty()) return;
    heading("Device work by name (ms, all ranks)");
    std::int64_t all = 0;
    for (const diagnose::KernelRow& row : diagnosis_.kernels) all += row.total;
    Table table;
    table.add_column("kernel", Table::Align::kLeft);
    table.add_column("kind", Table::Align::kLeft);
    for (const char* title : {"count", "total", "share", "mean us", "max us"}) table.add_column(title);
    for (std::size_t i = 0; i < std::min(diagnosis_.kernels.size(), options_.rows); ++i) {
      const diagnose::KernelRow& row = diagnosis_.kernels[i];
      table.add_row({base::shorten(clean(row.name), 60), row.kind, base::format_count(row.count), ms(row.total),
                     base::format_percent(all > 0 ? static_cast<double>(row.total) / static_cast<double>(all) : 0),
                     fmt::format("{:.1f}", static_cast<double>(row.total) / static_cast<double>(row.count) / 1e3),
                     fmt::format("{:.1f}", static_cast<double>(row.max) / 1e3)});
    }
    text_ += table.to_string();
    rest(diagnosis_.kernels.size());
  }

  void operators() {
    if (diagnosis_.operators.empty()) return;
    heading("Host operators by their own time (ms, all ranks)");
    Table table;
    table.add_column("operator", Table::Align::kLeft);
    for (const char* title : {"count", "self", "total"}) table.add_column(title);
    for (std::size_t i = 0; i < std::min(diagnosis_.operators.size(), options_.rows); ++i) {
      const diagnose::OperatorRow& row = diagnosis_.operators[i];
      table.add_row({base::shorten(clean(row.name), 60), base::format_count(row.count), ms(row.self), ms(row.total)});
    }
    text_ += table.to_string();
    rest(diagnosis_.operators.size());
  }

  /// Every repair, summed over ranks, with the first place.
  void repairs() {
    std::vector<std::string> lines;
    for (std::size_t i = 0; i < static_cast<std::size_t>(trace::Repair::kCount); ++i) {
      const auto repair = static_cast<trace::Repair>(i);
      std::int64_t count = 0, ranks = 0;
      const trace::RankSummary* first = nullptr;
      for (const trace::RankSummary& rank : trace_.ranks) {
        if (rank.repairs.count(repair) == 0) continue;
        count += rank.repairs.count(repair);
        ++ranks;
        if (first == nullptr) first = &rank;
      }
      if (first == nullptr) continue;
      const auto& row = first->repairs.row(repair);
      lines.push_back(fmt::format("  {}x on {} rank{}: {}", base::format_count(count), ranks, ranks == 1 ? "" : "s",
                                  trace::repair_meaning(repair)));
      if (!row.first_place.empty()) {
        lines.push_back(fmt::format("     first: {}, {} {}", first->source, row.first_place, row.first_detail));
      }
    }
    std::string unrecognised;
    for (const diagnose::UnrecognisedKernel& kernel : diagnosis_.unrecognised) {
      unrecognised += fmt::format("{}{} ({} per step on {} of {} ranks)", unrecognised.empty() ? "" : ", ",
                                  base::shorten(kernel.name, 60), base::format_time(base::Nanos{kernel.per_step}),
                                  kernel.ranks, trace_.ranks.size());
    }
    if (!unrecognised.empty()) {
      lines.push_back("  not recognised on a communication stream: " + unrecognised + ", counted as computation");
    }
    for (const std::string& warning : trace_.warnings) lines.push_back("  " + warning);
    if (lines.empty()) return;
    heading("About the input");
    for (const std::string& text : lines) line(text);
  }

  const Diagnosis& diagnosis_;
  const trace::Trace& trace_;
  const TextOptions& options_;
  std::string text_;
};

}  // namespace

std::string verdict_text(const Diagnosis& diagnosis) {
  const diagnose::Finding* main = main_finding(diagnosis);
  return main == nullptr ? "" : clean(main->title);
}

std::string diagnosis_text(const Diagnosis& diagnosis, const trace::Trace& trace, const TextOptions& options) {
  return Writer(diagnosis, trace, options).run();
}

std::string comparison_text(const diagnose::Comparison& comparison, const diagnose::Profile& before,
                            const diagnose::Profile& after, std::size_t rows) {
  const auto signed_ms = [](std::int64_t ns) { return fmt::format("{:+.3f}", static_cast<double>(ns) / 1e6); };
  const double share = comparison.step_before > 0
                           ? static_cast<double>(comparison.change) / static_cast<double>(comparison.step_before)
                           : 0.0;
  std::string text =
      fmt::format("step {} ms -> {} ms: {} ms ({:+.1f} %), along the critical path over all ranks\n",
                  ms(comparison.step_before), ms(comparison.step_after), signed_ms(comparison.change), 100.0 * share);
  text += fmt::format("before: {} ({} ranks, {} steps)\nafter: {} ({} ranks, {} steps)\n\n", clean(before.source),
                      before.ranks, before.steps, clean(after.source), after.ranks, after.steps);
  Table groups;
  groups.add_column("where", Table::Align::kLeft);
  for (const char* title : {"before ms", "after ms", "change"}) groups.add_column(title);
  for (const diagnose::Change& group : comparison.groups) {
    groups.add_row({group.group, ms(group.before), ms(group.after), signed_ms(group.change)});
  }
  groups.add_row({"not explained", "", "", signed_ms(comparison.not_explained)});
  groups.add_row({"step", ms(comparison.step_before), ms(comparison.step_after), signed_ms(comparison.change)});
  text += groups.to_string() + "\n";
  Table changes;
  changes.add_column("cause", Table::Align::kLeft);
  changes.add_column("what", Table::Align::kLeft);
  for (const char* title : {"before ms", "after ms", "change", "rank"}) changes.add_column(title);
  std::size_t shown = 0;
  for (const diagnose::Change& change : comparison.changes) {
    if (shown++ == rows || change.change == 0) break;
    changes.add_row({change.group, base::shorten(clean(change.what), 60), ms(change.before), ms(change.after),
                     signed_ms(change.change), change.rank < 0 ? "" : fmt::format("{}", change.rank)});
  }
  return changes.empty() ? text : text + changes.to_string();
}

}  // namespace paceline::report
