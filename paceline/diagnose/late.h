#pragma once
#include "paceline/diagnose/diagnosis.h"

namespace paceline::diagnose {

/// Fills collectives, times_last, blame, the late rank and its causes.
///
/// A rank is late when the others' waiting for it alone costs at least 1 % of a step, and chance does not explain it
/// (below 1 %, divided by the number of ranks that could be it): either it arrives last too often (binomial tail, every
/// member equally likely), or step for step it costs too much more than the others (Student's t over three steps or
/// more), as a rank does that is late for one collective a step out of many. Of several, the one with the largest cost.
/// Long time in communication is no sign of blame: it is the sign of waiting for someone else.
void find_late_rank(const trace::Trace& trace, Diagnosis& diagnosis);

}  // namespace paceline::diagnose
