#include "paceline/trace/understand/linked_rows.h"

#include <algorithm>

#include "paceline/trace/understand/host.h"
#include "paceline/trace/understand/launches.h"

namespace paceline::trace {
namespace {

void classify_device(LinkedRows& rows) {
  const Slices& slices = rows.trace.slices;
  std::vector<signed char> kind_of_name(rows.trace.names.size(), -1);
  for (Row row = 0; row < slices.size(); ++row) {
    const Category category = slices.category[row];
    if (!is_device_work(category)) continue;
    if (category != Category::kKernel) {
      rows.use[row] = Use::kCopy;
      continue;
    }
    signed char& kind = kind_of_name[base::index(slices.name[row])];
    if (kind < 0) kind = static_cast<signed char>(kind_of_kernel(rows.trace.name(row)));
    const bool compute = static_cast<CollectiveKind>(kind) == CollectiveKind::kNone;
    rows.use[row] = compute ? Use::kCompute : Use::kCommunication;
  }
}

/// A CPU job computes in its operators, on the threads that drive the training.
void classify_host(LinkedRows& rows) {
  const Slices& slices = rows.trace.slices;
  std::vector<bool> trains(rows.trace.lanes.size(), false);
  for (const LaneId lane : training_threads(rows.trace)) trains[base::index(lane)] = true;
  for (Row row = 0; row < slices.size(); ++row) {
    const Category category = slices.category[row];
    if (category != Category::kUserAnnotation && category != Category::kCpuOp) continue;
    const std::string_view name = rows.trace.name(row);
    if (is_host_collective(name)) {
      rows.use[row] = Use::kCommunication;
    } else if (category == Category::kCpuOp && trains[base::index(slices.lane[row])]) {
      const bool waits = name.starts_with("c10d::") || name == "record_param_comms";
      if (!waits) rows.use[row] = Use::kCompute;
    }
  }
}

}  // namespace

LinkedRows::LinkedRows(const RankTrace& rows)
    : trace(rows), launcher(link_launches(rows)), parent(link_parents(rows)), use(rows.slices.size(), Use::kNone) {
  const Slices& slices = rows.slices;
  has_device = std::any_of(slices.category.begin(), slices.category.end(), is_device_work);
  has_device ? classify_device(*this) : classify_host(*this);
  used.reserve(static_cast<std::size_t>(
      std::count_if(use.begin(), use.end(), [](Use used_for) { return used_for != Use::kNone; })));
  for (Row row = 0; row < slices.size(); ++row) {
    if (use[row] != Use::kNone) used.push_back(row);
  }
  std::stable_sort(used.begin(), used.end(), [&](Row a, Row b) { return slices.start[a] < slices.start[b]; });
}

std::int64_t LinkedRows::launch_time(Row row) const {
  return launcher[row] == kNoRow ? kNotLaunched : trace.slices.start[launcher[row]];
}

NameId LinkedRows::span_around(Row row) const {
  for (; row != kNoRow; row = parent[row]) {
    const std::string_view name = trace.name(row);
    if (trace.slices.category[row] == Category::kUserAnnotation && !name.starts_with("ProfilerStep#") &&
        !is_communication_span(name)) {
      return trace.slices.name[row];
    }
  }
  return base::kNone<NameId>;
}

Row LinkedRows::operator_around(Row row) const {
  while (row != kNoRow && trace.slices.category[row] != Category::kCpuOp) row = parent[row];
  return row;
}

Activity LinkedRows::idle_cause(Interval gap) const {
  if (!has_device) return Activity::kHostOp;
  const auto next = std::lower_bound(used.begin(), used.end(), gap.end,
                                     [&](Row row, std::int64_t time) { return trace.slices.start[row] < time; });
  if (next == used.end() || next == used.begin()) return Activity::kHostOp;
  if (launch_time(*next) > gap.begin) return Activity::kHostOp;
  return gap.length() < kKernelGap ? Activity::kLaunchGap : Activity::kHeldBack;
}

}  // namespace paceline::trace
