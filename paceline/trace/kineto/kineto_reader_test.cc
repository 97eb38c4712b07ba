#include "paceline/trace/kineto/kineto_reader.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <tuple>

#include "paceline/base/error.h"
#include "paceline/base/file.h"
#include "paceline/trace/reader.h"
#include "tests/support/kineto_writer.h"

namespace paceline::trace {
namespace {

using test_support::Clock;
using test_support::KinetoWriter;
using test_support::Style;
using test_support::TrueSlice;

RankTrace read_text(std::string_view text) {
  const auto source = base::memory_source(text);
  return read_document("memory", *source);
}

std::string joined(const std::vector<std::string>& parts, std::string_view separator) {
  std::string text;
  for (const std::string& part : parts) {
    if (!text.empty()) text += separator;
    text += part;
  }
  return text;
}

/// A list of the events, in one line.
std::string listed(const std::vector<std::string>& events) {
  return "{\"traceEvents\":[" + joined(events, ",") + "]}";
}

std::string event(std::string_view name, std::string_view rest = R"("ts":1,"dur":2)") {
  return fmt::format(R"({{"ph":"X","name":"{}","pid":1,"tid":1,{}}})", name, rest);
}

std::vector<std::string> names(const RankTrace& trace) {
  std::vector<std::string> all;
  for (Row row = 0; row < trace.slices.size(); ++row) all.emplace_back(trace.name(row));
  return all;
}

bool has_slices(const RankTrace& trace, const std::vector<std::string>& wanted) {
  const std::vector<std::string> found = names(trace);
  return std::all_of(wanted.begin(), wanted.end(), [&](const std::string& name) {
    return std::find(found.begin(), found.end(), name) != found.end();
  });
}

std::int64_t repaired(const RankTrace& trace, Repair repair) {
  return trace.repairs.count(repair);
}

using Fact = std::tuple<std::string, std::string, std::string, std::int64_t, std::int64_t, std::uint32_t>;

std::multiset<Fact> facts(const RankTrace& trace) {
  std::multiset<Fact> all;
  for (Row row = 0; row < trace.slices.size(); ++row) {
    const Lane& lane = trace.lanes[base::index(trace.slices.lane[row])];
    all.emplace(std::string(trace.name(row)), lane.process, lane.thread, trace.slices.start[row],
                trace.slices.duration[row], trace.slices.correlation[row]);
  }
  return all;
}

std::multiset<Fact> facts(const std::vector<TrueSlice>& slices) {
  std::multiset<Fact> all;
  for (const TrueSlice& slice : slices) {
    all.emplace(slice.name, std::to_string(slice.process), std::to_string(slice.thread), slice.start, slice.duration,
                static_cast<std::uint32_t>(slice.correlation));
  }
  return all;
}

/// Parents before children that begin with them: only the order of their begins tells which is which.
void sort_by_time(std::vector<TrueSlice>& slices) {
  std::stable_sort(slices.begin(), slices.end(), [](const TrueSlice& a, const TrueSlice& b) {
    return a.start != b.start ? a.start < b.start : a.duration > b.duration;
  });
}

// ---------------------------------------------------------------- every version

struct Version {
  const char* name;
  Style style;
};

class EveryVersion : public testing::TestWithParam<Version> {};

TEST_P(EveryVersion, IsReadToTheNanosecond) {
  constexpr std::uint64_t kSeed = 20260301;
  base::Rng rng(kSeed);
  const Style& style = GetParam().style;
  auto slices = test_support::random_slices(rng, 1500, style.clock == Clock::kIntegerUs);
  sort_by_time(slices);
  const std::string text = test_support::trace_text(slices, style, 3, 8);
  const RankTrace trace = read_text(text);
  EXPECT_EQ(facts(trace), facts(slices)) << "seed " << kSeed;
  EXPECT_FALSE(trace.repairs.lost_data());
  EXPECT_EQ(trace.events.complete + trace.events.begin_end / 2, static_cast<std::int64_t>(slices.size()));
  EXPECT_GT(trace.events.metadata, 0);
  EXPECT_GT(trace.events.flow, 0);
  EXPECT_GT(trace.events.counter, 0);
  EXPECT_EQ(static_cast<std::int64_t>(trace.instants.size()), trace.events.instant);
  EXPECT_EQ(repaired(trace, Repair::kUnmatchedFlow), 0);
  EXPECT_EQ(repaired(trace, Repair::kOverlappingSlices), 0);
  if (style.bare_list) return;
  EXPECT_EQ(trace.rank, 3u);
  EXPECT_EQ(trace.world_size, 8u);
  EXPECT_EQ(trace.backend, "nccl");
  ASSERT_EQ(trace.devices.size(), 1u);
  EXPECT_EQ(trace.devices[0].name, "NVIDIA H100 80GB HBM3");
}

TEST_P(EveryVersion, IsReadAlikeInPiecesOfAnySize) {
  // A source that hands out a few bytes at a time: nothing may depend on where a read ends.
  class Dripping final : public base::ByteSource {
   public:
    explicit Dripping(std::string_view text) : left_(text) {}
    std::size_t read(std::span<char> to) override {
      const std::size_t count = std::min({to.size(), left_.size(), std::size_t{1 + left_.size() % 977}});
      std::copy_n(left_.begin(), count, to.begin());
      left_.remove_prefix(count);
      return count;
    }

   private:
    std::string_view left_;
  };
  base::Rng rng(11);
  const Style& style = GetParam().style;
  auto slices = test_support::random_slices(rng, 3000, style.clock == Clock::kIntegerUs);
  sort_by_time(slices);
  const std::string text = test_support::trace_text(slices, style);
  Dripping source{text};
  EXPECT_EQ(facts(read_document("dripping", source)), facts(slices));
}

INSTANTIATE_TEST_SUITE_P(
    Kineto, EveryVersion,
    testing::Values(Version{"whole_us_2022", {.clock = Clock::kIntegerUs, .sequence = false}},
                    Version{"absolute_us_2024", {.clock = Clock::kAbsoluteUs}},
                    Version{"base_time_2024", {.clock = Clock::kRelativeUs}},
                    Version{"one_line", {.clock = Clock::kRelativeUs, .pretty = false}},
                    Version{"times_in_quotes", {.clock = Clock::kTextUs}}, Version{"ids_in_quotes", {.text_ids = true}},
                    Version{"header_behind_events", {.header_last = true}},
                    Version{"bare_list", {.clock = Clock::kIntegerUs, .pretty = false, .bare_list = true}},
                    Version{"bare_list_pretty", {.clock = Clock::kAbsoluteUs, .bare_list = true}},
                    Version{"begin_end", {.begin_end = true}}, Version{"byte_order_mark", {.mark = true}},
                    Version{"trailing_comma", {.trailing_comma = true}},
                    Version{"windows_lines", {.windows_lines = true}}),
    [](const testing::TestParamInfo<Version>& version) { return version.param.name; });

TEST(Kineto, ReadsWhatTheNewestFormSaysOfACollective) {
  const std::string args =
      R"("args":{"Collective name":"allreduce","In msg nelems":4,"Out msg nelems":"8","Group size":2,"dtype":"Float",)"
      R"("Process Group Name":"0","Process Group Ranks":"[0, 1]","Seq":7,"correlation":9})";
  const RankTrace trace =
      read_text(listed({event("plain"), event("nccl", R"("cat":"kernel","ts":5,"dur":2,)" + args)}));
  ASSERT_EQ(trace.collective_args.size(), 1u);
  const CollectiveArgs& found = trace.collective_args[0];
  EXPECT_EQ(trace.name(found.row), "nccl");
  EXPECT_EQ(trace.slices.correlation[found.row], 9u);
  EXPECT_EQ(trace.names.text(found.collective), "allreduce");
  EXPECT_EQ(trace.names.text(found.group), "0");
  EXPECT_EQ(trace.names.text(found.group_ranks), "[0, 1]");
  EXPECT_EQ(trace.names.text(found.dtype), "Float");
  EXPECT_EQ(found.in_elements, 4);
  EXPECT_EQ(found.out_elements, 8);
  EXPECT_EQ(found.group_size, 2);
  EXPECT_EQ(found.sequence, 7);
}

TEST(Kineto, TakesListsAndTextForEachOther) {
  const RankTrace trace = read_text(listed(
      {event("a", R"("ts":1,"args":{"Input Dims":"[[2]]","Process Group Name":"0","Process Group Ranks":[0, 1]})"),
       event("b", R"("ts":2,"args":{"Input Dims":[[2, 3], []]})"), event("c", R"("ts":3,"args":[1,2])"),
       event("d", R"("ts":4,"args":null)")}));
  EXPECT_EQ(names(trace), (std::vector<std::string>{"a", "b", "c", "d"}));
  EXPECT_EQ(trace.names.text(trace.slices.shapes[0]), "[[2]]");
  EXPECT_EQ(trace.names.text(trace.slices.shapes[1]), "[[2, 3], []]");
  ASSERT_EQ(trace.collective_args.size(), 1u);
  EXPECT_EQ(trace.names.text(trace.collective_args[0].group_ranks), "[0, 1]");
}

TEST(Kineto, DecodesEscapedNames) {
  const RankTrace trace = read_text(listed({event(R"(f(\"x\") \u00e9\n)")}));
  EXPECT_EQ(trace.name(0), "f(\"x\") \u00e9\n");
}

TEST(Kineto, NamesLanesByTheirThreadElseTheirProcess) {
  const RankTrace trace =
      read_text(listed({R"({"ph":"M","name":"process_name","pid":1,"tid":0,"args":{"name":"python"}})",
                        R"({"ph":"M","name":"thread_name","pid":"1","tid":2,"args":{"name":"pt_autograd_0"}})",
                        event("a"), R"({"ph":"X","name":"b","pid":1,"tid":"2","ts":1})",
                        R"({"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":1})"}));
  ASSERT_EQ(trace.lanes.size(), 3u);
  EXPECT_EQ(trace.lanes[0].name, "python");
  EXPECT_EQ(trace.lanes[1].name, "pt_autograd_0");
  EXPECT_EQ(trace.lanes[2].name, "");
  EXPECT_TRUE(trace.lanes[2].device);
}

TEST(Kineto, ParentsComeBeforeTheirChildren) {
  const RankTrace trace = read_text(listed(
      {event("late", R"("ts":9,"dur":1)"), event("child", R"("ts":1,"dur":2)"), event("parent", R"("ts":1,"dur":5)")}));
  EXPECT_EQ(names(trace), (std::vector<std::string>{"parent", "child", "late"}));
}

// ---------------------------------------------------------------- begins and ends

TEST(BeginsAndEnds, AreMatchedInOrderOfTimeWhereverTheyStand) {
  const RankTrace trace =
      read_text(listed({R"({"ph":"E","pid":1,"tid":1,"ts":10})", R"({"ph":"B","name":"in","pid":1,"tid":1,"ts":2})",
                        R"({"ph":"B","name":"out","pid":1,"tid":1,"ts":1})", R"({"ph":"E","pid":1,"tid":1,"ts":4})"}));
  EXPECT_EQ(names(trace), (std::vector<std::string>{"out", "in"}));
  EXPECT_EQ(trace.slices.duration, (std::vector<std::int64_t>{9000, 2000}));
  EXPECT_EQ(repaired(trace, Repair::kUnmatchedBegin), 0);
}

TEST(BeginsAndEnds, AnEndWithANameClosesTheSliceOfThatName) {
  // The end of "in" is lost: it ends with what encloses it, and "out" keeps its own end.
  const RankTrace trace = read_text(listed(
      {R"({"ph":"B","name":"out","pid":1,"tid":1,"ts":1})", R"({"ph":"B","name":"in","pid":1,"tid":1,"ts":2})",
       R"({"ph":"E","name":"out","pid":1,"tid":1,"ts":5})", R"({"ph":"E","name":"never","pid":1,"tid":1,"ts":6})"}));
  EXPECT_EQ(trace.slices.duration, (std::vector<std::int64_t>{4000, 3000}));
  EXPECT_EQ(repaired(trace, Repair::kUnmatchedBegin), 2);
}

TEST(BeginsAndEnds, ABeginWithoutEndLastsAsLongAsItsThread) {
  const RankTrace trace = read_text(listed(
      {R"({"ph":"B","name":"open","pid":1,"tid":1,"ts":1})", R"({"ph":"B","name":"done","pid":1,"tid":1,"ts":3})",
       R"({"ph":"E","pid":1,"tid":1,"ts":7})", R"({"ph":"E","pid":1,"tid":2,"ts":9})"}));
  EXPECT_EQ(trace.slices.duration, (std::vector<std::int64_t>{6000, 4000}));
  EXPECT_EQ(repaired(trace, Repair::kUnmatchedBegin), 2);
}

// ---------------------------------------------------------------- repairs of values

TEST(Repaired, NegativeAndCenturiesLongDurationsBecomeZero) {
  const RankTrace trace = read_text(listed(
      {event("negative", R"("ts":1,"dur":-3)"), event("absurd", R"("ts":2,"dur":7449012345678901)"),
       event("none", R"("ts":3)"), event("nan", R"("ts":4,"dur":NaN)"), event("good", R"("ts":5,"dur":0.001)")}));
  EXPECT_EQ(trace.slices.duration, (std::vector<std::int64_t>{0, 0, 0, 0, 1}));
  EXPECT_EQ(repaired(trace, Repair::kNegativeDuration), 1);
  EXPECT_EQ(repaired(trace, Repair::kAbsurdDuration), 2);
  EXPECT_FALSE(trace.repairs.lost_data());
  EXPECT_TRUE(trace.repairs.row(Repair::kNegativeDuration).first_place.starts_with("byte "));
}

TEST(Repaired, EventsWithoutAReadableTimeAreCounted) {
  const RankTrace trace =
      read_text(listed({event("a", R"("dur":1)"), event("b", R"("ts":"soon")"), event("c", R"("ts":9e30)"),
                        R"({"ph":"i","name":"d","pid":1,"tid":1})", event("good")}));
  EXPECT_EQ(names(trace), std::vector<std::string>{"good"});
  EXPECT_EQ(repaired(trace, Repair::kMissingTime), 4);
  EXPECT_TRUE(trace.repairs.lost_data());
}

TEST(Repaired, ABaseTimeThatNoClockHasIsIgnored) {
  for (const char* base : {"9223372036854775807", "-9223372036854775808", "\"x\"", "3999999999999999999"}) {
    const RankTrace trace = read_text(fmt::format(R"({{"baseTimeNanoseconds":{},"traceEvents":[{}]}})", base,
                                                  event("a", R"("ts":3000000000000000)")));
    ASSERT_EQ(trace.slices.size(), 1u);
    EXPECT_EQ(trace.slices.start[0], 3'000'000'000'000'000'000) << base;
    EXPECT_EQ(repaired(trace, Repair::kDamagedHeader), 1) << base;
  }
}

TEST(Repaired, OverlapsOnOneTrackAreCounted) {
  const auto kernel = [](int start) {
    return fmt::format(R"({{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":{},"dur":10}})", start);
  };
  EXPECT_EQ(repaired(read_text(listed({kernel(0), kernel(10), kernel(20)})), Repair::kOverlappingSlices), 0);
  EXPECT_EQ(repaired(read_text(listed({kernel(0), kernel(9), kernel(20)})), Repair::kOverlappingSlices), 1);
  EXPECT_EQ(repaired(read_text(listed({event("a", R"("ts":0,"dur":10)"), event("b", R"("ts":5,"dur":10)")})),
                     Repair::kOverlappingSlices),
            1);
}

