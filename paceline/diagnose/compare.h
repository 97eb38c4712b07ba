#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "paceline/base/json.h"
#include "paceline/diagnose/faults.h"
#include "paceline/trace/understand/trace.h"

namespace paceline::diagnose {

/// What a run's critical path consists of, small enough to keep beside the run: the other side of a later comparison.
struct Profile {
  struct Charge {
    std::string group;      // "kernels", "communication", "copies", "host", "input", "allocator", "gaps"
    std::string op;         // of kernels: the operator that launched them, or the kernel itself when unknown
    std::string what;       // operator and shape, collective and layer, host operator, ...
    std::int64_t time = 0;  // ns on the path
    std::int64_t count = 0;
    std::vector<std::int64_t> time_of_rank;  // by rank number
  };
  std::string source;
  std::uint32_t ranks = 0;
  std::int64_t steps = 0;
  std::int64_t length = 0;  // ns of the path; the charges and clock_error add up to it
  std::int64_t clock_error = 0;
  std::vector<Charge> charges;     // by group, then what
  std::vector<std::string> names;  // of all operators and kernels on any rank, on the path or not; sorted
};

Profile profile_of(const trace::Trace& trace, const std::string& source);

base::Json to_json(const Profile& profile);
/// Reads what to_json wrote (schema paceline/baseline/1).
Profile read_profile(const std::string& path);

/// One cause of the difference of the step time, in ns per step; positive is slower than the baseline.
struct Change {
  std::string group, what;
  std::int64_t before = 0, after = 0, change = 0;
  std::int64_t rank = -1;  // the rank on which nearly all of it lies; -1 = spread
};

struct Comparison {
  std::int64_t step_before = 0, step_after = 0, change = 0;  // ns per step, along the critical path
  std::vector<Change> groups;      // `change` adds up to the whole change exactly, with not_explained
  std::vector<Change> changes;     // each in one of the groups, largest first
  std::int64_t not_explained = 0;  // clocks and rounding
};

/// Where the difference comes from. Operators match by name and shape, kernels by the operator that launched them, so
/// that renamed kernels are no change. Kernels of operators that the other run has nowhere are in the groups "added
/// work" and "removed work". The runs may differ in ranks, steps and hosts.
Comparison compare(const Profile& before, const Profile& after);

base::Json to_json(const Comparison& comparison);

}  // namespace paceline::diagnose
