#pragma once
#include <string>

#include "paceline/diagnose/compare.h"
#include "paceline/diagnose/diagnosis.h"

namespace paceline::report {

struct TextOptions {
  bool color = false;       // ANSI bold and colours
  std::size_t rows = 10;    // of each table; the rest is counted
  bool every_step = false;  // a row for each step of each rank
};

/// The diagnosis for a terminal: findings first, then the tables they rest on.
std::string diagnosis_text(const diagnose::Diagnosis& diagnosis, const trace::Trace& trace,
                           const TextOptions& options = {});

/// The one line to read when only one is read, fit for a terminal; empty when there is nothing to say.
std::string verdict_text(const diagnose::Diagnosis& diagnosis);

/// The difference of two runs: groups that add up to it, then the largest single changes.
std::string comparison_text(const diagnose::Comparison& comparison, const diagnose::Profile& before,
                            const diagnose::Profile& after, std::size_t rows);

}  // namespace paceline::report
