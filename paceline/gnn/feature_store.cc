#include "paceline/gnn/feature_store.h"

#include <fmt/core.h>

#include <algorithm>

#include "paceline/base/error.h"

namespace paceline::gnn {

FeatureStore::FeatureStore(const std::filesystem::path& path, StoreOptions options) : reader_(path, options.depth) {
  for (CacheOptions* each : {&options.fast, &options.host}) each->nodes = reader_.rows();
  // The host level sees only what the fast one lacks, in an order nobody can announce: look-ahead there would be told
  // of batches that never come. By score is the best it can do.
  if (options.host.policy == Policy::kLookahead || options.host.policy == Policy::kBelady)
    throw Error(ErrorKind::kUsage, "feature store",
                "the host level cannot look ahead; give it a static policy or SIEVE");
  fast_.cache = make_cache(options.fast);
  host_.cache = make_cache(options.host);
  for (Level* level : {&fast_, &host_}) preload(*level);
}

void FeatureStore::preload(Level& level) {
  level.rows.resize(level.cache->capacity() * reader_.columns());
  const std::span<const std::uint64_t> ids = level.cache->preloaded();
  constexpr std::size_t kAtOnce = 4096;
  for (std::size_t begin = 0; begin < ids.size(); begin += kAtOnce) {
    const std::size_t count = std::min(kAtOnce, ids.size() - begin);
    reader_.read(ids.subspan(begin, count),
                 std::span(level.rows).subspan(begin * reader_.columns(), count * reader_.columns()));
  }
}

void FeatureStore::announce(std::span<const std::uint64_t> ids) {
  fast_.cache->announce(ids);
}

void FeatureStore::fill(Level& level, std::span<const std::uint64_t> ids, std::span<const std::size_t> places,
                        std::span<const float> out) {
  std::vector<Slot> slots(ids.size());
  level.cache->insert(ids, slots);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (slots[i] == kNoSlot) continue;
    const auto row = out.subspan(places[i] * columns(), columns());
    std::copy(row.begin(), row.end(),
              level.rows.begin() + static_cast<std::ptrdiff_t>(slots[i] * std::size_t{columns()}));
  }
  level.cache->release(slots);
}

void FeatureStore::gather(std::span<const std::uint64_t> ids, std::span<float> out) {
  PL_CHECK(out.size() == ids.size() * columns());
  for (const std::uint64_t id : ids)
    if (id >= reader_.rows())
      throw Error(ErrorKind::kUsage, "feature store",
                  fmt::format("node {} has no row; the file has {}", id, reader_.rows()));
  // ids still wanted after each level, and their places in the batch
  std::vector<std::uint64_t> wanted(ids.begin(), ids.end());
  std::vector<std::size_t> places(ids.size());
  for (std::size_t i = 0; i < ids.size(); ++i) places[i] = i;
  counts_.lookups += ids.size();
  std::vector<std::vector<std::uint64_t>> missed;
  std::vector<std::vector<std::size_t>> missed_places;
  for (Level* level : {&fast_, &host_}) {
    std::vector<Slot> slots(wanted.size());
    level->cache->find(wanted, slots);
    std::vector<std::uint64_t> left;
    std::vector<std::size_t> left_places;
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      if (slots[i] == kNoSlot) {
        left.push_back(wanted[i]);
        left_places.push_back(places[i]);
        continue;
      }
      const auto row = std::span<const float>(level->rows).subspan(slots[i] * std::size_t{columns()}, columns());
      std::copy(row.begin(), row.end(), out.begin() + static_cast<std::ptrdiff_t>(places[i] * columns()));
    }
    (level == &fast_ ? counts_.fast_hits : counts_.host_hits) += wanted.size() - left.size();
    level->cache->release(slots);
    missed.push_back(left);
    missed_places.push_back(left_places);
    wanted = std::move(left);
    places = std::move(left_places);
  }
  std::vector<float> rows(wanted.size() * columns());
  reader_.read(wanted, rows);
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const auto row = std::span<const float>(rows).subspan(i * columns(), columns());
    std::copy(row.begin(), row.end(), out.begin() + static_cast<std::ptrdiff_t>(places[i] * columns()));
  }
  fill(host_, missed[1], missed_places[1], out);
  fill(fast_, missed[0], missed_places[0], out);
}

std::uint64_t FeatureStore::resident_bytes() const {
  return (fast_.rows.size() + host_.rows.size()) * sizeof(float) + reader_.buffer_bytes();
}

}  // namespace paceline::gnn
