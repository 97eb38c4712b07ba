#include "paceline/report/html.h"

#include "paceline/base/error.h"
#include "paceline/report/pages.h"

namespace paceline::report {
namespace {

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

}  // namespace

std::string diagnosis_page(std::string_view diagnosis_json) {
  constexpr std::string_view kPlace = "\"@PACELINE_RESULT@\"";
  std::string page(kDiagnosisPage);
  const std::size_t place = page.find(kPlace);
  PL_CHECK(place != std::string::npos);
  return page.replace(place, kPlace.size(), script_safe(diagnosis_json));
}

}  // namespace paceline::report
