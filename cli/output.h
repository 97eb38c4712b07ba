#pragma once
#include <string_view>

#include "paceline/trace/rank_trace.h"
#include "paceline/trace/understand/trace.h"

namespace paceline::cli {

/// Writes a result to standard output; Error(kSystem) when it cannot be written whole. A closed pipe (head) ends
/// quietly.
void print_result(std::string_view text);

/// One line on standard error for each thing that was lost in the input, with file and place. The exit code: 0 when
/// nothing was lost.
int report_damage(const trace::RankHeader& rank);
/// The same for every rank of a job; the highest exit code.
int report_damage(const trace::Trace& trace);

}  // namespace paceline::cli
