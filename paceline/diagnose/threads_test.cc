// The same bytes whatever the number of threads.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "paceline/base/file.h"
#include "paceline/base/parallel.h"
#include "paceline/diagnose/diagnosis.h"
#include "tests/support/synthetic_job.h"

namespace paceline::diagnose {
namespace {

TEST(Threads, OfAnyNumberGiveTheSameBytes) {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("paceline_threads_test_" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  test_support::JobPlan plan;
  plan.late_rank = 2;
  plan.late_by = 3'000'000;
  plan.sequence = false;
  plan.skipped = {1, 4};
  const test_support::SyntheticJob job = test_support::make_job(plan);
  for (std::size_t i = 0; i < job.texts.size(); ++i) {
    base::write_text_file(folder / ("rank-" + std::to_string(i) + ".json"), job.texts[i]);
  }
  std::string first;
  for (const int threads : {1, 2, 4}) {
    base::set_threads(threads);
    const trace::Trace trace = trace::load_job({folder.string()}, {{}, false});
    const std::string text = base::to_text(to_json(diagnose(trace), trace));
    if (first.empty()) first = text;
    EXPECT_EQ(text, first) << threads << " threads";
  }
  base::set_threads(0);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace paceline::diagnose
