#include "paceline/tune/buckets.h"

#include <gtest/gtest.h>

#include "paceline/replay/replay.h"

namespace paceline::tune {
namespace {

constexpr std::int64_t kMiB = 1 << 20;

TEST(Buckets, CloseWithTheGradientThatReachesTheLimit) {
  // torch.distributed: a bucket takes gradients until its size is at least the limit, the first one's limit is its own.
  const std::vector<std::int64_t> bytes = {kMiB / 2, kMiB, kMiB, 3 * kMiB, kMiB};
  EXPECT_EQ(ddp_plan(bytes, 1, 2).ends, (std::vector<std::uint32_t>{2, 4, 5}));
  EXPECT_EQ(ddp_plan(bytes, 25, 25).ends, (std::vector<std::uint32_t>{5}));
}

TEST(Buckets, AreWrittenAsTheFrameworksReadThem) {
  const BucketPlan plan{.ends = {3, 5}};
  EXPECT_EQ(horovod_file(plan), "{\"mapping\": [\"0+1+2\", \"3+4\"]}\n");
  EXPECT_EQ(byteps_file(plan, {1, 2, 3, 4, 5}), "gradient_0_2 6\ngradient_3_4 9\n");
}

/// The job recorded with Debian's PyTorch that the repository brings: 4 ranks, gloo, DistributedDataParallel.
TEST(Buckets, OfTheRecordedJobReplayAsTheyWere) {
  trace::JobOptions options;
  options.load.show_progress = false;
  const trace::LoadedGraph loaded = trace::load_graph({PACELINE_SOURCE "/examples/slow_rank"}, options);
  std::string why;
  const auto sync = find_gradient_sync(loaded.job, why);
  ASSERT_TRUE(sync) << why;
  BucketPlan same;
  std::int64_t size = 0;
  std::size_t bucket = 0;
  for (std::uint32_t g = 0; g < sync->bytes.size(); ++g) {
    size += sync->bytes[g];
    if (size != sync->bucket_bytes[bucket]) continue;
    same.ends.push_back(g + 1);
    size = 0, ++bucket;
  }
  ASSERT_EQ(bucket, sync->bucket_bytes.size());  // buckets are runs of gradients in the order of their readiness
  const double before = static_cast<double>(replay::replay(loaded.job.graph).makespan);
  const double after =
      static_cast<double>(replay::replay(loaded.job.graph, rebucket(loaded.job, *sync, same)).makespan);
  EXPECT_NEAR(after, before, 0.05 * before);
}

}  // namespace
}  // namespace paceline::tune