TEST(Repaired, FlowsWithOneEndAreCounted) {
  const auto flow = [](char phase, int id) {
    return fmt::format(R"({{"ph":"{}","id":{},"cat":"ac2g","name":"ac2g","pid":1,"tid":1,"ts":1}})", phase, id);
  };
  const RankTrace trace = read_text(listed({flow('s', 1), flow('f', 1), flow('s', 2), flow('f', 3), event("a")}));
  EXPECT_EQ(repaired(trace, Repair::kUnmatchedFlow), 2);
  EXPECT_EQ(trace.events.flow, 4);
}

// ---------------------------------------------------------------- repairs of text

TEST(Mended, UnescapedQuotesInNames) {  // kineto#1459
  for (const char* end : {"", "\n"}) {
    const std::string broken =
        fmt::format(R"({{"ph":"X","name":"op "x", "y" z",{}"pid":1,"tid":1,"ts":2,"dur":1}})", end);
    const RankTrace trace = read_text(listed({event("before"), broken, broken, event("after", R"("ts":9,"dur":1)")}));
    EXPECT_EQ(names(trace), (std::vector<std::string>{"before", "op \"x\", \"y\" z", "op \"x\", \"y\" z", "after"}));
    EXPECT_EQ(repaired(trace, Repair::kMendedText), 2);
    EXPECT_FALSE(trace.repairs.lost_data());
  }
}

