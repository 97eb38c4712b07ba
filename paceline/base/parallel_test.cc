#include "paceline/base/parallel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <vector>

#include "paceline/base/error.h"
#include "paceline/base/test_files.h"

namespace paceline::base {
namespace {

using test::error_of;

class Parallel : public testing::TestWithParam<int> {
 protected:
  void SetUp() override { set_threads(GetParam()); }
  void TearDown() override { set_threads(0); }
};

TEST_P(Parallel, EveryIndexIsCalledOnce) {
  std::vector<int> calls(10'000);
  parallel_for(calls.size(), [&](std::size_t i) { ++calls[i]; });
  EXPECT_EQ(calls, std::vector<int>(calls.size(), 1));
  parallel_for(0, [](std::size_t) { FAIL(); });
}

TEST_P(Parallel, TheExceptionOfABodyReachesTheCaller) {
  const auto run = [] {
    parallel_for(1000, [](std::size_t i) {
      if (i == 613) throw Error(ErrorKind::kBadInput, "row 613", "no");
    });
  };
  EXPECT_EQ(error_of(run), "row 613: no");
}

TEST_P(Parallel, LoopsNest) {
  std::atomic<int> calls = 0;
  parallel_for(20, [&](std::size_t) { parallel_for(20, [&](std::size_t) { ++calls; }); });
  EXPECT_EQ(calls, 400);
}

TEST_P(Parallel, TaskGroupRunsAllAndRethrows) {
  std::atomic<int> calls = 0;
  TaskGroup group;
  for (int i = 0; i < 100; ++i) group.run([&] { ++calls; });
  group.wait();
  EXPECT_EQ(calls, 100);
  group.run([] { throw Error(ErrorKind::kSystem, "worker", "gone"); });
  EXPECT_EQ(error_of([&] { group.wait(); }), "worker: gone");
  group.run([&] { ++calls; });  // usable again
  group.wait();
  EXPECT_EQ(calls, 101);
}

TEST_P(Parallel, TaskGroupsDestructorWaitsAndKeepsErrorsToItself) {
  std::atomic<int> calls = 0;
  {
    TaskGroup group;
    group.run([&] { ++calls; });
    group.run([] { throw Error(ErrorKind::kSystem, "worker", "gone"); });
  }
  EXPECT_LE(calls, 1);  // the error may have come first
}

INSTANTIATE_TEST_SUITE_P(Threads, Parallel, testing::Values(1, 2, 4));

TEST(SetThreads, LimitsAndReleases) {
  const int all = threads();
  set_threads(1);
  EXPECT_EQ(threads(), 1);
  set_threads(0);
  EXPECT_EQ(threads(), all);
}

}  // namespace
}  // namespace paceline::base
