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

Trace load_job(const std::vector<std::string>& arguments, const JobOptions& options) {
  LoadedSummaries loaded = load_summaries(arguments, options.load, options.reduce);
  Trace trace = assemble(std::move(loaded.ranks));
  trace.warnings = std::move(loaded.warnings);
  return trace;
}

}  // namespace paceline::trace
