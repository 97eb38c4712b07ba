#include "cli/baseline.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "cli/output.h"
#include "paceline/base/error.h"
#include "paceline/base/file.h"

namespace paceline::cli {
namespace {

bool is_saved_profile(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return false;
  constexpr std::size_t kHead = 256;
  bool saved = false;
  base::for_each_document(path, [&](const std::string&, base::ByteSource& source) {
    std::string head(kHead, '\0');
    head.resize(source.read(head));
    saved = saved || head.find("\"paceline/baseline/") != std::string::npos;
  });
  return saved;
}

}  // namespace

diagnose::Profile load_profile(const std::string& path, const trace::JobOptions& job, int& code) {
  if (is_saved_profile(path)) return diagnose::read_profile(path);
  const trace::Trace trace = trace::load_job({path}, job);
  code = std::max(code, report_damage(trace));
  return diagnose::profile_of(trace, path);
}

void save_profile(const diagnose::Profile& profile, const std::string& path) {
  base::write_text_file(path, diagnose::to_json(profile).dump() + "\n");
  fmt::print(stderr, "wrote {}\n", path);
}

StepBound::StepBound(const std::string& text) : text_(text) {
  if (text.empty()) return;
  constexpr std::string_view kForm = "step>+";
  double percent = 0;
  const bool form = text.starts_with(kForm) && text.ends_with('%');
  const char* end = text.data() + text.size() - 1;
  const auto read = form ? std::from_chars(text.data() + kForm.size(), end, percent) : std::from_chars_result{};
  if (!form || read.ec != std::errc{} || read.ptr != end) {
    throw Error(ErrorKind::kUsage, "--fail-on", fmt::format("'{}', expected a bound such as 'step>+5%'", text));
  }
  share_ = percent / 100.0;
}

int StepBound::check(const diagnose::Comparison& comparison, int code) const {
  const auto before = static_cast<double>(comparison.step_before), change = static_cast<double>(comparison.change);
  if (text_.empty() || change <= share_ * before) return code;
  fmt::print(stderr, "paceline: the step grew by {:.1f} %, more than {} allows\n", 100.0 * change / before, text_);
  return static_cast<int>(ErrorKind::kBoundBroken);
}

}  // namespace paceline::cli
