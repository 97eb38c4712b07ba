#include "paceline/schedule/explain.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "paceline/base/error.h"

namespace paceline::schedule {
namespace {

ClusterSnapshot snapshot_of(const std::string& text) {
  ClusterSnapshot snapshot;
  add_document(snapshot, base::parse_json(text, "snapshot"), "snapshot");
  return snapshot;
}

// Field forms of Slurm 22.05 (bare numbers, one string) and of 23.11 and later (objects, lists).
const char* const kSlurm = R"json({
  "jobs": [
    {"job_id": 1, "job_state": "RUNNING", "partition": "gpu", "tres_alloc_str": "cpu=8,gres/gpu=6", "start_time": 1000, "time_limit": 60, "priority": 10},
    {"job_id": 2, "job_state": ["PENDING"], "partition": "gpu", "tres_req_str": "gres/gpu=4", "state_reason": "Resources", "priority": {"set": true, "infinite": false, "number": 9}, "submit_time": {"set": true, "infinite": false, "number": 1100}},
    {"job_id": 3, "job_state": "PENDING", "partition": "gpu", "tres_req_str": "gres/gpu=2", "state_reason": "Priority", "priority": 5, "submit_time": 1200},
    {"job_id": 4, "job_state": "PENDING", "partition": "gpu", "tres_req_str": "gres/gpu=1", "state_reason": "JobHeldUser", "priority": 0},
    {"job_id": 5, "job_state": "PENDING", "partition": "gpu", "tres_req_str": "gres/gpu=1", "state_reason": "Dependency", "priority": 4},
    {"job_id": 6, "job_state": "PENDING", "partition": "gpu", "tres_req_str": "gres/gpu:h100=1,gres/gpu=1", "state_reason": "Resources", "priority": 4},
    {"job_id": 7, "job_state": "PENDING", "partition": "gpu", "tres_req_str": "gres/gpu=99", "state_reason": "Resources", "priority": 4},
    {"job_id": 8, "job_state": "PENDING", "partition": "gpu", "tres_req_str": "gres/gpu=6", "state_reason": "Resources", "priority": 3}],
  "nodes": [
    {"name": "n1", "state": "mixed", "gres": "gpu:a100:4", "gres_used": "gpu:a100:2(IDX:0-1)"},
    {"name": "n2", "state": ["MIXED"], "gres": "gpu:a100:4", "gres_used": "gpu:a100:2(IDX:0-1)"},
    {"name": "n3", "state": "mixed", "gres": "gpu:a100:4", "gres_used": "gpu:a100:3"},
    {"name": "n4", "state": ["IDLE", "DRAIN"], "gres": "gpu:a100:4", "gres_used": "gpu:a100:0"}]})json";

TEST(Why, FourFreeGpusOnNoNodeTogetherAreAPlacementMatter) {
  const Why why = explain(snapshot_of(kSlurm), "2");
  EXPECT_EQ(why.reason, PendingReason::kTopologyPlacementFailed);
  EXPECT_EQ(why.own_reason, "Resources");
  EXPECT_TRUE(why.ahead.empty());
}

// "PENDING Reason=Priority although nodes idle" (ROCm/spur#43): what fits is said to fit, with who is ahead.
TEST(Why, WhatFitsIsSaidToFitAndWhoIsAhead) {
  const Why why = explain(snapshot_of(kSlurm), "3");
  EXPECT_EQ(why.reason, PendingReason::kPendingEvaluation);
  EXPECT_EQ(why.ahead, std::vector<std::string>{"2"});
  EXPECT_EQ(why.gpus_ahead, 4);
}

TEST(Why, TheFirstReasonInOrderOfPrecedenceIsGiven) {
  const ClusterSnapshot snapshot = snapshot_of(kSlurm);
  EXPECT_EQ(explain(snapshot, "4").reason, PendingReason::kDeactivated);
  EXPECT_EQ(explain(snapshot, "5").reason, PendingReason::kAdmissionGated);
  EXPECT_EQ(explain(snapshot, "6").reason, PendingReason::kNoMatchingFlavor);
  EXPECT_EQ(explain(snapshot, "7").reason, PendingReason::kExceedsMaxQuota);
  const Why why = explain(snapshot, "8");
  EXPECT_EQ(why.reason, PendingReason::kWaitingForQuota);
  EXPECT_EQ(why.unblocked_by, "the end of 1 (by 1970-01-01T01:16:40 UTC at the latest)");
}

TEST(Why, KueueQuotasAndBorrowing) {
  const std::string text = R"json({"items": [
    {"kind": "ClusterQueue", "metadata": {"name": "team"}, "spec": {"cohort": "all", "resourceGroups": [{"flavors": [
      {"name": "a100", "resources": [{"name": "nvidia.com/gpu", "nominalQuota": "8", "borrowingLimit": "4"}]}]}]},
     "status": {"flavorsReservation": [{"name": "a100", "resources": [{"name": "nvidia.com/gpu", "total": "6"}]}]}},
    {"kind": "Workload", "metadata": {"name": "big", "creationTimestamp": "2025-01-01T00:00:00Z"}, "spec": {"queueName": "team",
      "podSets": [{"count": 2, "template": {"spec": {"containers": [{"resources": {"requests": {"nvidia.com/gpu": "8"}}}]}}}]}},
    {"kind": "Workload", "metadata": {"name": "borrows"}, "spec": {"queueName": "team",
      "podSets": [{"count": 1, "template": {"spec": {"containers": [{"resources": {"requests": {"nvidia.com/gpu": 8}}}]}}}]}},
    {"kind": "Workload", "metadata": {"name": "waits"}, "spec": {"queueName": "team",
      "podSets": [{"count": 1, "template": {"spec": {"containers": [{"resources": {"requests": {"nvidia.com/gpu": "4"}}}]}}}]}},
    {"kind": "Workload", "metadata": {"name": "off"}, "spec": {"queueName": "team", "active": false,
      "podSets": [{"count": 1, "template": {"spec": {"containers": [{"resources": {"requests": {"nvidia.com/gpu": "1"}}}]}}}]}}]})json";
  const ClusterSnapshot snapshot = snapshot_of(text);
  EXPECT_EQ(explain(snapshot, "big").reason, PendingReason::kExceedsMaxQuota);
  EXPECT_EQ(explain(snapshot, "borrows").reason, PendingReason::kBorrowingLimitReached);
  EXPECT_EQ(explain(snapshot, "waits").reason, PendingReason::kWaitingForQuota);
  EXPECT_EQ(explain(snapshot, "off").reason, PendingReason::kDeactivated);
}

TEST(Why, RefusesDocumentsAndJobsItDoesNotKnow) {
  EXPECT_THROW(snapshot_of("{}"), Error);
  EXPECT_THROW(explain(snapshot_of(kSlurm), "99"), Error);
  EXPECT_THROW(explain(snapshot_of(kSlurm), "1"), Error);
}

}  // namespace
}  // namespace paceline::schedule
