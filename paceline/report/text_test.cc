#include "paceline/report/text.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/kineto_writer.h"
#include "tests/support/synthetic_job.h"

namespace paceline::report {
namespace {

using test_support::JobPlan;
using test_support::load_texts;
using test_support::make_job;

std::string text_of(const trace::Trace& trace, const TextOptions& options = {}) {
  return diagnosis_text(diagnose::diagnose(trace), trace, options);
}

trace::Trace late_job() {
  JobPlan plan;
  plan.late_rank = 4;
  plan.late_by = 6'000'000;
  return load_texts(make_job(plan).texts);
}

TEST(Text, GivesTheVerdictInItsSecondLine) {
  const std::string text = text_of(late_job());
  EXPECT_TRUE(text.starts_with("8 of 8 ranks, 6 steps, median step ")) << text.substr(0, 80);
  const std::string second = text.substr(text.find('\n') + 1);
  EXPECT_TRUE(second.starts_with("Verdict: rank 4 arrives last in ")) << second.substr(0, 80);
  EXPECT_NE(second.substr(0, second.find('\n')).find("load_batch"), std::string::npos);
}

TEST(Text, OfTheVerdictAloneIsFitForATerminal) {
  const trace::Trace trace = late_job();
  const std::string verdict = verdict_text(diagnose::diagnose(trace));
  EXPECT_NE(text_of(trace).find("Verdict: " + verdict + "\n"), std::string::npos);
  diagnose::Diagnosis diagnosis;
  EXPECT_EQ(verdict_text(diagnosis), "");
  diagnosis.findings.emplace_back().title = "a\x1b[2J";
  EXPECT_EQ(verdict_text(diagnosis), "a?[2J");
}

TEST(Text, HasColourOnlyWhenAsked) {
  EXPECT_EQ(text_of(late_job()).find('\x1b'), std::string::npos);
  TextOptions options;
  options.color = true;
  const std::string colored = text_of(late_job(), options);
  EXPECT_NE(colored.find("\x1b[1mVerdict: "), std::string::npos);
  EXPECT_EQ(std::count(colored.begin(), colored.end(), '\x01'), 0);
}

TEST(Text, SaysHowManyRowsItLeftOut) {
  TextOptions options;
  options.rows = 1;
  EXPECT_NE(text_of(late_job(), options).find("... 1 more; --rows N or --json shows them"), std::string::npos);
  options.rows = 0;
  EXPECT_NE(text_of(late_job(), options).find("more; --rows N"), std::string::npos);
}

TEST(Text, ShowsEveryStepWhenAsked) {
  TextOptions options;
  options.every_step = true;
  const std::string text = text_of(late_job(), options);
  for (const char* step : {" #0 ", " #5 "}) EXPECT_NE(text.find(step), std::string::npos);
}

TEST(Text, NeverPassesControlCharactersOfATraceToTheTerminal) {
  using test_support::KinetoWriter;
  constexpr std::int64_t kTime = KinetoWriter::kBaseTime;
  const std::string hostile =
      "\x1b]0;owned\x07\n\r\x7f\xC2\x9B"
      "31m name";
  const trace::Trace trace = load_texts({test_support::trace_text(
      {{hostile, "cpu_op", 1, 1, kTime, 9'000},
       {hostile, "kernel", 0, 7, kTime, 5'000, 0, "\"stream\": 7"},
       {"ncclDevKernel_AllReduce" + hostile, "kernel", 0, 8, kTime, 5'000, 0, "\"stream\": 8"}},
      {})});
  const std::string text = text_of(trace);
  EXPECT_NE(text.find("31m name"), std::string::npos);
  for (const char c : text) EXPECT_TRUE(c == '\n' || static_cast<unsigned char>(c) >= 0x20) << static_cast<int>(c);
  EXPECT_EQ(text.find('\x7f'), std::string::npos);
  EXPECT_EQ(text.find("\xC2\x9B"), std::string::npos);
}

TEST(Text, OfAnEmptyDiagnosisStillReads) {
  const std::string text = diagnosis_text({}, {});
  EXPECT_NE(text.find("nothing stands out"), std::string::npos);
}

TEST(Text, NamesKernelsThatAreNotRecognised) {
  const trace::Trace trace = late_job();
  diagnose::Diagnosis diagnosis = diagnose::diagnose(trace);
  EXPECT_EQ(diagnosis_text(diagnosis, trace).find("not recognised"), std::string::npos);
  diagnosis.unrecognised = {{"ring_exchange", 1'200'000, 2}, {"other\x1b[2J", 700'000, 1}};
  const std::string ranks = std::to_string(trace.ranks.size());
  const std::string expected = "not recognised on a communication stream: ring_exchange (1.20 ms per step on 2 of " +
                               ranks + " ranks), other?[2J (700 us per step on 1 of " + ranks +
                               " ranks), counted as computation\n";
  EXPECT_NE(diagnosis_text(diagnosis, trace).find(expected), std::string::npos) << diagnosis_text(diagnosis, trace);
}

TEST(Text, NamesRepairsAndWarnings) {
  trace::Trace trace = late_job();
  trace.warnings.push_back("b.json: passed over");
  trace.ranks[1].repairs.add(trace::Repair::kDamagedEvent, "byte 17", "unreadable");
  const std::string text = text_of(trace);
  EXPECT_NE(text.find("About the input"), std::string::npos);
  EXPECT_NE(text.find("byte 17 unreadable"), std::string::npos);
  EXPECT_NE(text.find("b.json: passed over"), std::string::npos);
}

}  // namespace
}  // namespace paceline::report
