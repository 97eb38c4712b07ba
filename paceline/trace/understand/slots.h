#pragma once
#include "paceline/trace/understand/linked_rows.h"

namespace paceline::trace {

/// Charges the time of the summary's steps, cut at the ends of its steps and collectives, to what ran: fills
/// `summary.slots`.
void fill_slots(const LinkedRows& rows, KeptNames& names, RankSummary& summary);

}  // namespace paceline::trace
