#include <gtest/gtest.h>

#include <algorithm>

#include "paceline/base/error.h"
#include "paceline/base/file.h"
#include "paceline/base/inflate.h"
#include "paceline/base/rng.h"
#include "paceline/base/test_files.h"

namespace paceline::base {
namespace {
using namespace test;

struct Seen {
  std::string name;  // below the path given
  std::string text;
  std::string damage;  // "" for none

  bool operator==(const Seen&) const = default;
};

std::vector<Seen> documents(const std::string& bytes) {
  const TempFolder folder;
  const std::filesystem::path path = folder.write("file", bytes);
  std::vector<Seen> all;
  for_each_document(path, [&](const std::string& name, ByteSource& source) {
    std::string text = read_all(source);
    all.push_back({name.substr(path.string().size()), std::move(text), source.damage().value_or("")});
  });
  return all;
}

/// A text that looks like a trace: repetitive, and not the same everywhere.
std::string sample(std::size_t size) {
  Rng random(size);
  std::string text = "[";
  while (text.size() < size) text += "{\"ts\": " + std::to_string(random.below(1'000'000)) + ", \"name\": \"gemm\"},\n";
  text.resize(size);
  return text;
}

std::size_t common_prefix(const std::string& a, const std::string& b) {
  const auto end =
      std::mismatch(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(std::min(a.size(), b.size())), b.begin());
  return static_cast<std::size_t>(end.first - a.begin());
}

/// The bytes of a compressed source when it is read in small, odd pieces.
std::string read_in_pieces(ByteSource& source, std::size_t piece) {
  std::string text, part(piece, '\0');
  while (const std::size_t count = source.read(part)) text.append(part, 0, count);
  return text;
}

TEST(Documents, AreRecognisedByTheirFirstBytes) {
  const std::string text = sample(700'000);
  const std::vector<Seen> plain{{"", text, ""}};
  EXPECT_EQ(documents(text), plain);
  EXPECT_EQ(documents(gzip(text)), plain);
  EXPECT_EQ(documents(zstd(text)), plain);
  EXPECT_EQ(documents(gzip(zstd(text))), plain);
  EXPECT_EQ(documents(tar_member("a/rank-0.json", text) + tar_end()),
            (std::vector<Seen>{{"/a/rank-0.json", text, ""}}));
}

TEST(Documents, MayBeShorterThanAnySignature) {
  EXPECT_EQ(documents("{"), (std::vector<Seen>{{"", "{", ""}}));
  EXPECT_EQ(documents("\x1F"), (std::vector<Seen>{{"", "\x1F", ""}}));
}

TEST(Documents, OfArchivesMayBePackedAgain) {
  const std::string archive = tar_member("one.json", "1") + tar_member("two.json.gz", gzip("2")) +
                              tar_member("three.tar", tar_member("x", "3") + tar_end()) + tar_end();
  const std::vector<Seen> all{{"/one.json", "1", ""}, {"/two.json.gz", "2", ""}, {"/three.tar/x", "3", ""}};
  EXPECT_EQ(documents(archive), all);
  EXPECT_EQ(documents(gzip(archive)), all);
  EXPECT_EQ(documents(zstd(archive)), all);
}

TEST(Documents, PackedWithoutEndAreHandedOverAsTheyAre) {
  std::string bomb = "core";
  for (int i = 0; i < 10; ++i) bomb = gzip(bomb);
  const std::vector<Seen> all = documents(bomb);
  ASSERT_EQ(all.size(), 1u);
  EXPECT_TRUE(all[0].text.starts_with("\x1F\x8B"));
}

TEST(Documents, EmptyMissingAndFoldersAreErrorsThatSaySo) {
  const TempFolder folder;
  const auto open = [&](const std::filesystem::path& path) {
    return error_of([&] { for_each_document(path, [](const std::string&, ByteSource&) {}); });
  };
  EXPECT_NE(open(folder.write("empty", "")).find("the file is empty"), std::string::npos);
  EXPECT_NE(open(folder.path() / "none").find("cannot open: No such file"), std::string::npos);
  EXPECT_NE(open(folder.path()).find("is a directory"), std::string::npos);
  EXPECT_NE(open(folder.path() / std::string(5000, 'x')).find("cannot open"), std::string::npos);
}

TEST(Documents, CountTheBytesTakenFromTheFile) {
  const TempFolder folder;
  const std::string packed = gzip(sample(3'000'000));
  std::int64_t taken = 0;
  for_each_document(
      folder.write("a.gz", packed), [](const std::string&, ByteSource& source) { read_all(source); },
      [&](std::int64_t bytes) { taken += bytes; });
  EXPECT_EQ(taken, static_cast<std::int64_t>(packed.size()));
}

TEST(Gzip, MembersFollowOneAnother) {
  const std::string a = sample(400'000), b = sample(300'001);
  EXPECT_EQ(documents(gzip(a) + gzip("") + gzip(b, 0)), (std::vector<Seen>{{"", a + b, ""}}));
}

TEST(Gzip, ZeroPaddingIsOrdinaryAndForeignBytesAreTold) {
  const std::string text = sample(1000), packed = gzip(text);
  EXPECT_EQ(documents(packed + std::string(700'000, '\0')), (std::vector<Seen>{{"", text, ""}}));
  const std::vector<Seen> all = documents(packed + "garbage");
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].text, text);
  EXPECT_EQ(all[0].damage, "what follows the gzip data from byte " + std::to_string(packed.size()) +
                               " on is not gzip and was left out");
}

TEST(Gzip, ACutLeavesWhatCameBefore) {
  const std::string text = sample(2'000'000), packed = gzip(text);
  Rng random(1);
  for (int round = 0; round < 40; ++round) {
    const std::size_t cut = 3 + random.below(packed.size() - 3);
    const std::vector<Seen> all = documents(packed.substr(0, cut));
    ASSERT_EQ(all.size(), 1u);
    EXPECT_EQ(all[0].damage, "ends inside the gzip data, after byte " + std::to_string(cut));
    ASSERT_EQ(common_prefix(all[0].text, text), all[0].text.size());
    const double part = static_cast<double>(cut) / static_cast<double>(packed.size());
    EXPECT_GT(static_cast<double>(all[0].text.size()), part * static_cast<double>(text.size()) - 70'000);
  }
}

TEST(Gzip, DamageIsToldWithItsByteAndWhatCameBeforeIsKept) {
  const std::string text = sample(2'000'000), packed = gzip(text);
  Rng random(2);
  for (int round = 0; round < 100; ++round) {
    std::string damaged = packed;
    const std::size_t at = 10 + random.below(packed.size() - 10);  // behind the header
    const auto flip = static_cast<char>(1 + random.below(255));
    damaged[at] = static_cast<char>(damaged[at] ^ flip);
    const std::vector<Seen> all = documents(damaged);
    ASSERT_EQ(all.size(), 1u);
    EXPECT_TRUE(all[0].damage.starts_with("gzip data is damaged near byte ") ||
                all[0].damage.starts_with("ends inside") || all[0].damage.starts_with("what follows"))
        << all[0].damage;
    const double part = static_cast<double>(at) / static_cast<double>(packed.size());
    EXPECT_GT(static_cast<double>(common_prefix(all[0].text, text)), part * static_cast<double>(text.size()) - 70'000);
  }
}

/// What zlib delivers of possibly damaged bytes, and whether it is content with them.
std::pair<std::string, bool> zlib_inflate(const std::string& packed) {
  z_stream stream{};
  constexpr int kGzip = 16;
  PL_CHECK(inflateInit2(&stream, MAX_WBITS + kGzip) == Z_OK);
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data()));
  stream.avail_in = static_cast<uInt>(packed.size());
  std::string text(64 * 1024, '\0');
  stream.next_out = reinterpret_cast<Bytef*>(text.data());
  stream.avail_out = static_cast<uInt>(text.size());
  const int code = inflate(&stream, Z_SYNC_FLUSH);
  text.resize(stream.total_out);
  inflateEnd(&stream);
  return {text, code == Z_STREAM_END};
}

TEST(Gzip, DeliversOfDamagedDataWhatZlibDelivers) {
  Rng random(3);
  for (int round = 0; round < 3000; ++round) {
    std::string text = random.chance(0.5) ? sample(random.below(5000)) : std::string(random.below(5000), '\0');
    if (random.chance(0.2)) {
      for (char& c : text) c = static_cast<char>(random.next());
    }
    std::string packed = gzip(text, static_cast<int>(random.below(10)));
    for (std::uint64_t flips = random.below(3); flips > 0; --flips) {
      // Behind the header: there zlib also minds reserved bits.
      char& byte = packed[10 + random.below(packed.size() - 10)];
      byte = static_cast<char>(byte ^ static_cast<char>(1u << random.below(8)));
    }
    if (random.chance(0.3)) packed.resize(2 + random.below(packed.size() - 2));
    const auto [expected, good] = zlib_inflate(packed);
    const auto inner = memory_source(packed);
    const auto source = gzip_source(*inner);
    const std::string got = read_in_pieces(*source, 1 + random.below(3000));
    if (good) {
      ASSERT_EQ(got, expected);
      ASSERT_FALSE(source->damage()) << *source->damage();
    } else {
      ASSERT_GE(common_prefix(got, expected) + 258, expected.size());  // one symbol: at most 258 bytes
      // zlib also minds incomplete Huffman codes that nothing uses; then the text and its checksum are right.
      ASSERT_TRUE(source->damage() || got == text) << round;
    }
  }
}

TEST(Zstd, FramesFollowOneAnotherAlsoSkippableOnes) {
  const std::string a = sample(400'000), b = sample(300'001);
  const std::string skippable("\x52\x2A\x4D\x18\x03\x00\x00\x00xyz", 11);
  EXPECT_EQ(documents(zstd(a) + skippable + zstd(b)), (std::vector<Seen>{{"", a + b, ""}}));
  EXPECT_EQ(documents(skippable + zstd(a)), (std::vector<Seen>{{"", a, ""}}));
}

TEST(Zstd, AFrameThatFillsTheReadersBufferEndsWell) {
  for (const std::size_t size : {1u, 4096u, 65'536u, 131'072u, 262'144u}) {
    const std::string text = sample(size), packed = zstd(text);
    const auto inner = memory_source(packed);
    const auto source = zstd_source(*inner);
    EXPECT_EQ(read_in_pieces(*source, size), text);
    EXPECT_FALSE(source->damage()) << size << ": " << *source->damage();
  }
}

TEST(Zstd, CutsAndDamageLeaveAllWholeBlocksBeforeThem) {
  constexpr std::size_t kBlock = 128 * 1024;  // RFC 8878, 3.1.1.2.4: the largest block
  const std::string text = sample(3'000'000), packed = zstd(text);
  Rng random(4);
  for (int round = 0; round < 60; ++round) {
    const std::size_t at = 16 + random.below(packed.size() - 16);
    std::string damaged = packed;
    if (round % 2 == 0) damaged.resize(at);
    // Random bytes for a stretch: a single flip can stay unseen in a frame without checksum.
    if (round % 2 == 1) {
      for (std::size_t i = at; i < std::min(at + 4000, damaged.size()); ++i)
        damaged[i] = static_cast<char>(random.next());
    }
    const std::vector<Seen> all = documents(damaged);
    ASSERT_EQ(all.size(), 1u);
    if (round % 2 == 0) {
      EXPECT_EQ(all[0].damage, "ends inside the zstd data, after byte " + std::to_string(at));
    }
    const double part = static_cast<double>(at) / static_cast<double>(packed.size());
    EXPECT_GT(static_cast<double>(common_prefix(all[0].text, text)),
              part * static_cast<double>(text.size()) - 2.0 * kBlock);
  }
}

TEST(Tar, LongNamesOfGnuPaxAndUstar) {
  const std::string name = std::string(150, 'd') + "/" + std::string(120, 'f') + ".json";
  const std::string pax_path = " path=" + name + "\n";
  const std::string record = std::to_string(pax_path.size() + 3) + pax_path;
  const std::string archive = tar_member("././@LongLink", name + std::string(1, '\0'), 'L') +
                              tar_member("short", "gnu") + tar_member("PaxHeaders/x", record, 'x') +
                              tar_member("short", "pax") + tar_member("f.json", "ustar", '0', std::string(120, 'p')) +
                              tar_member("plain", "p") + tar_end();
  ASSERT_EQ(record.size(), pax_path.size() + 3);
  EXPECT_EQ(documents(archive), (std::vector<Seen>{{"/" + name, "gnu", ""},
                                                   {"/" + name, "pax", ""},
                                                   {"/" + std::string(120, 'p') + "/f.json", "ustar", ""},
                                                   {"/plain", "p", ""}}));
}

TEST(Tar, ALongNameOfAFolderIsNotGivenToTheNextFile) {
  const std::string archive = tar_member("././@LongLink", std::string(150, 'd') + "/", 'L') + tar_member("d", "", '5') +
                              tar_member("a.json", "a") + tar_end();
  EXPECT_EQ(documents(archive), (std::vector<Seen>{{"/a.json", "a", ""}}));
}

TEST(Tar, OnlyRegularVisibleFilesAreDocuments) {
  const std::string archive = tar_member("folder/", "", '5') + tar_member("link", "", '2') + tar_member("._a", "mac") +
                              tar_member("PaxHeader", "", 'g') + tar_member("a", "") + tar_member("b", "b", '7') +
                              tar_end();
  EXPECT_EQ(documents(archive), (std::vector<Seen>{{"/a", "", ""}, {"/b", "b", ""}}));
}

TEST(Tar, AVisitorNeedNotReadTheWholeMember) {
  const TempFolder folder;
  const auto path = folder.write("t", tar_member("a", sample(5000)) + tar_member("b", "b") + tar_end());
  std::string firsts;
  for_each_document(path, [&](const std::string&, ByteSource& source) {
    std::array<char, 1> first{};
    source.read(first);
    firsts += first[0];
  });
  EXPECT_EQ(firsts, "[b");
}

TEST(Tar, ACutInsideAMemberIsToldOnceAndKeepsWhatWasThere) {
  const std::string text = sample(3000);
  const std::string archive = tar_member("a", "a") + tar_member("b", text) + tar_end();
  EXPECT_EQ(documents(archive.substr(0, 512 * 3 + 1000)),
            (std::vector<Seen>{
                {"/a", "a", ""},
                {"/b", text.substr(0, 1000), "the archive ends inside this member, 2000 bytes before its end"}}));
}

TEST(Tar, ACutInTheCompressionIsToldOnce) {
  const std::string archive = gzip(tar_member("a", sample(100'000)) + tar_end());
  const std::vector<Seen> all = documents(archive.substr(0, archive.size() / 2));
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].name, "/a");
  EXPECT_TRUE(all[0].damage.starts_with("ends inside the gzip data")) << all[0].damage;
}

TEST(Tar, ACutBetweenMembersIsTold) {
  EXPECT_EQ(
      documents(tar_member("a", "a")),
      (std::vector<Seen>{{"/a", "a", ""}, {"", "", "the archive ends without its end mark; members may be missing"}}));
}

TEST(Tar, ADamagedHeaderCostsOnlyItsMember) {
  std::string archive = tar_member("a", "a") + tar_member("b", "b") + tar_member("c", "c") + tar_end();
  archive[2 * 512 + 10] ^= 1;
  EXPECT_EQ(documents(archive),
            (std::vector<Seen>{{"/a", "a", ""},
                               {"", "", "bytes 1024 to 2048 of the archive are no members; what began there is lost"},
                               {"/c", "c", ""}}));
}

TEST(Tar, SizesBeyondEightGigabytesAreUnderstood) {
  // GNU stores them in base 256, pax in a record; the members here end early, which shows the size that was read.
  std::string gnu = tar_member("big", "x");
  std::fill_n(gnu.begin() + 124, 12, '\0');
  gnu[124] = '\x80';
  gnu[124 + 7] = 4;  // 4 * 2^32
  std::fill_n(gnu.begin() + 148, 8, ' ');
  unsigned sum = 0;
  for (int i = 0; i < 512; ++i) sum += static_cast<unsigned char>(gnu[static_cast<std::size_t>(i)]);
  std::snprintf(gnu.data() + 148, 8, "%06o", sum);
  const std::string pax = tar_member("PaxHeaders/x", "20 size=17179869184\n", 'x') + tar_member("big", "x");
  for (const std::string& archive : {gnu, pax}) {
    const std::vector<Seen> all = documents(archive);
    ASSERT_EQ(all.size(), 1u);
    EXPECT_EQ(all[0].damage, "the archive ends inside this member, 17179868672 bytes before its end");
  }
}

}  // namespace
}  // namespace paceline::base
