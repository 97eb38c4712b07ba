#include "paceline/trace/kineto/json_scan.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "paceline/base/rng.h"

namespace paceline::trace::kineto {
namespace {

using State = Walk::State;

Walk walk(std::string_view text) {
  return walk_value(text.data(), text.data() + text.size());
}

std::string_view found_event(std::string_view text) {
  const Candidate event = find_event(text.data(), text.data() + text.size(), text.data() + text.size());
  if (event.state != Candidate::State::kFound) return {};
  return {event.at, static_cast<std::size_t>(event.end - event.at)};
}

nlohmann::json random_value(base::Rng& rng, int depth) {
  static const std::vector<std::string> kTexts{"",         "a",   "ph",           "\"",   "\\",
                                               "{\"ph\":", "},{", "\u00e9\u4e16", "a\nb", "]"};
  switch (rng.below(depth > 0 ? 6 : 4)) {
    case 0:
      return rng.between(-1000, 1000);
    case 1:
      return rng.uniform() * 1e18;
    case 2:
      return kTexts[rng.below(kTexts.size())];
    case 3:
      return rng.chance(0.5) ? nlohmann::json(nullptr) : nlohmann::json(rng.chance(0.5));
    case 4: {
      nlohmann::json list = nlohmann::json::array();
      for (std::uint64_t i = rng.below(4); i > 0; --i) list.push_back(random_value(rng, depth - 1));
      return list;
    }
    default: {
      nlohmann::json object = nlohmann::json::object();
      for (std::uint64_t i = rng.below(4); i > 0; --i) {
        object["k" + kTexts[rng.below(kTexts.size())]] = random_value(rng, depth - 1);
      }
      return object;
    }
  }
}

TEST(WalkValue, EndsBehindEveryValidValue) {
  constexpr std::uint64_t kSeed = 7;
  base::Rng rng(kSeed);
  for (int i = 0; i < 3000; ++i) {
    const std::string text = random_value(rng, 5).dump(rng.chance(0.5) ? 2 : -1);
    const std::string with_tail = text + ",";
    const Walk result = walk(with_tail);
    ASSERT_EQ(result.state, State::kWhole) << "seed " << kSeed << ": " << text;
    ASSERT_EQ(result.at, with_tail.data() + text.size()) << "seed " << kSeed << ": " << text;
  }
}

TEST(WalkValue, WantsMoreOfEveryTruncatedValue) {
  constexpr std::uint64_t kSeed = 8;
  base::Rng rng(kSeed);
  for (int i = 0; i < 300; ++i) {
    const std::string text = nlohmann::json::array({random_value(rng, 4), random_value(rng, 4)}).dump();
    for (std::size_t cut = 0; cut < text.size(); ++cut) {
      ASSERT_EQ(walk(std::string_view(text).substr(0, cut)).state, State::kNeedMore)
          << "seed " << kSeed << ": " << text;
    }
  }
}

TEST(WalkValue, StopsAtDamageWithinTheEvent) {
  for (const char* text : {"{\"a\" 1}", "{\"a\":}", "{\"a\":1,}", "{a:1}", "[1 2]", "[1,]", "{\"a\":1]", "[1}", "{,}",
                           "\"a\nb\"", "\"\\x\"", "{\"name: \"foo\", \"cat\": 1}, {\"ph\": \"X\"}"}) {
    EXPECT_EQ(walk(text).state, State::kBroken) << text;
  }
}

TEST(WalkValue, TakesAnyWordForANumber) {
  // As simdjson does: else the way an event is read would depend on whether its neighbour is damaged.
  for (const char* text : {"[NaN]", "[-Infinity]", "[nan]", "[.5]", "[+1]", "[undefined]", "[0x1F]", "[1e+5]"}) {
    EXPECT_EQ(walk(text).state, State::kWhole) << text;
  }
}

TEST(WalkValue, KnowsAnEventByItsOwnPhase) {
  EXPECT_TRUE(walk("{\"ph\": \"X\"}").has_phase);
  EXPECT_TRUE(walk("{\"args\": {\"a\": [1]}, \"ph\": 1}").has_phase);
  EXPECT_FALSE(walk("{\"args\": {\"ph\": 1}}").has_phase);
  EXPECT_FALSE(walk("{\"a\": \"ph\"}").has_phase);
}

TEST(WalkValue, DoesNotTakeAListOfEventsForAValue) {
  EXPECT_EQ(walk("[{\"name\": \"a\", \"ph\": \"X\"}]").state, State::kHoldsEvents);
  EXPECT_EQ(walk("{\"traceEvents\": [{\"ph\": \"X\"}]}").state, State::kHoldsEvents);
  EXPECT_EQ(walk("{\"ph\": \"X\", \"args\": {\"frames\": [{\"ph\": 1}]}}").state, State::kWhole);
}

TEST(WalkValue, GivesUpOnNestingThatNoTraceHas) {
  EXPECT_EQ(walk(std::string(60, '[') + std::string(60, ']') + " ").state, State::kWhole);
  EXPECT_EQ(walk(std::string(100'000, '[')).state, State::kBroken);
}

TEST(FindEvent, GoesOnWithTheFirstWholeEventBehindDamage) {
  EXPECT_EQ(found_event("garbage } ] , {\"ph\": \"X\"}, {\"ph\": \"i\"}"), "{\"ph\": \"X\"}");
  EXPECT_EQ(found_event("\"name\": \"a, \"args\": {\"x\": 1}}, {\"ph\": \"X\"}"), "{\"ph\": \"X\"}");
  EXPECT_EQ(found_event("{\"ph\": \"X, \"ts\": 1}, {\"ph\": \"i\"}"), "{\"ph\": \"i\"}");
  EXPECT_EQ(found_event("{{{{\"ph\": \"X\"}"), "{\"ph\": \"X\"}");
  EXPECT_EQ(found_event("[1, 2, {\"a\": 1}]"), "");
}

TEST(FindEvent, LeavesOneThatTheTextCutsToTheCaller) {
  const std::string_view text = "xx {\"a\": 1} {\"ph\": \"X\", ";
  const Candidate event = find_event(text.data(), text.data() + text.size(), text.data() + text.size());
  EXPECT_EQ(event.state, Candidate::State::kNeedMore);
  EXPECT_EQ(event.at, text.data() + 12);
}

TEST(FindEvent, TakesOneThatStartsBeforeTheLimitAndEndsBehindIt) {
  const std::string_view text = "xx {\"ph\": \"X\"} {\"ph\": \"i\"}";
  const char* end = text.data() + text.size();
  EXPECT_EQ(find_event(text.data(), text.data() + 4, end).at, text.data() + 3);
  EXPECT_EQ(find_event(text.data(), text.data() + 3, end).state, Candidate::State::kNone);
}

TEST(FindEvent, FindsOneInsideNestingThatIsTooDeep) {
  std::string text;
  for (int i = 0; i < 1000; ++i) text += "{\"a\":";
  const std::string event = "{\"ph\":\"X\",\"args\":{\"b\":[[1]]}}";
  EXPECT_EQ(found_event(text + event + "!"), event);
}

TEST(FindEvent, EndsQuicklyInGarbage) {
  constexpr std::size_t kSize = 1u << 20;
  std::string nested, lists;
  while (nested.size() < kSize) nested += "{\"a\":";
  while (lists.size() < kSize) lists += "{\"a\":[1,2,3,";
  const std::string braces(kSize, '{'), quotes(kSize, '"');
  for (const std::string& text : {nested, lists, braces, quotes}) {
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_EQ(found_event(text), "") << text.substr(0, 20);
    // Quadratic time would be hours.
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10)) << text.substr(0, 20);
  }
}

TEST(FindKnownKey, FindsTheFirst) {
  const std::string_view text = "x, \"traceName\": 1, \"distributedInfo\": 2";
  EXPECT_EQ(find_known_key(text.data(), text.data() + text.size()), text.data() + 3);
  EXPECT_EQ(find_known_key(text.data(), text.data() + 10), nullptr);
}

TEST(Mend, LeavesValidJsonAsItIs) {
  constexpr std::uint64_t kSeed = 9;
  base::Rng rng(kSeed);
  for (int i = 0; i < 3000; ++i) {
    const nlohmann::json value = random_value(rng, 5);
    const std::string text = value.dump(rng.chance(0.5) ? 2 : -1);
    ASSERT_EQ(mend(text), text) << "seed " << kSeed;
  }
}

TEST(Mend, MakesJsonOfWhatOldExportersWrote) {
  const auto mended = [](std::string_view text) { return nlohmann::json::parse(mend(text), nullptr, false); };
  EXPECT_EQ(mended(R"({"name": "a "quoted" b", "ph": "X"})")["name"], "a \"quoted\" b");
  EXPECT_EQ(mended(R"j({"name": "f("x", "y")", "ph": "X"})j")["name"], "f(\"x\", \"y\")");
  EXPECT_EQ(mended(R"({"name":"op "x"","ph":"X"})")["name"], "op \"x\"");
  EXPECT_EQ(mended("{\"name\": \"a\nb\", \"ph\": \"X\"}")["name"], "a b");
  EXPECT_EQ(mended(R"({"name": "C:\path\x", "ph": "X"})")["name"], "C:\\path\\x");
  EXPECT_EQ(mended(R"({"a": NaN, "b": -Infinity, "c": [Infinity, 1,], })"),
            nlohmann::json::parse(R"({"a": null, "b": null, "c": [null, 1]})"));
  EXPECT_EQ(mended("{\"name\": \"\xFF\xC3\"}")["name"], "\uFFFD\uFFFD");
}

TEST(ReplaceInvalidUtf8, LeavesValidTextAndReplacesTheRest) {
  const std::string valid = "\u00e9 \u4e16 \U0001F6B4";
  EXPECT_EQ(replace_invalid_utf8(valid), valid);
  EXPECT_EQ(replace_invalid_utf8("a\xC3"), "a\uFFFD");
  EXPECT_EQ(replace_invalid_utf8("\xC0\x80"), "\uFFFD\uFFFD");                      // overlong
  EXPECT_EQ(replace_invalid_utf8("\xED\xA0\x80"), "\uFFFD\uFFFD\uFFFD");            // a surrogate
  EXPECT_EQ(replace_invalid_utf8("\xF4\x90\x80\x80"), "\uFFFD\uFFFD\uFFFD\uFFFD");  // beyond U+10FFFF
}

}  // namespace
}  // namespace paceline::trace::kineto