TEST(Mended, BytesThatAreNotUtf8) {
  const RankTrace trace = read_text(listed({event("a\xFF"), event("b", R"("ts":2)")}));
  EXPECT_EQ(names(trace), (std::vector<std::string>{"a\uFFFD", "b"}));
  EXPECT_EQ(repaired(trace, Repair::kInvalidUtf8), 1);
}

TEST(Mended, LineBreaksInStrings) {
  const RankTrace trace = read_text(listed({event("a\nb"), event("c", R"("ts":2)")}));
  EXPECT_EQ(names(trace), (std::vector<std::string>{"a b", "c"}));
}

TEST(Mended, NumbersThatJsonDoesNotKnow) {
  const RankTrace trace =
      read_text(listed({event("a", R"("ts":.5,"args":{"x":NaN,"y":-Infinity,"z":undefined})"), event("b", R"("ts":+2)"),
                        "{\"ph\":\"X\",\"broken}", event("c", R"("ts":3,"args":{"x":[NaN,nan]})")}));
  EXPECT_EQ(names(trace), (std::vector<std::string>{"a", "b", "c"}));
}

TEST(Kineto, AKeyPhInsideTheArgumentsIsNoEvent) {
  const std::string inner =
      event("outer", R"("ts":1,"args":{"ph":"M","list":[{"ph":"X","ts":1,"a":")" + std::string(80, 'x') + "\"}]}");
  const RankTrace trace = read_text(listed({inner, event("next", R"("ts":2)"), inner}));
  EXPECT_EQ(trace.events.total(), 3);
  EXPECT_FALSE(trace.repairs.any());
}

