#include "paceline/diagnose/diagnosis.h"

#include <algorithm>
#include <map>

#include "paceline/diagnose/findings.h"
#include "paceline/diagnose/late.h"

namespace paceline::diagnose {
namespace {

using trace::Interval;
using trace::Intervals;
using trace::RankSummary;
using trace::Trace;

/// Per rank, when a transfer of its collectives ran: the end of each, as long as the member that waited least needed.
std::vector<Intervals> transfers(const Trace& trace) {
  std::vector<Intervals> of_rank(trace.ranks.size());
  for (const trace::Collective& collective : trace.collectives) {
    for (std::uint32_t m = collective.members_begin; m < collective.members_end; ++m) {
      const trace::Member& member = trace.members[m];
      const trace::CommEvent& event = trace.event(member);
      of_rank[member.rank].push_back({event.end - collective.transfer, event.end});
    }
  }
  for (Intervals& intervals : of_rank) intervals = trace::merge(std::move(intervals));
  return of_rank;
}

StepParts parts_of(const trace::StepSummary& step, const trace::Clock& clock, const Intervals& exposed_transfers) {
  StepParts parts;
  parts.number = step.number;
  parts.begin = clock.align(step.begin);
  parts.duration = step.end - step.begin;
  parts.compute = step.compute;
  parts.exposed_transfer = total_within(exposed_transfers, {step.begin, step.end});
  parts.exposed_wait = step.exposed_communication() - parts.exposed_transfer;
  parts.exposed_copies = step.exposed_copies;
  parts.idle_host = step.idle_host;
  parts.idle_gap = step.idle_gap;
  parts.idle_other = step.idle_other();
  parts.lead = step.lead;
  parts.tail = step.tail;
  parts.communication = step.communication;
  parts.overlap = step.overlap;
  parts.copies = step.copies;
  return parts;
}

StepParts mean_of(const std::vector<StepParts>& steps) {
  StepParts mean;
  if (steps.empty()) return mean;
  mean.begin = steps.front().begin;
  const auto average = [&](std::int64_t StepParts::* field) {
    std::int64_t sum = 0;
    for (const StepParts& step : steps) sum += step.*field;
    mean.*field = sum / static_cast<std::int64_t>(steps.size());
  };
  for (const auto field :
       {&StepParts::duration, &StepParts::compute, &StepParts::exposed_wait, &StepParts::exposed_transfer,
        &StepParts::exposed_copies, &StepParts::idle_host, &StepParts::idle_gap, &StepParts::idle_other,
        &StepParts::lead, &StepParts::tail, &StepParts::communication, &StepParts::overlap, &StepParts::copies}) {
    average(field);
  }
  return mean;
}

void fill_ranks(const Trace& trace, Diagnosis& diagnosis) {
  std::vector<Intervals> transfer_of = transfers(trace);
  std::vector<std::int64_t> durations;
  diagnosis.step_count = trace.ranks.empty() ? 0 : trace.ranks.front().steps.size();
  for (std::size_t i = 0; i < trace.ranks.size(); ++i) {
    const RankSummary& rank = trace.ranks[i];
    const Intervals exposed = trace::subtract(transfer_of[i], rank.compute_in_collectives);
    RankDiagnosis row;
    row.rank = *rank.rank;
    row.source = rank.source;
    row.host = rank.host;
    row.collectives = static_cast<std::uint32_t>(rank.collectives.size());
    row.clock_offset = trace.clocks[i].offset;
    row.clock_residual = trace.clocks[i].residual;
    for (const trace::StepSummary& step : rank.steps) {
      row.steps.push_back(parts_of(step, trace.clocks[i], exposed));
      durations.push_back(step.end - step.begin);
    }
    row.mean = mean_of(row.steps);
    diagnosis.step_count = std::min(diagnosis.step_count, rank.steps.size());
    diagnosis.world_size = std::max(diagnosis.world_size, rank.world_size);
    diagnosis.has_device = diagnosis.has_device || rank.has_device;
    diagnosis.marks_steps = diagnosis.marks_steps || rank.marks_steps;
    diagnosis.ranks.push_back(std::move(row));
  }
  for (const trace::Collective& collective : trace.collectives) {
    for (std::uint32_t m = collective.members_begin; m < collective.members_end; ++m) {
      const trace::Member& member = trace.members[m];
      RankDiagnosis& rank = diagnosis.ranks[member.rank];
      rank.wait += member.end - member.begin - collective.transfer;
      rank.transfer += collective.transfer;
    }
  }
  for (RankDiagnosis& rank : diagnosis.ranks) {
    const auto steps = static_cast<std::int64_t>(std::max<std::size_t>(rank.steps.size(), 1));
    rank.wait /= steps;
    rank.transfer /= steps;
  }
  diagnosis.world_size = std::max(diagnosis.world_size, static_cast<std::uint32_t>(trace.ranks.size()));
  if (!durations.empty()) {
    const auto middle = durations.begin() + static_cast<std::ptrdiff_t>(durations.size() / 2);
    std::nth_element(durations.begin(), middle, durations.end());
    diagnosis.median_step = *middle;
  }
}

std::string kernel_kind(const trace::NameTotal& total) {
  if (total.category != trace::Category::kKernel) return "copy";
  return total.collective == trace::CollectiveKind::kNone ? "compute" : "communication";
}

void fill_tables(const Trace& trace, Diagnosis& diagnosis) {
  std::map<std::string_view, KernelRow> kernels;
  std::map<std::string_view, OperatorRow> operators;
  for (const RankSummary& rank : trace.ranks) {
    for (const trace::NameTotal& total : rank.kernels) {
      KernelRow& row = kernels[rank.names.text(total.name)];
      row.min = row.count == 0 ? total.min : std::min(row.min, total.min);
      row.max = std::max(row.max, total.max);
      row.count += total.count;
      row.total += total.total;
      row.kind = kernel_kind(total);
    }
    for (const trace::NameTotal& total : rank.operators) {
      OperatorRow& row = operators[rank.names.text(total.name)];
      row.count += total.count;
      row.total += total.total;
      row.self += total.self;
    }
  }
  for (auto& [name, row] : kernels) {
    row.name = name;
    diagnosis.kernels.push_back(std::move(row));
  }
  for (auto& [name, row] : operators) {
    row.name = name;
    diagnosis.operators.push_back(std::move(row));
  }
  std::stable_sort(diagnosis.kernels.begin(), diagnosis.kernels.end(),
                   [](const KernelRow& a, const KernelRow& b) { return a.total > b.total; });
  std::stable_sort(diagnosis.operators.begin(), diagnosis.operators.end(),
                   [](const OperatorRow& a, const OperatorRow& b) { return a.self > b.self; });
}

}  // namespace

Diagnosis diagnose(const trace::Trace& trace) {
  Diagnosis diagnosis;
  fill_ranks(trace, diagnosis);
  find_late_rank(trace, diagnosis);
  fill_tables(trace, diagnosis);
  find_findings(trace, diagnosis);
  return diagnosis;
}

}  // namespace paceline::diagnose
