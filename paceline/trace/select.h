#pragma once
#include <vector>

#include "paceline/trace/captures.h"
#include "paceline/trace/rank_trace.h"

namespace paceline::trace {

/// One trace for each rank of a file that holds several, as tools that merge traces write them: processes named
/// "rank 3", or process ids like "rank3_4711" or "[TP03] 4711". The trace itself when it is of one rank.
std::vector<RankTrace> split_ranks(RankTrace&& trace);

/// Keeps the rows that `keep` marks, and what belongs to them.
void keep_rows(RankTrace& trace, const std::vector<bool>& keep);

/// Keeps the steps whose numbers `steps` names and what was launched in them. Unchanged when it marks no steps.
/// Throws Error(kUsage) when none of its steps is among them.
void keep_steps(RankTrace& trace, const Ranges& steps);

}  // namespace paceline::trace
