#include <chrono>

#include "paceline/trace/load.h"
#include "paceline/trace/understand/collectives.h"
#include "paceline/trace/understand/trace.h"

namespace paceline::trace {

Trace assemble(std::vector<RankSummary> ranks) {
  Trace trace;
  trace.ranks = std::move(ranks);
  match_collectives(trace);
  align_clocks(trace);
  return trace;
}

namespace {

LookBetween look_of(const Preview& preview) {
  if (!preview.show) return {};
  using Clock = std::chrono::steady_clock;
  return [&preview, begin = Clock::now(), due = Clock::duration(preview.first_after)](
             std::vector<RankSummary>& ranks, std::size_t files, std::size_t all) mutable {
    if (Clock::now() - begin < due) return;
    Trace part = assemble(std::move(ranks));
    preview.show(part, files, all);
    ranks = std::move(part.ranks);
    due = 2 * (Clock::now() - begin);
  };
}

}  // namespace

Trace load_job(const std::vector<std::string>& arguments, const JobOptions& options) {
  LoadedSummaries loaded = load_summaries(arguments, options.load, options.reduce, look_of(options.preview));
  Trace trace = assemble(std::move(loaded.ranks));
  trace.warnings = std::move(loaded.warnings);
  return trace;
}

}  // namespace paceline::trace
