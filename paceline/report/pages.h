#pragma once
#include <string_view>

namespace paceline::report {

/// The pages of web/, compiled in.
extern const std::string_view kDiagnosisPage;
extern const std::string_view kComparisonPage;

}  // namespace paceline::report