TEST(Kineto, AnEventMayBeLargerThanABlock) {
  const std::string huge = event("huge", fmt::format(R"("ts":1,"args":{{"stack":"{}"}})", std::string(9u << 20, 's')));
  const RankTrace trace = read_text(listed({event("a", R"("ts":0)"), huge, event("b", R"("ts":2)")}));
  EXPECT_EQ(names(trace), (std::vector<std::string>{"a", "huge", "b"}));
  EXPECT_FALSE(trace.repairs.any());
}

TEST(Kineto, AnEmptyListIsNoDamage) {
  for (const char* text :
       {"{\"traceEvents\": []}", "{\"schemaVersion\": 1, \"traceEvents\": [\n]\n}\n", "[{\"ph\":\"X\",\"ts\":1}]"}) {
    EXPECT_FALSE(read_text(text).repairs.any()) << text;
  }
}

TEST(Kineto, UnknownMembersAndPhasesAreNoDamage) {
  const RankTrace trace =
      read_text(R"({"otherData":{"a":[{"b":[1,{}]}]},"record_shapes":1,"traceEvents":[)"
                R"({"ph":"P","name":"sample","ts":1},{"ph":"N","id":1,"ts":1,"extra":{"x":[]}}],"stackFrames":{}})");
  EXPECT_EQ(trace.events.other, 2);
  EXPECT_FALSE(trace.repairs.any());
}

