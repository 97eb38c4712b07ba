#include "paceline/schedule/workload.h"

#include <fmt/core.h>

#include <algorithm>

namespace paceline::schedule {

Workload read_pollux_workload(const std::filesystem::path& path) {
  const Csv csv = Csv::from_file(path);
  const std::size_t name = csv.column("name"), time = csv.column("time"), application = csv.column("application"),
                    gpus = csv.column("num_replicas"), batch = csv.column("batch_size");
  Workload workload{path.stem().string(), {}, {}};
  for (const Csv::Row& row : csv.rows()) {
    const auto bad = [&](std::string what) { workload.problems.push_back({csv.where(row), std::move(what)}); };
    if (row.cells.size() <= std::max({name, time, application, gpus, batch})) {
      bad(fmt::format("has {} columns, expected 5", row.cells.size()));
      continue;
    }
    const auto submit = parse_seconds(row.cells[time]);
    const auto replicas = parse_integer(row.cells[gpus]), size = parse_integer(row.cells[batch]);
    if (!submit || submit->count() < 0)
      bad(fmt::format("time '{}' is not a number of seconds from 0", row.cells[time]));
    else if (!replicas || *replicas < 1 || *replicas > 1'000'000)
      bad(fmt::format("num_replicas '{}' is not a count of GPUs", row.cells[gpus]));
    else if (!size || *size < 1 || *size > 1'000'000'000)
      bad(fmt::format("batch_size '{}' is not a batch size", row.cells[batch]));
    else {
      JobRequest job;
      job.name = row.cells[name];
      job.submit = *submit;
      job.application = row.cells[application];
      job.gpus = static_cast<int>(*replicas);
      job.batch = static_cast<int>(*size);
      job.line = row.line;
      workload.jobs.push_back(std::move(job));
    }
  }
  return workload;
}

}  // namespace paceline::schedule
