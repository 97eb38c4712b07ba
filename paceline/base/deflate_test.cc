#include "paceline/base/deflate.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "paceline/base/file.h"
#include "paceline/base/rng.h"

namespace paceline::base {
namespace {

/// Through our own reader of gzip, whose judge is zlib.
std::string unpacked(const std::string& packed) {
  const auto path = std::filesystem::temp_directory_path() / ("paceline_deflate_test_" + std::to_string(::getpid()));
  std::ofstream(path, std::ios::binary) << packed;
  std::string text;
  for_each_document(path, [&](const std::string&, ByteSource& source) {
    text = read_all(source);
    EXPECT_FALSE(source.damage());
  });
  std::filesystem::remove(path);
  return text;
}

TEST(Deflater, GivesBackWhatItPackedWhateverThePieces) {
  Rng rng(7);
  for (int round = 0; round < 40; ++round) {
    std::string text, in_pieces, at_once;
    Deflater pieces, whole;
    const std::int64_t count = rng.between(0, 30);
    for (std::int64_t i = 0; i < count; ++i) {
      const std::string piece(static_cast<std::size_t>(rng.between(0, 40'000)), static_cast<char>(rng.between(0, 255)));
      text += piece + std::to_string(rng.between(0, 1'000'000));
    }
    for (std::size_t at = 0; at < text.size();) {
      const std::string_view piece =
          std::string_view(text).substr(at, static_cast<std::size_t>(rng.between(1, 100'000)));
      pieces.add(piece, in_pieces);
      at += piece.size();
    }
    pieces.finish(in_pieces);
    whole.add(text, at_once);
    whole.finish(at_once);
    EXPECT_EQ(unpacked(in_pieces), text) << "seed 7, round " << round;
    EXPECT_EQ(unpacked(at_once), text) << "seed 7, round " << round;
  }
}

}  // namespace
}  // namespace paceline::base