// ---------------------------------------------------------------- damage

TEST(Damaged, ACutKeepsWhatIsWhole) {
  const std::string text = listed({event("a"), event("b", R"("ts":2)"), event("c", R"("ts":3)")});
  for (std::size_t cut = text.find("},{") + 1; cut + 2 < text.size(); ++cut) {
    const RankTrace trace = read_text(std::string_view(text).substr(0, cut));
    const std::string_view whole = std::string_view(text).substr(0, cut);
    const auto events = static_cast<std::int64_t>(1 + (whole.find("\"ts\":2}") != whole.npos) +
                                                  (whole.find("\"ts\":3}") != whole.npos));
    ASSERT_EQ(trace.events.total(), events) << whole;
    ASSERT_GT(repaired(trace, Repair::kTruncatedInput), 0) << whole;
    ASSERT_TRUE(trace.repairs.row(Repair::kTruncatedInput).first_place.starts_with("byte ")) << whole;
  }
}

TEST(Damaged, AFlipOfAnyByteCostsAtMostItsEvent) {
  const std::vector<std::string> events{event("a"), event("b", R"("ts":2,"args":{"x":[1,"y"],"z":{}})"),
                                        event("c", R"("ts":3)")};
  const std::string text = "{\"schemaVersion\":1, \"traceEvents\":[" + joined(events, ", ") + "], \"traceName\":\"t\"}";
  for (std::size_t place = 0; place < text.size(); ++place) {
    for (const char byte : std::string_view("{}[],:\"\\ \n\0x1e\x80\xFF", 16)) {
      std::string damaged = text;
      damaged[place] = byte;
      const RankTrace trace = read_text(damaged);
      for (const std::string& one : events) {
        const std::size_t begin = text.find(one);
        if (place >= begin && place < begin + one.size()) continue;
        const std::string name = one.substr(one.find("name") + 7, 1);
        ASSERT_TRUE(has_slices(trace, {name})) << "byte " << place << ": " << damaged;
      }
    }
  }
}

