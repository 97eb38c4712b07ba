#include "paceline/diagnose/findings.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tests/support/synthetic_job.h"

namespace paceline::diagnose {
namespace {

using test_support::JobPlan;
using test_support::load_texts;
using test_support::make_job;

const Finding* find(const Diagnosis& diagnosis, const std::string& kind) {
  const auto at = std::find_if(diagnosis.findings.begin(), diagnosis.findings.end(),
                               [&](const Finding& finding) { return finding.kind == kind; });
  return at == diagnosis.findings.end() ? nullptr : &*at;
}

JobPlan late_plan() {
  JobPlan plan;
  plan.late_rank = 4;
  plan.late_by = 6'000'000;
  return plan;
}

TEST(Diagnosis, PartsOfEveryStepAndOfTheMeanAddUpExactly) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    JobPlan plan = late_plan();
    plan.seed = seed;
    plan.device = seed % 2 == 0;
    plan.groups = seed % 4 == 0;
    plan.clock_offset = {0, 77'000'000};
    plan.clock_drift = {0, 0, 50e-6};
    if (seed % 5 == 0) plan.skipped = {1, 3};
    for (const RankDiagnosis& rank : diagnose(load_texts(make_job(plan).texts)).ranks) {
      std::vector<StepParts> all = rank.steps;
      all.push_back(rank.mean);
      for (const StepParts& step : all) {
        EXPECT_EQ(step.compute + step.exposed_wait + step.exposed_transfer + step.exposed_copies + step.idle_host +
                      step.idle_gap + step.idle_other + step.lead + step.tail,
                  step.duration);
        EXPECT_GE(step.exposed_wait, 0);
        EXPECT_GE(step.exposed_transfer, 0);
      }
      EXPECT_EQ(rank.wait + rank.transfer, rank.mean.communication);
    }
  }
}

TEST(Diagnosis, OfOneRankCallsAllItsCommunicationTransfer) {
  JobPlan plan;
  plan.ranks = 1;
  const Diagnosis diagnosis = diagnose(load_texts(make_job(plan).texts));
  EXPECT_EQ(diagnosis.ranks[0].wait, 0);
  EXPECT_GT(diagnosis.ranks[0].transfer, 0);
  EXPECT_EQ(find(diagnosis, "no_culprit"), nullptr);
}

TEST(Findings, NameTheLateRankItsCauseAndItsVictim) {
  const Diagnosis diagnosis = diagnose(load_texts(make_job(late_plan()).texts));
  const Finding* late = find(diagnosis, "late_rank");
  ASSERT_NE(late, nullptr);
  EXPECT_EQ(late->rank, 4);
  EXPECT_NE(late->title.find("rank 4 arrives last in "), std::string::npos);
  EXPECT_NE(late->title.find(" of 24 collectives"), std::string::npos);
  EXPECT_NE(late->title.find("load_batch"), std::string::npos);
  EXPECT_NE(late->remedy.find("load_batch"), std::string::npos);
  const Finding* victim = find(diagnosis, "waiting_victim");
  ASSERT_NE(victim, nullptr);
  EXPECT_NE(victim->rank, 4);
  EXPECT_EQ(victim->cost, 0);
}

TEST(Findings, AreNumberedFromTheMostCostlyOn) {
  const Diagnosis diagnosis = diagnose(load_texts(make_job(late_plan()).texts));
  for (std::size_t i = 0; i < diagnosis.findings.size(); ++i) {
    EXPECT_EQ(diagnosis.findings[i].id, "F" + std::to_string(i + 1));
    if (i > 0) {
      EXPECT_GE(diagnosis.findings[i - 1].cost, diagnosis.findings[i].cost);
    }
    EXPECT_FALSE(diagnosis.findings[i].title.empty());
  }
}

TEST(Findings, OfACleanJobSayThatNobodyIsToBlameAndWhatWaitingCosts) {
  const Diagnosis diagnosis = diagnose(load_texts(make_job({}).texts));
  const Finding* nobody = find(diagnosis, "no_culprit");
  ASSERT_NE(nobody, nullptr);
  EXPECT_EQ(nobody->evidence.size(), 2u);
  EXPECT_EQ(find(diagnosis, "mismatch"), nullptr);
  EXPECT_EQ(find(diagnosis, "causality"), nullptr);
  EXPECT_EQ(find(diagnosis, "missing_ranks"), nullptr);
}

