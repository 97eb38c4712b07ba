#include "paceline/base/json.h"

#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "paceline/base/error.h"
#include "paceline/base/test_files.h"

namespace paceline::base {
namespace {

using test::error_of;
using test::TempFolder;

TEST(Json, KeysKeepTheirOrderAndTheSchemaComesFirst) {
  Json json = make_result("findings", 3);
  json["zebra"] = 1;
  json["ant"] = {1, 2};
  EXPECT_EQ(to_text(json),
            "{\n  \"schema\": \"paceline/findings/3\",\n  \"zebra\": 1,\n  \"ant\": [\n    1,\n    2\n  ]\n}\n");
}

TEST(Json, TextThatIsNoUtf8IsReplacedNotThrown) {
  Json json = make_result("findings", 1);
  json["name"] =
      "gr\xF6\xDF"
      "e";
  EXPECT_NE(to_text(json).find("\uFFFD"), std::string::npos);
}

TEST(Json, AFaultIsNamedByLineColumnAndByte) {
  const std::string text = "{\n  \"a\": 1,\n  \"b\": ?\n}";
  EXPECT_EQ(error_of([&] { parse_json(text, "plan.json"); }),
            "plan.json:3:8: not valid JSON at byte 19; correct the file there");
  EXPECT_EQ(text[19], '?');
  EXPECT_EQ(error_of([] { parse_json("{\"a\": \n1", "p"); }),
            "p:2:2: not valid JSON at byte 8; correct the file there");
  EXPECT_EQ(error_of([] { parse_json("", "p"); }), "p:1:1: not valid JSON at byte 0; correct the file there");
}

TEST(Json, EveryFaultOfTheParserIsOurError) {
  EXPECT_NE(error_of([] { parse_json("[1e999]", "p"); }), "");
  EXPECT_NE(error_of([] { parse_json("\"\xFF\"", "p"); }), "");
  EXPECT_NE(error_of([] { parse_json(std::string(100'000, '['), "p"); }), "");
}

TEST(ReadJsonFile, TakesItsOwnSchemaUpToItsVersion) {
  const TempFolder folder;
  const auto path = folder.write("a.json", R"({"schema": "paceline/plan/2", "x": 1})");
  EXPECT_EQ(read_json_file(path, "plan", 2)["x"], 1);
  EXPECT_EQ(read_json_file(path, "plan", 3)["x"], 1);
}

TEST(ReadJsonFile, ANewerVersionIsAnErrorThatNamesBoth) {
  const TempFolder folder;
  const auto path = folder.write("a.json", R"({"schema": "paceline/plan/7"})");
  EXPECT_EQ(error_of([&] { read_json_file(path, "plan", 2); }),
            path.string() + ": schema version 7 is newer than 2, the newest this Paceline reads; update Paceline");
}

TEST(ReadJsonFile, AnythingElseIsNotTakenForIt) {
  const TempFolder folder;
  for (const char* text : {R"({"schema": "paceline/plans/1"})", R"({"schema": "paceline/plan/"})", R"({"schema": 4})",
                           R"({"schema": "paceline/plan/1x"})", R"({"schema": "paceline/plan/0"})",
                           R"({"schema": "paceline/plan/99999999999999999999"})", R"({"x": 1})", "[]", "3", "null"}) {
    const auto path = folder.write("a.json", text);
    const std::string message = error_of([&] { read_json_file(path, "plan", 2); });
    EXPECT_NE(message.find("expected 'paceline/plan/2'"), std::string::npos) << text << ": " << message;
  }
}

}  // namespace
}  // namespace paceline::base
