#include "paceline/report/html.h"

#include "paceline/base/error.h"
#include "paceline/report/pages.h"

namespace paceline::report {
namespace {

constexpr std::string_view kResultPlace = "\"@PACELINE_RESULT@\"";

/// JSON inside a <script> element: "</script>" and "<!--" must not end it.
std::string script_safe(std::string_view json) {
  std::string safe;
  safe.reserve(json.size());
  for (const char c : json) {
    if (c == '<') {
      safe += "\\u003c";
    } else {
      safe += c;
    }
  }
  return safe;
}

void fill(std::string& page, std::string_view place, std::string_view json) {
  const std::size_t at = page.find(place);
  PL_CHECK(at != std::string::npos);
  page.replace(at, place.size(), script_safe(json));
}

}  // namespace

std::string diagnosis_page(std::string_view diagnosis_json, std::string_view timeline_json) {
  std::string page(kDiagnosisPage);
  fill(page, kResultPlace, diagnosis_json);
  fill(page, "\"@PACELINE_TIMELINE@\"", timeline_json);
  return page;
}

std::string comparison_page(std::string_view comparison_json) {
  std::string page(kComparisonPage);
  fill(page, kResultPlace, comparison_json);
  return page;
}

}  // namespace paceline::report
