#include "paceline/gnn/cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "paceline/base/error.h"
#include "paceline/base/rng.h"
#include "paceline/gnn/generate.h"
#include "paceline/gnn/order.h"
#include "paceline/gnn/reference.h"

namespace paceline::gnn {
namespace {

constexpr Policy kPolicies[] = {Policy::kFifo,   Policy::kLru,    Policy::kClock,     Policy::kSieve,
                                Policy::kS3Fifo, Policy::kStatic, Policy::kLookahead, Policy::kBelady};

Trace random_trace(std::uint64_t nodes, std::size_t batches, std::size_t size, std::uint64_t seed) {
  base::Rng rng(seed);
  Trace trace(batches);
  for (auto& batch : trace) {
    std::set<std::uint64_t> ids;
    while (ids.size() < size) {  // skewed: low ids are used more
      const double u = rng.uniform();
      ids.insert(static_cast<std::uint64_t>(u * u * static_cast<double>(nodes)));
    }
    batch.assign(ids.begin(), ids.end());
    rng.shuffle(std::span(batch));
  }
  return trace;
}

std::unique_ptr<Cache> make(Policy policy, std::uint64_t nodes, std::uint64_t capacity, const Trace& trace) {
  return make_cache({.policy = policy,
                     .nodes = nodes,
                     .capacity = capacity,
                     .shards = 3,
                     .scores = presample_scores(trace, 5, nodes)});
}

TEST(Cache, FifoEqualsTheIndependentSimulator) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    const Trace trace = random_trace(200, 60, 30, seed);
    for (const std::uint64_t capacity : {0, 1, 7, 25, 100, 200, 500})
      for (const int shards : {1, 2, 5}) {
        const auto cache =
            make_cache({.policy = Policy::kFifo, .nodes = 200, .capacity = capacity, .shards = shards, .scores = {}});
        EXPECT_EQ(simulate(*cache, trace, 0).hits,
                  reference::fifo_hits(trace, std::min<std::uint64_t>(capacity, 200), shards))
            << capacity << " " << shards;
      }
  }
}

TEST(Cache, BeladyEqualsBruteForceAndNothingBeatsIt) {
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    const Trace trace = random_trace(150, 80, 20, seed);
    for (const std::uint64_t capacity : {1, 10, 40, 149}) {
      const std::uint64_t best = reference::belady_hits(trace, capacity);
      for (const Policy policy : kPolicies) {
        const auto cache = make(policy, 150, capacity, trace);
        const std::uint64_t hits = simulate(*cache, trace, policy == Policy::kBelady ? trace.size() : 4).hits;
        if (policy == Policy::kBelady) {
          EXPECT_EQ(hits, best);
        } else if (policy != Policy::kStatic) {  // static caches are filled before the first batch
          EXPECT_LE(hits, best);
        }
      }
    }
  }
}

TEST(Cache, TheWindowOnlyHelpsOnAverage) {
  const Trace trace = random_trace(500, 200, 60, 3);
  std::vector<std::uint64_t> hits;
  for (const std::size_t window : {0, 4, 16, 64, 200})
    hits.push_back(simulate(*make(Policy::kLookahead, 500, 60, trace), trace, window).hits);
  for (std::size_t i = 1; i < hits.size(); ++i)
    EXPECT_GE(static_cast<double>(hits[i]), 0.99 * static_cast<double>(hits[i - 1])) << i;
  EXPECT_EQ(hits.back(), reference::belady_hits(trace, 60));
}

/// Rows really kept in a buffer: every hit must read its own row, with several batches in flight.
TEST(Cache, NeverGivesAwayWhatIsInFlight) {
  for (const Policy policy : kPolicies) {
    for (const std::uint64_t capacity : {0, 1, 5, 40, 90, 100, 1000}) {
      const Trace trace = random_trace(100, 300, 30, 7);
      const auto cache = make(policy, 100, capacity, trace);
      std::vector<std::uint64_t> rows(cache->capacity(), kNoNode);
      for (std::size_t i = 0; i < cache->preloaded().size(); ++i) rows[i] = cache->preloaded()[i];
      struct Flight {
        std::vector<std::uint64_t> ids;
        std::vector<Slot> slots;
      };
      std::vector<Flight> flights;
      std::size_t announced = 0;
      for (std::size_t b = 0; b < trace.size(); ++b) {
        for (; announced < trace.size() && announced < b + 8; ++announced) cache->announce(trace[announced]);
        Flight flight{trace[b], std::vector<Slot>(trace[b].size())};
        cache->find(flight.ids, flight.slots);
        std::vector<std::uint64_t> missing;
        for (std::size_t i = 0; i < flight.ids.size(); ++i)
          if (flight.slots[i] == kNoSlot) missing.push_back(flight.ids[i]);
        std::vector<Slot> added(missing.size());
        cache->insert(missing, added);
        for (std::size_t i = 0; i < missing.size(); ++i) {
          if (added[i] == kNoSlot) continue;
          ASSERT_LT(added[i], rows.size());
          rows[added[i]] = missing[i];
          flight.ids.push_back(missing[i]);
          flight.slots.push_back(added[i]);
        }
        flights.push_back(std::move(flight));
        for (const Flight& each : flights)
          for (std::size_t i = 0; i < each.ids.size(); ++i)
            ASSERT_TRUE(each.slots[i] == kNoSlot || rows[each.slots[i]] == each.ids[i])
                << static_cast<int>(policy) << " " << capacity;
        if (flights.size() == 3) {
          cache->release(flights.front().slots);
          flights.erase(flights.begin());
        }
      }
    }
  }
}

TEST(Cache, AllRowsFitWhenThereIsRoom) {
  const Trace trace = random_trace(100, 100, 30, 7);
  std::set<std::uint64_t> all;
  std::uint64_t lookups = 0;
  for (const auto& batch : trace) all.insert(batch.begin(), batch.end()), lookups += batch.size();
  for (const Policy policy : kPolicies) {
    const auto cache =
        make_cache({.policy = policy, .nodes = 100, .capacity = 5000, .scores = std::vector<float>(100, 0)});
    EXPECT_EQ(simulate(*cache, trace, 4).hits, policy == Policy::kStatic ? lookups : lookups - all.size());
  }
}

TEST(Cache, VipIsTheChanceOfBeingSampled) {
  const Graph graph = block_model({.nodes = 2000, .blocks = 10}, 2);
  std::vector<std::uint64_t> train(1000);
  std::iota(train.begin(), train.end(), 0);
  const std::vector<float> scores = vip_scores(graph, train, 50, {5, 5});
  std::vector<double> seen(2000, 0);
  double batches = 0;
  for (std::uint64_t epoch = 0; epoch < 50; ++epoch)
    for (const auto& batch : record_trace(graph, random_order(train, epoch, 1), 50, {5, 5}, epoch, 1)) {
      ++batches;
      for (const std::uint64_t v : batch) ++seen[v];
    }
  double error = 0;
  double sum = 0;
  for (std::size_t v = 0; v < 2000; ++v)
    error += std::abs(seen[v] / batches - static_cast<double>(scores[v])), sum += seen[v] / batches;
  EXPECT_LT(error / sum, 0.15);
}

TEST(Cache, SaysWhatIsMissing) {
  EXPECT_THROW(make_cache({.policy = Policy::kStatic, .nodes = 5, .capacity = 1, .scores = {}}), Error);
  EXPECT_THROW(make_cache({.policy = Policy::kFifo, .nodes = 5, .capacity = 1, .shards = 0, .scores = {}}), Error);
}

}  // namespace
}  // namespace paceline::gnn
