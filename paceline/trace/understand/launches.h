#pragma once
#include <vector>

#include "paceline/trace/rank_trace.h"

namespace paceline::trace {

/// For every row the runtime call that launched it: for device rows by correlation id (one cudaGraphLaunch has many
/// kernels; of several calls with one id the last wins), else kNoRow. O(rows log rows).
std::vector<Row> link_launches(const RankTrace& trace);

/// For every host row the innermost slice around it on its thread, or kNoRow. O(rows).
std::vector<Row> link_parents(const RankTrace& trace);

}  // namespace paceline::trace
