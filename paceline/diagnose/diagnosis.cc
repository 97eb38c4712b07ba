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

/// Per rank and collective, how much of it was transfer: what the member that waited least needed. All of it where no
/// other rank is there to tell.
std::vector<std::vector<std::int64_t>> transfer_times(const Trace& trace) {
  std::vector<std::vector<std::int64_t>> of_rank(trace.ranks.size());
  for (std::size_t i = 0; i < trace.ranks.size(); ++i) {
    for (const trace::CommEvent& event : trace.ranks[i].collectives) of_rank[i].push_back(event.end - event.begin);
  }
  for (const trace::Collective& collective : trace.collectives) {
    for (std::uint32_t m = collective.members_begin; m < collective.members_end; ++m) {
      std::int64_t& time = of_rank[trace.members[m].rank][trace.members[m].event];
      time = std::min(time, collective.transfer);
    }
  }
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
  // What rounding left over goes to the largest part, so that the parts of the mean add up as well.
  std::int64_t rest = mean.duration;
  std::int64_t* largest = &mean.compute;
  for (std::int64_t* part : {&mean.compute, &mean.exposed_wait, &mean.exposed_transfer, &mean.exposed_copies,
                             &mean.idle_host, &mean.idle_gap, &mean.idle_other, &mean.lead, &mean.tail}) {
    rest -= *part;
    if (*part > *largest) largest = part;
  }
  *largest += rest;
  return mean;
}

void fill_ranks(const Trace& trace, Diagnosis& diagnosis) {
  const std::vector<std::vector<std::int64_t>> transfer_of = transfer_times(trace);
  std::vector<std::int64_t> durations;
  diagnosis.step_count = trace.ranks.empty() ? 0 : trace.ranks.front().steps.size();
  for (std::size_t i = 0; i < trace.ranks.size(); ++i) {
    const RankSummary& rank = trace.ranks[i];
    RankDiagnosis row;
    Intervals transfers;
    for (std::size_t c = 0; c < rank.collectives.size(); ++c) {
      const trace::CommEvent& event = rank.collectives[c];
      transfers.push_back({event.end - transfer_of[i][c], event.end});
    }
    transfers = trace::merge(std::move(transfers));
    const Intervals exposed = trace::subtract(transfers, rank.compute_in_collectives);
    row.rank = *rank.rank;
    row.source = rank.source;
    row.host = rank.host;
    row.collectives = static_cast<std::uint32_t>(rank.collectives.size());
    row.clock_offset = trace.clocks[i].offset;
    row.clock_residual = trace.clocks[i].residual;
    for (const trace::StepSummary& step : rank.steps) {
      row.steps.push_back(parts_of(step, trace.clocks[i], exposed));
      durations.push_back(step.end - step.begin);
      row.transfer += total_within(transfers, {step.begin, step.end});
    }
    row.mean = mean_of(row.steps);
    row.transfer /= static_cast<std::int64_t>(std::max<std::size_t>(row.steps.size(), 1));
    row.wait = row.mean.communication - row.transfer;
    diagnosis.step_count = std::min(diagnosis.step_count, rank.steps.size());
    diagnosis.world_size = std::max(diagnosis.world_size, rank.world_size);
    diagnosis.has_device = diagnosis.has_device || rank.has_device;
    diagnosis.marks_steps = diagnosis.marks_steps || rank.marks_steps;
    diagnosis.ranks.push_back(std::move(row));
  }
  diagnosis.world_size = std::max(diagnosis.world_size, static_cast<std::uint32_t>(trace.ranks.size()));
  if (!durations.empty()) {
    const auto middle = durations.begin() + static_cast<std::ptrdiff_t>(durations.size() / 2);
    std::nth_element(durations.begin(), middle, durations.end());
    diagnosis.median_step = *middle;
  }
}

