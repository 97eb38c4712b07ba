#pragma once
#include "paceline/diagnose/diagnosis.h"

namespace paceline::diagnose {

/// Fills collectives, times_last, blame, who is late and the causes.
///
/// A rank or a host of several ranks is late when it arrives last far more often than chance would have it (binomial
/// tail), or costs the others more than the rest does step for step (Student's t), each below 1 % over all candidates,
/// and when waiting for it alone costs at least 1 % of a step; of several, the one with the largest cost. A host is
/// named when no rank of it stands out. One step that holds most of the cost is an outlier; ranks that take turns are
/// named as rotating. Long time in communication is no sign of blame: it is the sign of waiting for someone else.
void find_late_rank(const trace::Trace& trace, Diagnosis& diagnosis);

}  // namespace paceline::diagnose
