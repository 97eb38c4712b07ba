#include "paceline/base/deflate.h"

#include <gtest/gtest.h>

#include "paceline/base/file.h"
#include "paceline/base/inflate.h"
#include "paceline/base/rng.h"

namespace paceline::base {
namespace {

std::string plain_of(std::string_view packed) {
  const auto bytes = memory_source(packed);
  const auto plain = gzip_source(*bytes);
  const std::string text = read_all(*plain);
  EXPECT_FALSE(plain->damage().has_value()) << *plain->damage();
  return text;
}

TEST(Gzip, GivesBackWhatWasPacked) {
  Rng rng(7);
  for (const std::size_t size : {0u, 1u, 1000u, (1u << 20) - 1, 1u << 20, (1u << 20) + 1, 5u << 20}) {
    for (const std::uint64_t letters : {3u, 256u}) {  // packs well, packs not at all
      std::string text(size, '\0');
      for (char& c : text) c = static_cast<char>(rng.below(letters));
      const std::string packed = gzip(text);
      EXPECT_EQ(plain_of(packed), text) << size << " bytes of " << letters << " letters";
      if (letters == 3 && size > 100'000) {
        EXPECT_LT(packed.size(), size / 2);
      }
    }
  }
}

}  // namespace
}  // namespace paceline::base