TEST(Damaged, TwoLostQuotesDoNotHideTheEventsBetweenThem) {
  const std::string before = R"({"ph":"X","name":"a","ts":1,"args":{"Input type":["float",xfloat"]}})";
  const std::string behind = R"({"ph":"X","name":"c","ts":3,"args":{"Input type":["floatx,"float"]}})";
  const RankTrace trace = read_text(listed({before, event("b"), behind, event("d")}));
  EXPECT_TRUE(has_slices(trace, {"b", "d"}));
  const RankTrace other = read_text(listed({R"({"ph":,X","name":"a","ts":1,"args":{"x":"y"}})", event("b"),
                                            R"({"ph":"X","name":"c","args":{&x":"y"}})", event("d")}));
  EXPECT_TRUE(has_slices(other, {"b", "d"}));
}

TEST(Damaged, EventsBehindADamagedListKeyAreFound) {
  for (const char* text : {R"({"tracEEvents":[{"ph":"X","name":"a","ts":1},{"ph":"X","name":"b","ts":1}]})",
                           R"({"traceEvents":{"ph":"X","name":"a","ts":1},{"ph":"X","name":"b","ts":1}]})",
                           R"({"traceEvents:[{"ph":"X","name":"a","ts":1},{"ph":"X","name":"b","ts":1}]})",
                           R"(}"traceEvents":[{"ph":"X","name":"a","ts":1},{"ph":"X","name":"b","ts":1}]})",
                           R"({"x":1}"traceEvents":[{"ph":"X","name":"a","ts":1}]],{"ph":"X","name":"b","ts":1}]})",
                           R"([[{"ph":"X","name":"a","ts":1},{"ph":"X","name":"b","ts":1}])"}) {
    const RankTrace trace = read_text(text);
    EXPECT_EQ(names(trace), (std::vector<std::string>{"a", "b"})) << text;
    EXPECT_TRUE(trace.repairs.lost_data()) << text;
  }
}

