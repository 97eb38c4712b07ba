#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <numeric>

#include "paceline/base/error.h"
#include "paceline/base/rng.h"
#include "paceline/gnn/feature_file.h"
#include "paceline/gnn/feature_store.h"

namespace paceline::gnn {
namespace {
namespace fs = std::filesystem;

class Features : public ::testing::Test {
 protected:
  void SetUp() override { path_ = fs::temp_directory_path() / ("paceline_gnn_features_" + std::to_string(::getpid())); }
  void TearDown() override { fs::remove(path_); }

  static float value(std::uint64_t row, std::uint32_t column) {
    return static_cast<float>(row) + static_cast<float>(column) / 1024;
  }
  void write(std::uint64_t rows, std::uint32_t columns, RowCodec codec) {
    FeatureWriter writer(path_, columns, codec);
    std::vector<float> row(columns);
    for (std::uint64_t r = 0; r < rows; ++r) {
      for (std::uint32_t c = 0; c < columns; ++c) row[c] = value(r, c);
      writer.add(row);
    }
    writer.finish();
  }
  std::string error_of() {
    try {
      FeatureReader reader(path_);
    } catch (const Error& error) {
      return error.what();
    }
    return "none";
  }
  fs::path path_;
};

TEST_F(Features, ReadsWhatWasWrittenInAnyOrderWithRepeats) {
  base::Rng rng(1);
  for (const std::uint32_t columns : {1u, 3u, 100u, 128u, 1433u}) {
    write(1000, columns, RowCodec::kFloat32);
    for (const unsigned depth : {1u, 4u, 64u}) {
      FeatureReader reader(path_, depth);
      EXPECT_EQ(reader.rows(), 1000u);
      std::vector<std::uint64_t> ids{0, 999, 5, 5, 6};
      for (int i = 0; i < 500; ++i) ids.push_back(rng.below(1000));
      std::vector<float> out(ids.size() * columns);
      reader.read(ids, out);
      for (std::size_t i = 0; i < ids.size(); ++i)
        for (std::uint32_t c = 0; c < columns; ++c)
          ASSERT_EQ(out[i * columns + c], value(ids[i], c)) << columns << " " << reader.method();
      EXPECT_LT(reader.reads(), ids.size());
      EXPECT_THROW(reader.read(std::vector<std::uint64_t>{1000}, std::span(out).first(columns)), Error);
    }
  }
}

TEST_F(Features, CodecsKeepTheirPrecision) {
  base::Rng rng(2);
  std::vector<float> row(77);
  std::vector<float> back(77);
  for (int i = 0; i < 1000; ++i) {
    float largest = 0;
    for (float& each : row) each = static_cast<float>(rng.normal()), largest = std::max(largest, std::fabs(each));
    std::vector<char> bytes(row_bytes(RowCodec::kFloat16, 77));
    encode_row(RowCodec::kFloat16, row, bytes.data());
    decode_row(RowCodec::kFloat16, bytes.data(), back);
    for (std::size_t c = 0; c < 77; ++c)
      EXPECT_LE(std::fabs(back[c] - row[c]), std::fabs(row[c]) * 0x1p-11f + 0x1p-25f);
    bytes.resize(row_bytes(RowCodec::kInt8, 77));
    encode_row(RowCodec::kInt8, row, bytes.data());
    decode_row(RowCodec::kInt8, bytes.data(), back);
    for (std::size_t c = 0; c < 77; ++c) EXPECT_LE(std::fabs(back[c] - row[c]), largest / 127 * 0.5001f);
  }
}

TEST_F(Features, NamesWhatIsWrongWithAFile) {
  std::ofstream(path_) << std::string(5000, 'x');
  EXPECT_NE(error_of().find("is not a Paceline feature file"), std::string::npos) << error_of();
  std::ofstream(path_, std::ios::trunc) << "x";
  EXPECT_NE(error_of().find("is not a Paceline feature file"), std::string::npos) << error_of();
  write(100, 64, RowCodec::kFloat32);
  fs::resize_file(path_, 8192);
  EXPECT_NE(error_of().find("is cut short: 100 rows of 256 bytes"), std::string::npos) << error_of();
  write(100, 64, RowCodec::kFloat32);
  {
    std::fstream file(path_, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(24);
    file.put('\7');
  }
  EXPECT_NE(error_of().find("header is damaged"), std::string::npos) << error_of();
}

TEST_F(Features, AFileCutWhileInUseIsAnErrorNotACrash) {
  write(10000, 64, RowCodec::kFloat32);
  FeatureReader reader(path_);
  fs::resize_file(path_, 4096 + 5000 * 256);
  std::vector<std::uint64_t> ids(10000);
  std::iota(ids.begin(), ids.end(), 0);
  std::vector<float> out(ids.size() * 64);
  EXPECT_THROW(reader.read(ids, out), Error);
  reader.read(std::span(ids).first(100), std::span(out).first(6400));
  EXPECT_EQ(out[64], value(1, 0));
}

TEST_F(Features, TheStoreGivesTheSameRowsWhateverIsCached) {
  write(500, 20, RowCodec::kFloat32);
  base::Rng rng(3);
  std::vector<std::vector<std::uint64_t>> batches(60);
  std::vector<std::uint64_t> all(500);
  std::iota(all.begin(), all.end(), 0);
  for (auto& batch : batches) {
    rng.shuffle(std::span(all));
    batch.assign(all.begin(), all.begin() + 120);
  }
  const std::vector<float> scores(500, 1);
  for (const Policy policy : {Policy::kFifo, Policy::kLru, Policy::kClock, Policy::kSieve, Policy::kS3Fifo,
                              Policy::kStatic, Policy::kLookahead})
    for (const std::uint64_t fast : {0, 50, 1000})
      for (const std::uint64_t host : {0, 100}) {
        FeatureStore store(path_, {.fast = {.policy = policy, .capacity = fast, .scores = scores},
                                   .host = {.policy = Policy::kSieve, .capacity = host, .scores = {}}});
        for (std::size_t b = 0; b < batches.size(); ++b) {
          if (b == 0) store.announce(batches[0]);
          if (b + 1 < batches.size()) store.announce(batches[b + 1]);
          std::vector<float> out(batches[b].size() * 20);
          store.gather(batches[b], out);
          for (std::size_t i = 0; i < batches[b].size(); ++i)
            for (std::uint32_t c = 0; c < 20; ++c) ASSERT_EQ(out[i * 20 + c], value(batches[b][i], c));
        }
        if (fast == 0)
          EXPECT_EQ(store.counts().fast_hits, 0u);
        else
          EXPECT_GT(store.counts().fast_hits, 0u);
      }
}

}  // namespace
}  // namespace paceline::gnn
