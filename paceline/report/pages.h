#pragma once
#include <string_view>

namespace paceline::report {

/// The pages of web/, compiled in.
extern const std::string_view kDiagnosisPage;

}  // namespace paceline::report