TEST(Damaged, TheHeaderBehindDamageIsStillRead) {
  const RankTrace trace =
      read_text(R"({"schemaVersion"x1,"deviceProperties":[{"id":0,"name":"V100"}],)"
                R"("distributedInfo":{"rank":2,"world_size":4},"traceEvents":[{"ph":"X","name":"a","ts":1}]})");
  EXPECT_EQ(trace.rank, 2u);
  EXPECT_EQ(trace.devices.size(), 1u);
  EXPECT_EQ(trace.slices.size(), 1u);
  EXPECT_EQ(repaired(trace, Repair::kDamagedHeader), 1);
}

TEST(Damaged, NulBytesAndGarbageBetweenEventsCostNothing) {
  using namespace std::string_literals;
  for (const std::string& garbage :
       {"\0"s, "\0\0\0"s, "]"s, "}"s, "\""s, "}]}"s, "{"s, "[["s, "\xFF\xFE"s, "\\"s, ": 1"s, ", \"x\": {"s}) {
    const RankTrace trace = read_text(fmt::format("{{\"traceEvents\":[{}{},{}]}}", event("a"), garbage, event("b")));
    EXPECT_EQ(names(trace), (std::vector<std::string>{"a", "b"})) << garbage;
  }
}

TEST(Damaged, GarbageBehindAGoodHeadEndsAndKeepsTheHead) {
  constexpr std::size_t kSize = 2u << 20;
  base::Rng rng(3);
  std::string noise, objects;
  while (noise.size() < kSize) noise += static_cast<char>(rng.below(256));
  while (objects.size() < kSize) objects += "{\"a\":[1,";
  for (const std::string& garbage :
       {noise, objects, std::string(kSize, '{'), std::string(kSize, '['), std::string(kSize, '"')}) {
    const RankTrace trace =
        read_text("{\"traceEvents\":[" + event("a") + "," + event("b", R"("ts":2)") + "," + garbage);
    EXPECT_EQ(names(trace), (std::vector<std::string>{"a", "b"})) << garbage[0];
    EXPECT_TRUE(trace.repairs.lost_data());
  }
}

// ---------------------------------------------------------------- formats

TEST(Formats, OthersAreNamedWithAdvice) {
  const auto refusal = [](std::string_view text) -> std::string {
    try {
      (void)read_text(text);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kBadInput);
      return error.what();
    }
    return "";
  };
  using namespace std::string_view_literals;
  EXPECT_NE(refusal("[[1, [2, 3]]]").find("memory timeline"), std::string::npos);
  EXPECT_NE(refusal(R"({"schema": "1.0.1", "nodes": []})").find("execution trace"), std::string::npos);
  EXPECT_NE(refusal("SQLite format 3\0"sv).find("SQLite"), std::string::npos);
  EXPECT_NE(refusal("").find("empty"), std::string::npos);
  EXPECT_NE(refusal("hello").find("not a trace"), std::string::npos);
}

}  // namespace
}  // namespace paceline::trace