/// Brings the steps of ranks together that recorded different ones, by their numbers.
void find_common_steps(Diagnosis& diagnosis) {
  std::int64_t first = 0, last = 0;
  bool known = !diagnosis.ranks.empty();
  for (const RankDiagnosis& rank : diagnosis.ranks) {
    if (rank.steps.empty()) return;
    const bool begin = &rank == &diagnosis.ranks.front();
    first = begin ? rank.steps.front().number : std::max(first, rank.steps.front().number);
    last = begin ? rank.steps.back().number : std::min(last, rank.steps.back().number);
    const auto span = static_cast<std::size_t>(rank.steps.back().number - rank.steps.front().number);
    known = known && rank.steps.front().number >= 0 && span + 1 == rank.steps.size();
  }
  if (!known || first > last) return;
  diagnosis.step_count = static_cast<std::size_t>(last - first + 1);
  for (RankDiagnosis& rank : diagnosis.ranks) {
    rank.first_common = static_cast<std::size_t>(first - rank.steps.front().number);
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

void list_unrecognised(const Trace& trace, Diagnosis& diagnosis) {
  constexpr std::int64_t kPercent = 1;                                    // of a step
  std::map<std::string_view, std::map<std::size_t, std::int64_t>> times;  // by name and rank, per step
  for (std::size_t i = 0; i < trace.ranks.size(); ++i) {
    const RankSummary& rank = trace.ranks[i];
    const auto steps = static_cast<std::int64_t>(std::max<std::size_t>(rank.steps.size(), 1));
    for (const trace::NameTotal& total : rank.unrecognised) {
      times[rank.names.text(total.name)][i] += total.total / steps;
    }
  }
  for (const auto& [name, of_rank] : times) {
    UnrecognisedKernel kernel{std::string(name), 0, static_cast<std::uint32_t>(of_rank.size())};
    for (const auto& [rank, time] : of_rank) kernel.per_step += time;
    kernel.per_step /= static_cast<std::int64_t>(of_rank.size());
    if (kernel.per_step * 100 >= diagnosis.median_step * kPercent) diagnosis.unrecognised.push_back(std::move(kernel));
  }
  std::stable_sort(diagnosis.unrecognised.begin(), diagnosis.unrecognised.end(),
                   [](const UnrecognisedKernel& a, const UnrecognisedKernel& b) { return a.per_step > b.per_step; });
}

}  // namespace

const Finding* main_finding(const Diagnosis& diagnosis) {
  // Percent of a step: what costs less is part of any healthy job, unless one rank or link stands out.
  constexpr std::int64_t kHealthy = 8, kClear = 10;
  const auto costs = [&](const Finding& finding, std::int64_t percent) {
    return finding.cost * 100 >= diagnosis.median_step * percent;
  };
  const Finding* person = nullptr;  // somebody, or some link
  const Finding* matter = nullptr;  // something of the whole job
  const Finding* clean = nullptr;
  for (const Finding& finding : diagnosis.findings) {  // most costly first
    const bool late = finding.kind == "late_rank" || finding.kind == "late_host";
    if (late || finding.kind == "slow_link" || finding.kind == "rotating_late_rank") {
      if (person == nullptr) person = &finding;
    } else if (finding.kind == "no_culprit") {
      clean = &finding;
    } else if (matter == nullptr && costs(finding, kHealthy)) {
      matter = &finding;
    }
  }
  if (person != nullptr && (matter == nullptr || costs(*person, kClear))) return person;
  if (matter != nullptr) return matter;
  if (clean != nullptr) return clean;
  return diagnosis.findings.empty() ? nullptr : &diagnosis.findings.front();
}

Diagnosis diagnose(const trace::Trace& trace) {
  Diagnosis diagnosis;
  fill_ranks(trace, diagnosis);
  find_common_steps(diagnosis);
  find_late_rank(trace, diagnosis);
  fill_tables(trace, diagnosis);
  list_unrecognised(trace, diagnosis);
  find_findings(trace, diagnosis);
  return diagnosis;
}

}  // namespace paceline::diagnose