TEST(Findings, SayWhatIsMissing) {
  JobPlan plan;
  plan.missing_rank = 1;
  plan.skipped = {3, 5};
  plan.sequence = false;
  const Diagnosis diagnosis = diagnose(load_texts(make_job(plan).texts));
  const Finding* missing = find(diagnosis, "missing_ranks");
  ASSERT_NE(missing, nullptr);
  EXPECT_NE(missing->title.find("7 of 8 ranks"), std::string::npos);
  const Finding* mismatch = find(diagnosis, "mismatch");
  ASSERT_NE(mismatch, nullptr);
  ASSERT_EQ(mismatch->evidence.size(), 1u);
  EXPECT_NE(mismatch->evidence[0].find("rank 3, group "), std::string::npos) << mismatch->evidence[0];
}

TEST(Findings, OfAJobWithoutCollectivesBlameNobody) {
  JobPlan plan;
  plan.collectives = 0;
  const Diagnosis diagnosis = diagnose(load_texts(make_job(plan).texts));
  EXPECT_EQ(diagnosis.late_rank(), -1);
  EXPECT_EQ(find(diagnosis, "no_culprit"), nullptr);
  EXPECT_EQ(find(diagnosis, "late_rank"), nullptr);
}

TEST(ToJson, HasItsSchemaFirstAndEveryPart) {
  const trace::Trace trace = load_texts(make_job(late_plan()).texts);
  const base::Json json = to_json(diagnose(trace), trace);
  EXPECT_EQ(json.begin().key(), "schema");
  EXPECT_EQ(json["schema"], "paceline/diagnosis/1");
  EXPECT_EQ(json["late_rank"], 4);
  EXPECT_EQ(json["world_size"], 8);
  EXPECT_EQ(json["ranks"].size(), 8u);
  EXPECT_EQ(json["collectives"].size(), 24u);
  for (const auto& rank : json["ranks"]) {
    EXPECT_EQ(rank["steps"].size(), 6u);
    for (const auto& step : rank["steps"]) {
      std::int64_t sum = 0;
      for (const char* part : {"compute_ns", "exposed_wait_ns", "exposed_transfer_ns", "exposed_copies_ns",
                               "idle_host_ns", "idle_gap_ns", "idle_other_ns", "lead_ns", "tail_ns"}) {
        sum += step[part].get<std::int64_t>();
      }
      EXPECT_EQ(sum, step["duration_ns"]);
    }
  }
  for (const auto& collective : json["collectives"]) {
    EXPECT_EQ(collective["waits_ns"].size(), collective["members"].size());
  }
  for (const auto& finding : json["findings"]) {
    for (const char* key : {"id", "kind", "title", "cost_per_step_ns", "basis", "evidence", "remedy"}) {
      EXPECT_TRUE(finding.contains(key)) << key;
    }
  }
  EXPECT_TRUE(to_json(Diagnosis{}, trace::Trace{})["late_rank"].is_null());
}

TEST(Diagnosis, ListsKernelsThatAreNotRecognisedBesideCollectives) {
  trace::Trace trace = load_texts(make_job(late_plan()).texts);
  for (const std::size_t r : {1u, 3u}) {
    trace::RankSummary& rank = trace.ranks[r];
    for (const auto& [name, part] : {std::pair{"heavy", 50}, std::pair{"light", 500}}) {  // of a step
      trace::NameTotal total;
      total.name = rank.names.intern(name);
      for (const trace::StepSummary& step : rank.steps) total.total += (step.end - step.begin) / part;
      rank.unrecognised.push_back(total);
    }
  }
  const Diagnosis diagnosis = diagnose(trace);
  ASSERT_EQ(diagnosis.unrecognised.size(), 1u);
  EXPECT_EQ(diagnosis.unrecognised[0].name, "heavy");
  EXPECT_EQ(diagnosis.unrecognised[0].ranks, 2u);
  EXPECT_NEAR(static_cast<double>(diagnosis.unrecognised[0].per_step),
              static_cast<double>(diagnosis.ranks[1].mean.duration + diagnosis.ranks[3].mean.duration) / 100, 10);
  const base::Json json = to_json(diagnosis, trace);
  EXPECT_EQ(json["unrecognised_kernels"].size(), 1u);
  EXPECT_EQ(json["unrecognised_kernels"][0]["name"], "heavy");
}

TEST(FaultCatalogue, DocumentsEveryFaultAsTheTableHasIt) {
  std::ifstream file(std::string(PACELINE_SOURCE) + "/docs/faults.md");
  const std::string documented((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  EXPECT_EQ(documented, fault_catalogue()) << "regenerate: paceline diagnose --faults > docs/faults.md";
}

TEST(FaultCatalogue, HasItsEntriesInTheOrderOfTheEnumeration) {
  for (std::size_t i = 0; i < fault_entries().size(); ++i) {
    EXPECT_EQ(static_cast<std::size_t>(fault_entries()[i].fault), i);
  }
}

}  // namespace
}  // namespace paceline::diagnose
