#pragma once
#include <string>
#include <vector>

#include "paceline/replay/forecast.h"
#include "paceline/tune/tune.h"

namespace paceline::report {

/// How long a step takes with the edits, and what the critical path is made of before and after.
std::string forecast_text(const replay::Forecast& forecast, const trace::JobGraph& job,
                          const std::vector<std::string>& edits);

/// Strategies by their gain, each alone and together with those chosen before it.
std::string tune_text(const tune::Tuned& tuned, const trace::JobGraph& job);

}  // namespace paceline::report
