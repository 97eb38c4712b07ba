#pragma once
#include "paceline/diagnose/diagnosis.h"

namespace paceline::diagnose {

/// Fills collectives, times_last, blame, the late rank and its causes.
///
/// A rank is late when it arrives last far more often than chance would have it (binomial tail below 1 %, every member
/// equally likely) and the others' waiting for it alone costs at least 1 % of a step; of several, the one with the
/// largest cost. Long time in communication is no sign of blame: it is the sign of waiting for someone else.
void find_late_rank(const trace::Trace& trace, Diagnosis& diagnosis);

}  // namespace paceline::diagnose
