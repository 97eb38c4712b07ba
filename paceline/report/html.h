#pragma once
#include <string>
#include <string_view>

namespace paceline::report {

/// One self-contained page (no network: its Content-Security-Policy allows nothing but its own script and style) that
/// shows a diagnosis, given as the JSON of diagnose::to_json, and the timeline of timeline_json() unless it is "null".
/// The page is web/diagnosis.html with the JSON put in.
std::string diagnosis_page(std::string_view diagnosis_json, std::string_view timeline_json);

/// The same for two runs: web/comparison.html, given the JSON of diagnose::to_json(Comparison) and beside it "before"
/// and "after", each {source, ranks, steps}.
std::string comparison_page(std::string_view comparison_json);

}  // namespace paceline::report
