#pragma once
#include <string>

#include "paceline/diagnose/hang.h"

namespace paceline::report {

/// The verdict for a terminal: one sentence, then `rows` findings, causes before consequences.
std::string hang_text(const diagnose::HangVerdict& verdict, std::size_t rows);

}  // namespace paceline::report
