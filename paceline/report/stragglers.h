#pragma once
#include <string>

#include "paceline/replay/straggler.h"

namespace paceline::report {

/// For a terminal: what the job would gain, who is to blame, what the repair of each worker wins. `rows` of the table
/// of workers, those first whose repair wins most.
std::string stragglers_text(const replay::Stragglers& stragglers, std::size_t rows);

}  // namespace paceline::report
