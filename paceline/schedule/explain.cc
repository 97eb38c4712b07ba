#include "paceline/schedule/explain.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "paceline/base/error.h"
#include "paceline/schedule/csv.h"
#include "paceline/schedule/workload.h"

namespace paceline::schedule {
namespace {

using base::Json;
using base::Nanos;

constexpr std::int64_t kSecond = 1'000'000'000;

/// Slurm writes numbers bare (22.05) or as {"set": true, "infinite": false, "number": 5} (23.02 and later).
std::optional<double> number_of(const Json& json, const char* key) {
  if (!json.contains(key)) return std::nullopt;
  const Json& value = json[key];
  if (value.is_number()) return value.get<double>();
  if (value.is_string()) return parse_number(value.get<std::string>());
  if (value.is_object() && value.value("set", false) && !value.value("infinite", false) && value.contains("number") &&
      value["number"].is_number())
    return value["number"].get<double>();
  return std::nullopt;
}

/// A string, or the strings of a list (newer versions of Slurm) with a space between.
std::string text_of(const Json& json, const char* key) {
  if (!json.contains(key)) return {};
  const Json& value = json[key];
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number_integer()) return std::to_string(value.get<std::int64_t>());
  std::string text;
  if (value.is_array())
    for (const Json& part : value)
      if (part.is_string()) text += (text.empty() ? "" : " ") + part.get<std::string>();
  return text;
}

/// "gpu:v100:4(S:0-1),..." gives type and count.
std::pair<std::string, int> parse_gres(std::string_view gres) {
  std::string type;
  int count = 0;
  for (std::string_view part : split(gres, ',')) {
    part = part.substr(0, part.find('('));
    const auto fields = split(part, ':');
    if (fields.size() < 2 || fields[0] != "gpu") continue;
    if (const auto value = parse_integer(fields.back()); value && *value >= 0 && *value < 100'000)
      count += static_cast<int>(*value);
    if (fields.size() > 2) type = fields[1];
  }
  return {type, count};
}

std::string gpu_type_of_tres(std::string_view tres) {
  for (std::string_view part : split(tres, ','))
    if (part.starts_with("gres/gpu:")) return std::string(part.substr(9, part.find('=') - 9));
  return {};
}

Nanos seconds(double value) {
  return Nanos(static_cast<std::int64_t>(value) * kSecond);
}

void add_slurm_job(ClusterSnapshot& snapshot, const Json& json) {
  SnapshotJob job;
  job.name = text_of(json, "job_id");
  const std::string state = text_of(json, "job_state");
  job.pending = state.starts_with("PENDING");
  if (!job.pending && !state.starts_with("RUNNING")) return;
  job.queue = text_of(json, "partition");
  job.own_reason = text_of(json, "state_reason");
  std::string tres = text_of(json, "tres_alloc_str");
  if (tres.empty()) tres = text_of(json, "tres_req_str");
  job.gpus = gpus_of_tres(tres).value_or(0);
  job.gpu_type = gpu_type_of_tres(tres);
  job.priority = number_of(json, "priority").value_or(0);
  job.submit = seconds(number_of(json, "submit_time").value_or(0));
  if (!job.pending) job.start = seconds(number_of(json, "start_time").value_or(0));
  job.limit = seconds(60 * number_of(json, "time_limit").value_or(0));
  const auto says = [&](std::string_view word) { return job.own_reason.find(word) != std::string::npos; };
  job.active = !says("Held");
  job.suspended = says("BeginTime") || says("Reservation");
  job.gated = says("Dependency");
  snapshot.jobs.push_back(std::move(job));
}

void add_slurm_node(ClusterSnapshot& snapshot, const Json& json) {
  GpuPool node;
  node.name = text_of(json, "name");
  if (node.name.empty()) node.name = text_of(json, "hostname");
  std::tie(node.type, node.gpus) = parse_gres(text_of(json, "gres"));
  node.used = parse_gres(text_of(json, "gres_used")).second;
  std::string state = text_of(json, "state") + " " + text_of(json, "state_flags");
  std::transform(state.begin(), state.end(), state.begin(), [](unsigned char c) { return std::toupper(c); });
  for (const char* bad : {"DOWN", "DRAIN", "FAIL", "NOT_RESPONDING", "MAINT", "UNKNOWN"})
    if (state.find(bad) != std::string::npos) node.up = false;
  snapshot.nodes.push_back(std::move(node));
}

int quantity(const Json& json, const char* key) {
  return static_cast<int>(std::clamp(number_of(json, key).value_or(0), 0.0, 1e6));
}

const Json& child(const Json& json, const char* key) {
  static const Json kNothing = Json::object();
  return json.is_object() && json.contains(key) ? json[key] : kNothing;
}

constexpr const char* kGpuResource = "nvidia.com/gpu";

void add_kueue_workload(ClusterSnapshot& snapshot, const Json& json) {
  SnapshotJob job;
  job.name = text_of(child(json, "metadata"), "name");
  const Json& spec = child(json, "spec");
  job.queue = text_of(child(json, "status"), "clusterQueue");
  if (job.queue.empty()) job.queue = text_of(spec, "queueName");
  job.active = spec.value("active", true);
  job.priority = number_of(spec, "priority").value_or(0);
  if (const auto created = parse_timestamp(text_of(child(json, "metadata"), "creationTimestamp")))
    job.submit = *created;
  for (const Json& pod_set : child(spec, "podSets")) {
    const int count = std::max(1, quantity(pod_set, "count"));
    for (const Json& container : child(child(child(pod_set, "template"), "spec"), "containers"))
      job.gpus += count * quantity(child(child(container, "resources"), "requests"), kGpuResource);
  }
  for (const Json& condition : child(child(json, "status"), "conditions")) {
    const std::string type = text_of(condition, "type"), reason = text_of(condition, "reason");
    const bool holds = text_of(condition, "status") == "True";
    if (type == "QuotaReserved" && !holds) job.own_reason = reason;
    if (type == "Admitted" && holds) job.pending = false;
    if (type == "Finished" && holds) return;
    if (type == "PodsReady" && !holds && reason == "WaitForStart") job.waits_for_pods = true;
    if (type == "Preempted" && holds) job.waits_for_preempted = true;
  }
  for (const Json& check : child(child(json, "status"), "admissionChecks"))
    if (text_of(check, "state") == "Pending") job.gated = true;
  snapshot.jobs.push_back(std::move(job));
}

void add_kueue_queue(ClusterSnapshot& snapshot, const Json& json) {
  const std::string queue = text_of(child(json, "metadata"), "name");
  for (const Json& group : child(child(json, "spec"), "resourceGroups"))
    for (const Json& flavor : child(group, "flavors"))
      for (const Json& resource : child(flavor, "resources")) {
        if (text_of(resource, "name") != kGpuResource) continue;
        GpuPool quota{queue, text_of(flavor, "name"), quantity(resource, "nominalQuota"), 0, true, std::nullopt};
        if (resource.contains("borrowingLimit")) quota.borrowing_limit = quantity(resource, "borrowingLimit");
        const char* usage =
            child(json, "status").contains("flavorsReservation") ? "flavorsReservation" : "flavorsUsage";
        for (const Json& used : child(child(json, "status"), usage))
          if (text_of(used, "name") == quota.type)
            for (const Json& amount : child(used, "resources"))
              if (text_of(amount, "name") == kGpuResource) quota.used = quantity(amount, "total");
        snapshot.quotas.push_back(std::move(quota));
      }
  if (text_of(child(json, "spec"), "stopPolicy").starts_with("Hold")) {
    for (SnapshotJob& job : snapshot.jobs)
      if (job.queue == queue) job.active = false;
  }
}

/// Jobs that run, the first to reach its limit first, until `missing` GPUs are free.
std::string what_frees(const ClusterSnapshot& snapshot, int missing) {
  std::vector<const SnapshotJob*> running;
  for (const SnapshotJob& job : snapshot.jobs)
    if (!job.pending && job.gpus > 0) running.push_back(&job);
  std::stable_sort(running.begin(), running.end(), [](const SnapshotJob* a, const SnapshotJob* b) {
    return a->start + a->limit < b->start + b->limit;
  });
  std::string names;
  for (const SnapshotJob* job : running) {
    names += (names.empty() ? "" : ", ") + job->name;
    missing -= job->gpus;
    if (missing > 0) continue;
    if (job->start.count() > 0 && job->limit.count() > 0)
      return fmt::format("the end of {} (by {} UTC at the latest)", names, format_timestamp(job->start + job->limit));
    return "the end of " + names;
  }
  return {};
}

struct Verdict {
  PendingReason reason;
  std::string detail, unblocked_by;
};

Verdict judge_quota(const ClusterSnapshot& snapshot, const SnapshotJob& job) {
  int nominal = 0, used = 0, limit = 0;
  bool may_borrow_any = false, has_queue = false;
  for (const GpuPool& quota : snapshot.quotas) {
    if (quota.name != job.queue) continue;
    has_queue = true;
    nominal += quota.gpus, used += quota.used;
    may_borrow_any |= !quota.borrowing_limit;
    limit += quota.gpus + quota.borrowing_limit.value_or(0);
  }
  if (!has_queue)
    return {PendingReason::kMisconfigured, fmt::format("queue '{}' has no quota of GPUs here", job.queue),
            "another queue"};
  int elsewhere = 0;  // unused quota of others
  for (const GpuPool& quota : snapshot.quotas)
    if (quota.name != job.queue) elsewhere += std::max(0, quota.gpus - quota.used);
  const int most = may_borrow_any ? 1 << 30 : limit;
  if (job.gpus > most)
    return {PendingReason::kExceedsMaxQuota,
            fmt::format("asks for {} GPUs, its queue may never hold more than {}", job.gpus, most),
            "fewer GPUs or a larger quota"};
  const int free = nominal - used;
  if (job.gpus <= free) return {PendingReason::kPendingEvaluation, {}, {}};
  if (used + job.gpus > most)
    return {PendingReason::kBorrowingLimitReached,
            fmt::format("queue '{}' uses {} GPUs and may hold {} with borrowing", job.queue, used, most),
            what_frees(snapshot, used + job.gpus - most)};
  if (job.gpus <= free + elsewhere) return {PendingReason::kPendingEvaluation, {}, {}};
  return {PendingReason::kWaitingForQuota,
          fmt::format("asks for {} GPUs; its queue has {} of {} free, others {}", job.gpus, std::max(0, free), nominal,
                      elsewhere),
          what_frees(snapshot, job.gpus - free - elsewhere)};
}

Verdict judge_nodes(const ClusterSnapshot& snapshot, const SnapshotJob& job) {
  int all = 0, of_type = 0, free = 0, largest = 0, whole = 0;
  for (const GpuPool& node : snapshot.nodes) {
    all += node.gpus;
    if (!job.gpu_type.empty() && node.type != job.gpu_type) continue;
    of_type += node.gpus;
    if (!node.up) continue;
    const int room = node.gpus - node.used;
    free += room, largest = std::max(largest, room), whole = std::max(whole, node.gpus);
  }
  if (all > 0 && of_type == 0)
    return {PendingReason::kNoMatchingFlavor, fmt::format("no node has GPUs of type '{}'", job.gpu_type),
            "another GPU type"};
  if (job.gpus > of_type)
    return {PendingReason::kExceedsMaxQuota, fmt::format("asks for {} GPUs, the cluster has {}", job.gpus, of_type),
            "fewer GPUs"};
  if (job.gpus > free)
    return {PendingReason::kWaitingForQuota,
            fmt::format("asks for {} GPUs, {} of {} are free on nodes that are up", job.gpus, free, of_type),
            what_frees(snapshot, job.gpus - free)};
  if (job.gpus <= whole && job.gpus > largest)
    return {PendingReason::kTopologyPlacementFailed,
            fmt::format("{} GPUs are free, but no node has {} together (the most is {})", free, job.gpus, largest),
            "an end on the fullest of the nodes, or fewer GPUs a node"};
  return {PendingReason::kPendingEvaluation, {}, {}};
}

Verdict judge(const ClusterSnapshot& snapshot, const SnapshotJob& job) {
  if (!job.active) return {PendingReason::kDeactivated, "it is held or its queue is stopped", "releasing it"};
  for (const char* word : {"BadConstraints", "InvalidAccount", "InvalidQOS", "PartitionDown", "PartitionInactive",
                           "PartitionNodeLimit", "PartitionTimeLimit"})
    if (job.own_reason.find(word) != std::string::npos)
      return {PendingReason::kMisconfigured, fmt::format("the scheduler says {}", job.own_reason), "a changed request"};
  const Verdict resources = snapshot.quotas.empty() ? judge_nodes(snapshot, job) : judge_quota(snapshot, job);
  if (resources.reason < PendingReason::kSuspended) return resources;
  if (job.suspended) return {PendingReason::kSuspended, "it may not start before its time", "its begin time"};
  if (job.gated)
    return {PendingReason::kAdmissionGated, "it waits for another job or an admission check",
            "the end of what it depends on"};
  if (job.waits_for_pods)
    return {PendingReason::kWaitingForPodsReady, "earlier workloads have pods that are not ready", "those pods"};
  for (const char* word : {"Assoc", "QOSMax", "QOSGrp", "MaxJobs", "MaxCpu", "MaxGRES"})
    if (job.own_reason.find(word) != std::string::npos)
      return {PendingReason::kWaitingForQuota, fmt::format("the scheduler says {}", job.own_reason),
              "an end of jobs of the same account"};
  if (resources.reason != PendingReason::kPendingEvaluation) return resources;
  if (job.waits_for_preempted)
    return {PendingReason::kWaitingForPreemptedWorkloads, "preempted workloads have not given their GPUs back yet",
            "their end"};
  return {PendingReason::kPendingEvaluation,
          "enough is free: the scheduler has not come to it, or keeps room for jobs ahead",
          "the jobs ahead, or the next scheduling cycle"};
}

}  // namespace

std::string name_of(PendingReason reason) {
  constexpr std::array<const char*, 12> kNames{"Deactivated",
                                               "Misconfigured",
                                               "NoMatchingFlavor",
                                               "Suspended",
                                               "AdmissionGated",
                                               "WaitingForPodsReady",
                                               "ExceedsMaxQuota",
                                               "BorrowingLimitReached",
                                               "WaitingForQuota",
                                               "TopologyPlacementFailed",
                                               "WaitingForPreemptedWorkloads",
                                               "PendingEvaluation"};
  return kNames[static_cast<std::size_t>(reason)];
}

void add_document(ClusterSnapshot& snapshot, const Json& json, const std::string& where) {
  bool known = false;
  if (json.is_object() && json.contains("jobs") && json["jobs"].is_array()) {
    known = true;
    for (const Json& job : json["jobs"]) add_slurm_job(snapshot, job);
  }
  if (json.is_object() && json.contains("nodes") && json["nodes"].is_array()) {
    known = true;
    for (const Json& node : json["nodes"]) add_slurm_node(snapshot, node);
  }
  if (json.is_object() && json.contains("items") && json["items"].is_array()) {
    for (const Json& item : json["items"])
      if (text_of(item, "kind") == "Workload") known = true, add_kueue_workload(snapshot, item);
    for (const Json& item : json["items"])
      if (text_of(item, "kind") == "ClusterQueue") known = true, add_kueue_queue(snapshot, item);
  }
  if (!known)
    throw Error(ErrorKind::kBadInput, where,
                "is neither of squeue --json, sinfo --json, scontrol show nodes --json, kubectl get "
                "workloads,clusterqueues -o json");
}

Why explain(const ClusterSnapshot& snapshot, const std::string& name) {
  const auto at = std::find_if(snapshot.jobs.begin(), snapshot.jobs.end(),
                               [&](const SnapshotJob& job) { return job.name == name; });
  if (at == snapshot.jobs.end()) throw Error(ErrorKind::kBadInput, name, "is no job of this snapshot");
  if (!at->pending) throw Error(ErrorKind::kBadInput, name, "does not wait: it runs");
  const Verdict verdict = judge(snapshot, *at);
  Why why{name, verdict.reason, verdict.detail, at->own_reason, {}, 0, verdict.unblocked_by};
  std::vector<const SnapshotJob*> ahead;
  for (const SnapshotJob& job : snapshot.jobs)
    if (job.pending && job.active && job.queue == at->queue && job.name != name &&
        (job.priority > at->priority || (job.priority == at->priority && job.submit < at->submit)))
      ahead.push_back(&job);
  std::stable_sort(ahead.begin(), ahead.end(), [](const SnapshotJob* a, const SnapshotJob* b) {
    return a->priority != b->priority ? a->priority > b->priority : a->submit < b->submit;
  });
  for (const SnapshotJob* job : ahead) why.ahead.push_back(job->name), why.gpus_ahead += job->gpus;
  return why;
}

Json to_json(const Why& why) {
  Json json = base::make_result("schedule-why", 1);
  json["job"] = why.job;
  json["reason"] = name_of(why.reason);
  json["detail"] = why.detail;
  json["scheduler_says"] = why.own_reason;
  json["ahead"] = why.ahead;
  json["gpus_ahead"] = why.gpus_ahead;
  json["unblocked_by"] = why.unblocked_by;
  return json;
}

std::string to_text(const Why& why) {
  std::string text = fmt::format("{}: {}\n  {}\n", why.job, name_of(why.reason), why.detail);
  if (!why.own_reason.empty()) text += fmt::format("  the scheduler says: {}\n", why.own_reason);
  if (!why.ahead.empty()) {
    text += fmt::format("  ahead: {} jobs with {} GPUs, first", why.ahead.size(), why.gpus_ahead);
    for (std::size_t i = 0; i < std::min<std::size_t>(5, why.ahead.size()); ++i) text += " " + why.ahead[i];
    text += "\n";
  }
  if (!why.unblocked_by.empty()) text += fmt::format("  unblocked by: {}\n", why.unblocked_by);
  return text;
}

}  // namespace paceline::schedule
