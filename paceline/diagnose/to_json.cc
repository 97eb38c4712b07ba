#include <nlohmann/json.hpp>

#include "paceline/diagnose/diagnosis.h"

namespace paceline::diagnose {
namespace {

using base::Json;

Json parts_json(const StepParts& parts) {
  return {{"number", parts.number},
          {"begin_ns", parts.begin},
          {"duration_ns", parts.duration},
          {"compute_ns", parts.compute},
          {"exposed_wait_ns", parts.exposed_wait},
          {"exposed_transfer_ns", parts.exposed_transfer},
          {"exposed_copies_ns", parts.exposed_copies},
          {"idle_host_ns", parts.idle_host},
          {"idle_gap_ns", parts.idle_gap},
          {"idle_other_ns", parts.idle_other},
          {"lead_ns", parts.lead},
          {"tail_ns", parts.tail},
          {"communication_ns", parts.communication},
          {"overlap_ns", parts.overlap},
          {"copies_ns", parts.copies}};
}

Json device_json(const trace::DeviceTotals& device) {
  Json streams = Json::array();
  for (const trace::StreamIdle& idle : device.streams) {
    streams.push_back({{"device", idle.device},
                       {"stream", idle.stream},
                       {"host_wait_ns", idle.host_wait},
                       {"kernel_wait_ns", idle.kernel_wait},
                       {"other_ns", idle.other}});
  }
  return {{"span_ns", device.span},       {"idle_ns", device.idle},
          {"compute_ns", device.compute}, {"communication_ns", device.communication},
          {"copies_ns", device.copies},   {"overlap_ns", device.overlap},
          {"streams", std::move(streams)}};
}

Json totals_json(const std::vector<trace::NameTotal>& totals, const base::InternTable& names) {
  Json rows = Json::array();
  for (const trace::NameTotal& total : totals) {
    rows.push_back({{"name", names.text(total.name)},
                    {"count", total.count},
                    {"total_ns", total.total},
                    {"min_ns", total.min},
                    {"max_ns", total.max}});
  }
  return rows;
}

Json repairs_json(const trace::Repairs& repairs) {
  Json rows = Json::array();
  for (std::size_t i = 0; i < static_cast<std::size_t>(trace::Repair::kCount); ++i) {
    const auto repair = static_cast<trace::Repair>(i);
    const trace::Repairs::Row& row = repairs.row(repair);
    if (row.count == 0) continue;
    rows.push_back({{"repair", trace::repair_name(repair)},
                    {"meaning", trace::repair_meaning(repair)},
                    {"count", row.count},
                    {"loses_data", trace::loses_data(repair)},
                    {"first_place", row.first_place},
                    {"first_detail", row.first_detail}});
  }
  return rows;
}

Json rank_json(const RankDiagnosis& row, const trace::RankSummary& rank) {
  Json json = {{"rank", row.rank}, {"source", row.source}};
  if (!row.host.empty()) json["host"] = row.host;
  json["events"] = {{"complete", rank.events.complete}, {"begin_end", rank.events.begin_end},
                    {"metadata", rank.events.metadata}, {"instant", rank.events.instant},
                    {"flow", rank.events.flow},         {"counter", rank.events.counter},
                    {"other", rank.events.other},       {"total", rank.events.total()}};
  json["repairs"] = repairs_json(rank.repairs);
  json["clock"] = {{"offset_ns", row.clock_offset}, {"residual_ns", row.clock_residual}};
  json["collectives"] = row.collectives;
  json["times_last"] = row.times_last;
  json["blame_ns"] = row.blame;
  json["wait_per_step_ns"] = row.wait;
  json["transfer_per_step_ns"] = row.transfer;
  json["mean_step"] = parts_json(row.mean);
  json["steps"] = Json::array();
  for (const StepParts& step : row.steps) json["steps"].push_back(parts_json(step));
  json["device"] = device_json(rank.device);
  json["kernels"] = totals_json(rank.kernels, rank.names);
  return json;
}

Json collective_json(const CollectiveRow& row) {
  Json json = {{"name", row.name},
               {"group", row.group},
               {"elements", row.elements},
               {"ranks", row.ranks},
               {"last_rank", row.last_rank},
               {"transfer_ns", row.transfer},
               {"start_spread_ns", row.start_spread},
               {"end_spread_ns", row.end_spread},
               {"behind_ns", row.behind},
               {"members", row.members},
               {"waits_ns", row.waits}};
  return json;
}

/// The one thing to know: who is late, or the most costly finding.
Json verdict_json(const Diagnosis& diagnosis) {
  const Finding* main = main_finding(diagnosis);
  if (main == nullptr) return nullptr;
  return {{"kind", main->kind},
          {"class", fault_entry(main->fault).name},
          {"rank", main->rank < 0 ? Json(nullptr) : Json(main->rank)},
          {"host", main->host.empty() ? Json(nullptr) : Json(main->host)},
          {"pattern", pattern_name(main->pattern)},
          {"title", main->title}};
}

}  // namespace

Json to_json(const Diagnosis& diagnosis, const trace::Trace& trace) {
  Json json = base::make_result("diagnosis", 1);
  json["world_size"] = diagnosis.world_size;
  json["has_device"] = diagnosis.has_device;
  json["marks_steps"] = diagnosis.marks_steps;
  json["steps"] = diagnosis.step_count;
  json["median_step_ns"] = diagnosis.median_step;
  json["late_rank"] = diagnosis.late_rank() < 0 ? Json(nullptr) : Json(diagnosis.late_rank());
  json["verdict"] = verdict_json(diagnosis);
  json["findings"] = Json::array();
  for (const Finding& finding : diagnosis.findings) {
    Json row = {{"id", finding.id},
                {"kind", finding.kind},
                {"title", finding.title},
                {"cost_per_step_ns", finding.cost},
                {"basis", finding.measured ? "measured" : "inferred"},
                {"evidence", finding.evidence},
                {"remedy", finding.remedy}};
    row["class"] = fault_entry(finding.fault).name;
    row["pattern"] = pattern_name(finding.pattern);
    if (!finding.next.empty()) row["next"] = finding.next;
    if (finding.rank >= 0) row["rank"] = finding.rank;
    if (!finding.host.empty()) row["host"] = finding.host;
    json["findings"].push_back(std::move(row));
  }
  json["causes"] = Json::array();
  for (const Cause& cause : diagnosis.causes) {
    json["causes"].push_back({{"what", cause.what},
                              {"kind", cause.kind},
                              {"per_step_ns", cause.per_step},
                              {"share", cause.share},
                              {"class", fault_entry(cause.fault).name}});
  }
  json["ranks"] = Json::array();
  for (std::size_t i = 0; i < diagnosis.ranks.size(); ++i) {
    json["ranks"].push_back(rank_json(diagnosis.ranks[i], trace.ranks[i]));
  }
  json["collectives"] = Json::array();
  for (const CollectiveRow& row : diagnosis.collectives) json["collectives"].push_back(collective_json(row));
  json["kernels"] = Json::array();
  for (const KernelRow& row : diagnosis.kernels) {
    json["kernels"].push_back({{"name", row.name},
                               {"kind", row.kind},
                               {"count", row.count},
                               {"total_ns", row.total},
                               {"min_ns", row.min},
                               {"max_ns", row.max}});
  }
  json["operators"] = Json::array();
  for (const OperatorRow& row : diagnosis.operators) {
    json["operators"].push_back(
        {{"name", row.name}, {"count", row.count}, {"total_ns", row.total}, {"self_ns", row.self}});
  }
  json["unrecognised_kernels"] = Json::array();
  for (const UnrecognisedKernel& kernel : diagnosis.unrecognised) {
    json["unrecognised_kernels"].push_back(
        {{"name", kernel.name}, {"per_step_ns", kernel.per_step}, {"ranks", kernel.ranks}});
  }
  json["mismatches"] = Json::array();
  for (const trace::Mismatch& mismatch : trace.mismatches) {
    json["mismatches"].push_back({{"rank", *trace.ranks[mismatch.rank].rank},
                                  {"group", trace.groups[mismatch.group]},
                                  {"index", mismatch.index},
                                  {"what", mismatch.what}});
  }
  json["causality_violations"] = trace.causality_violations;
  json["warnings"] = trace.warnings;
  return json;
}

}  // namespace paceline::diagnose
