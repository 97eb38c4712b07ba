#include "paceline/trace/flight_recorder/pickle.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "paceline/base/error.h"
#include "paceline/base/rng.h"

namespace paceline::trace::flight_recorder {
namespace {

// pickle.dumps(object, protocol=2) with the object of kExpected, by Python 3.11.
constexpr unsigned char kProtocol2[] = {
    0x80, 2,    0x7d, 0x71, 0,    0x28, 0x58, 7,    0,    0,    0,    0x76, 0x65, 0x72, 0x73, 0x69, 0x6f, 0x6e, 0x71,
    1,    0x58, 3,    0,    0,    0,    0x32, 0x2e, 0x34, 0x71, 2,    0x58, 9,    0,    0,    0,    0x70, 0x67, 0x5f,
    0x63, 0x6f, 0x6e, 0x66, 0x69, 0x67, 0x71, 3,    0x7d, 0x71, 4,    0x58, 1,    0,    0,    0,    0x30, 0x71, 5,
    0x7d, 0x71, 6,    0x28, 0x58, 4,    0,    0,    0,    0x6e, 0x61, 0x6d, 0x65, 0x71, 7,    0x68, 5,    0x58, 5,
    0,    0,    0,    0x72, 0x61, 0x6e, 0x6b, 0x73, 0x71, 8,    0x58, 6,    0,    0,    0,    0x5b, 0x30, 0x2c, 0x20,
    0x31, 0x5d, 0x71, 9,    0x75, 0x73, 0x58, 7,    0,    0,    0,    0x6e, 0x75, 0x6d, 0x62, 0x65, 0x72, 0x73, 0x71,
    10,   0x5d, 0x71, 11,   0x28, 0x4b, 0,    0x4b, 0xff, 0x4d, 0,    1,    0x4a, 0xff, 0xff, 0xff, 0xff, 0x8a, 5,
    0,    0,    0,    0x80, 0,    0x8a, 6,    0,    0,    0,    0,    0,    0xff, 0x47, 0x3f, 0xf8, 0,    0,    0,
    0,    0,    0,    0x88, 0x89, 0x4e, 0x65, 0x58, 6,    0,    0,    0,    0x74, 0x75, 0x70, 0x6c, 0x65, 0x73, 0x71,
    12,   0x5d, 0x71, 13,   0x28, 0x29, 0x4b, 1,    0x85, 0x71, 14,   0x4b, 1,    0x4b, 2,    0x86, 0x71, 15,   0x4b,
    1,    0x4b, 2,    0x4b, 3,    0x87, 0x71, 0x10, 0x28, 0x4b, 1,    0x4b, 2,    0x4b, 3,    0x4b, 4,    0x74, 0x71,
    0x11, 0x65, 0x58, 4,    0,    0,    0,    0x6b, 0x65, 0x79, 0x73, 0x71, 0x12, 0x7d, 0x71, 0x13, 0x28, 0x4b, 1,
    0x58, 1,    0,    0,    0,    0x78, 0x71, 0x14, 0x68, 15,   0x58, 1,    0,    0,    0,    0x79, 0x71, 0x15, 0x75,
    0x58, 7,    0,    0,    0,    0x65, 0x6e, 0x74, 0x72, 0x69, 0x65, 0x73, 0x71, 0x16, 0x5d, 0x71, 0x17, 0x75, 0x2e};
// The same with protocol=5, and bytes (b"ab") under "bytes".
constexpr unsigned char kProtocol5[] = {
    0x80, 5,    0x95, 0xd6, 0,    0,    0,    0,    0,    0,    0,    0x7d, 0x94, 0x28, 0x8c, 7,    0x76, 0x65, 0x72,
    0x73, 0x69, 0x6f, 0x6e, 0x94, 0x8c, 3,    0x32, 0x2e, 0x34, 0x94, 0x8c, 9,    0x70, 0x67, 0x5f, 0x63, 0x6f, 0x6e,
    0x66, 0x69, 0x67, 0x94, 0x7d, 0x94, 0x8c, 1,    0x30, 0x94, 0x7d, 0x94, 0x28, 0x8c, 4,    0x6e, 0x61, 0x6d, 0x65,
    0x94, 0x68, 5,    0x8c, 5,    0x72, 0x61, 0x6e, 0x6b, 0x73, 0x94, 0x8c, 6,    0x5b, 0x30, 0x2c, 0x20, 0x31, 0x5d,
    0x94, 0x75, 0x73, 0x8c, 7,    0x6e, 0x75, 0x6d, 0x62, 0x65, 0x72, 0x73, 0x94, 0x5d, 0x94, 0x28, 0x4b, 0,    0x4b,
    0xff, 0x4d, 0,    1,    0x4a, 0xff, 0xff, 0xff, 0xff, 0x8a, 5,    0,    0,    0,    0x80, 0,    0x8a, 6,    0,
    0,    0,    0,    0,    0xff, 0x47, 0x3f, 0xf8, 0,    0,    0,    0,    0,    0,    0x88, 0x89, 0x4e, 0x65, 0x8c,
    6,    0x74, 0x75, 0x70, 0x6c, 0x65, 0x73, 0x94, 0x5d, 0x94, 0x28, 0x29, 0x4b, 1,    0x85, 0x94, 0x4b, 1,    0x4b,
    2,    0x86, 0x94, 0x4b, 1,    0x4b, 2,    0x4b, 3,    0x87, 0x94, 0x28, 0x4b, 1,    0x4b, 2,    0x4b, 3,    0x4b,
    4,    0x74, 0x94, 0x65, 0x8c, 4,    0x6b, 0x65, 0x79, 0x73, 0x94, 0x7d, 0x94, 0x28, 0x4b, 1,    0x8c, 1,    0x78,
    0x94, 0x68, 15,   0x8c, 1,    0x79, 0x94, 0x75, 0x8c, 7,    0x65, 0x6e, 0x74, 0x72, 0x69, 0x65, 0x73, 0x94, 0x5d,
    0x94, 0x8c, 5,    0x62, 0x79, 0x74, 0x65, 0x73, 0x94, 0x43, 2,    0x61, 0x62, 0x94, 0x75, 0x2e};
// pickle.dumps(os.system, protocol=2): what a hostile dump would call.
constexpr unsigned char kSystem[] = {0x80, 2,    0x63, 0x70, 0x6f, 0x73, 0x69, 0x78, 10,  0x73,
                                     0x79, 0x73, 0x74, 0x65, 0x6d, 10,   0x71, 0,    0x2e};

constexpr std::string_view kExpected = R"({"version":"2.4","pg_config":{"0":{"name":"0","ranks":"[0, 1]"}},)"
                                       R"("numbers":[0,255,256,-1,2147483648,-1099511627776,1.5,true,false,null],)"
                                       R"("tuples":[[],[1],[1,2],[1,2,3],[1,2,3,4]],"keys":{"1":"x","[1,2]":"y"},)"
                                       R"("entries":[])";

template <std::size_t size>
std::string_view bytes(const unsigned char (&array)[size]) {
  return {reinterpret_cast<const char*>(array), size};
}

std::string refusal(std::string_view pickle) {
  try {
    parse_pickle(pickle, "rank_3");
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kBadInput);
    return error.what();
  }
  return "accepted";
}

TEST(Pickle, OfPlainDataIsReadInOldAndNewProtocols) {
  EXPECT_EQ(parse_pickle(bytes(kProtocol2), "dump").dump(), std::string(kExpected) + "}");
  EXPECT_EQ(parse_pickle(bytes(kProtocol5), "dump").dump(), std::string(kExpected) + R"(,"bytes":"ab"})");
}

TEST(Pickle, ThatNamesACallableIsRefusedWithOpcodeAndByte) {
  const std::string message = refusal(bytes(kSystem));
  EXPECT_NE(message.find("rank_3: byte 2"), std::string::npos) << message;
  EXPECT_NE(message.find("opcode 0x63 ('c')"), std::string::npos) << message;
}

TEST(Pickle, RefusesEveryOpcodeThatIsNoPlainData) {
  // Lib/pickletools.py: all that name, build or call classes, take persistent ids or buffers, and the text opcodes.
  const std::string_view refused = "cibRoOPQSTUVFILgpd012\x81\x82\x83\x84\x8f\x90\x91\x92\x93\x95\x96\x97\x98";
  for (const char opcode : refused) {
    if (opcode == '\x95') continue;  // a frame: only a length
    const std::string pickle = std::string("\x80\x02") + opcode + "N.";
    EXPECT_NE(refusal(pickle).find("is refused"), std::string::npos) << "opcode " << int(opcode);
  }
}

TEST(Pickle, SharesWhatItRemembersAndRefusesWhatHoldsItself) {
  // x = []; dumps([x, x]) after x.append(1); and x = []; x.append(x).
  EXPECT_EQ(parse_pickle("\x80\x02](]q\1K\1ah\1e.", "dump").dump(), "[[1],[1]]");
  EXPECT_NE(refusal(std::string("\x80\x02]q\0h\0a.", 9)).find("holds itself"), std::string::npos);
}

TEST(Pickle, ThatGrowsBeyondMeasureIsRefused) {
  // Each list holds the one before ten times: 10^30 values in a few hundred bytes.
  std::string pickle = "\x80\x02]q";
  pickle += '\0';
  for (char level = 1; level <= 30; ++level) {
    pickle += "](";
    for (int i = 0; i < 10; ++i) pickle += std::string("h") + static_cast<char>(level - 1);
    pickle += std::string("eq") + level;
  }
  pickle += "\x85.";  // on top of the others: refused for the rest of the stack
  std::string single = "\x80\x02(" + pickle.substr(2, pickle.size() - 4) + "t.";
  EXPECT_NE(refusal(single).find("more than a dump can"), std::string::npos);
}

TEST(Pickle, CutOrChangedAnywhereIsReadOrRefusedAndNothingElse) {
  const std::string_view whole = bytes(kProtocol5);
  for (std::size_t size = 0; size < whole.size(); ++size) EXPECT_NE(refusal(whole.substr(0, size)), "accepted");
  constexpr std::uint64_t kSeed = 7;
  base::Rng rng(kSeed);
  for (int i = 0; i < 20'000; ++i) {
    std::string changed(whole);
    for (int flip = 0; flip < 3; ++flip) changed[rng.below(changed.size())] = static_cast<char>(rng.below(256));
    refusal(changed);
  }
}

}  // namespace
}  // namespace paceline::trace::flight_recorder
