#pragma once
#include <string>

#include "paceline/diagnose/compare.h"
#include "paceline/trace/understand/trace.h"

namespace paceline::cli {

/// What a run consists of: from a file that --save wrote, or from its traces. Raises `code` when they are damaged.
diagnose::Profile load_profile(const std::string& path, const trace::JobOptions& job, int& code);

void save_profile(const diagnose::Profile& profile, const std::string& path);

/// "step>+5%": by how much the step may grow; an empty text allows everything. Throws Error(kUsage) for anything else.
class StepBound {
 public:
  explicit StepBound(const std::string& text);
  /// The exit code: kBoundBroken, with a line on standard error, when the step grew by more; else `code`.
  int check(const diagnose::Comparison& comparison, int code) const;

 private:
  std::string text_;
  double share_ = 0;
};

}  // namespace paceline::cli
