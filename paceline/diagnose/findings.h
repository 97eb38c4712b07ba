#pragma once
#include "paceline/diagnose/diagnosis.h"

namespace paceline::diagnose {

/// Turns the tables of `diagnosis` into findings, most costly first, numbered F1, F2, ...
void find_findings(const trace::Trace& trace, Diagnosis& diagnosis);

}  // namespace paceline::diagnose
