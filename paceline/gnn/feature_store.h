#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <vector>

#include "paceline/gnn/cache.h"
#include "paceline/gnn/feature_file.h"

namespace paceline::gnn {

struct StoreOptions {
  CacheOptions fast;  // rows as floats, ready for the model
  CacheOptions host;  // rows below it; capacity 0 leaves the level out
  unsigned depth = 64;
};

/// Features of batches through two cache levels over the disk. Results never depend on what is cached.
/// One owner; memory: (fast + host capacity) * columns * 4 bytes, the caches' own and the reader's buffers.
class FeatureStore {
 public:
  FeatureStore(const std::filesystem::path& path, StoreOptions options);

  std::uint32_t columns() const { return reader_.columns(); }
  /// The batch after those announced so far, for look-ahead caches; every batch gathered must have been announced.
  void announce(std::span<const std::uint64_t> ids);
  /// Rows of different ids, in their order, into out[i * columns()].
  void gather(std::span<const std::uint64_t> ids, std::span<float> out);

  struct Counts {
    std::uint64_t lookups = 0;
    std::uint64_t fast_hits = 0;
    std::uint64_t host_hits = 0;
  };
  const Counts& counts() const { return counts_; }
  const FeatureReader& reader() const { return reader_; }
  std::uint64_t resident_bytes() const;

 private:
  struct Level {
    std::unique_ptr<Cache> cache;
    std::vector<float> rows;
  };
  void preload(Level& level);
  void fill(Level& level, std::span<const std::uint64_t> ids, std::span<const std::size_t> places,
            std::span<const float> out);

  FeatureReader reader_;
  Level fast_;
  Level host_;
  Counts counts_;
};

}  // namespace paceline::gnn
