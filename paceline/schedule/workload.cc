#include "paceline/schedule/workload.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>

#include "paceline/base/error.h"

namespace paceline::schedule {
namespace {

using base::Nanos;

constexpr std::int64_t kSecond = 1'000'000'000;
constexpr std::int64_t kMostGpus = 1'000'000;

/// Reads the cells of one row; the first that cannot be used is remembered as what is wrong with the row.
class RowReader {
 public:
  explicit RowReader(const Csv::Row& row) : row_(row) {}

  std::size_t columns() const { return row_.cells.size(); }
  std::string_view text(std::size_t column) {
    if (column < row_.cells.size()) return row_.cells[column];
    fail(fmt::format("has {} columns, expected at least {}", row_.cells.size(), column + 1));
    return {};
  }
  std::int64_t integer(std::size_t column, std::string_view what, std::int64_t least, std::int64_t most) {
    const std::string_view cell = trim(text(column));
    auto value = parse_integer(cell);
    if (!value)
      if (const auto number = parse_number(cell); number && *number == std::int64_t(*number))
        value = std::int64_t(*number);
    if (value && *value >= least && *value <= most) return *value;
    fail(fmt::format("{} '{}' is not a whole number from {}", what, cell, least));
    return least;
  }
  double number(std::size_t column, std::string_view what) {
    const std::string_view cell = trim(text(column));
    const auto value = parse_number(cell);
    if (value && *value >= 0) return *value;
    fail(fmt::format("{} '{}' is not a number from 0", what, cell));
    return 0;
  }
  Nanos seconds(std::size_t column, std::string_view what) {
    const std::string_view cell = trim(text(column));
    const auto value = parse_seconds(cell);
    if (value && value->count() >= 0) return *value;
    fail(fmt::format("{} '{}' is not a number of seconds from 0", what, cell));
    return Nanos(0);
  }
  Nanos timestamp(std::size_t column, std::string_view what) {
    const std::string_view cell = trim(text(column));
    if (const auto value = parse_timestamp(cell)) return *value;
    fail(fmt::format("{} '{}' is not a time like 2025-01-31T12:00:00", what, cell));
    return Nanos(0);
  }
  void fail(std::string what) {
    if (fault_.empty()) fault_ = std::move(what);
  }
  const std::string& fault() const { return fault_; }

 private:
  const Csv::Row& row_;
  std::string fault_;
};

/// Applies `read` to every row; it returns false for rows that are no job (and no fault either).
Workload read_rows(const Csv& csv, const std::function<bool(RowReader&, JobRequest&)>& read) {
  Workload workload{std::filesystem::path(csv.name()).stem().string(), {}, {}};
  for (const Csv::Row& row : csv.rows()) {
    RowReader reader(row);
    JobRequest job;
    job.line = row.line;
    const bool is_job = read(reader, job);
    if (!reader.fault().empty())
      workload.problems.push_back({csv.where(row), reader.fault()});
    else if (is_job)
      workload.jobs.push_back(std::move(job));
  }
  return workload;
}

Workload read_pollux(const Csv& csv) {
  const std::size_t name = csv.column("name"), time = csv.column("time"), application = csv.column("application"),
                    gpus = csv.column("num_replicas"), batch = csv.column("batch_size");
  return read_rows(csv, [&](RowReader& row, JobRequest& job) {
    job.name = row.text(name);
    job.submit = row.seconds(time, "time");
    job.application = row.text(application);
    job.gpus = static_cast<int>(row.integer(gpus, "num_replicas", 1, kMostGpus));
    job.batch = static_cast<int>(row.integer(batch, "batch_size", 1, 1'000'000'000));
    return true;
  });
}

Workload read_philly(const Csv& csv) {
  const std::size_t time = csv.column("timestamp"), duration = csv.column("duration"), gpus = csv.column("num_gpus");
  const auto cluster = csv.find_column("cluster");
  int number = 0;
  return read_rows(csv, [&](RowReader& row, JobRequest& job) {
    job.name = fmt::format("job-{}", ++number);
    job.submit = row.timestamp(time, "timestamp");
    job.duration = row.seconds(duration, "duration");
    job.gpus = static_cast<int>(row.integer(gpus, "num_gpus", 1, kMostGpus));
    if (cluster) job.queue = row.text(*cluster);
    return true;
  });
}

Workload read_tiresias(const Csv& csv) {
  const std::size_t id = csv.column("job_id"), gpus = csv.column("num_gpu"), submit = csv.column("submit_time"),
                    steps = csv.column("iterations"), model = csv.column("model_name"),
                    duration = csv.column("duration");
  return read_rows(csv, [&](RowReader& row, JobRequest& job) {
    job.name = row.text(id);
    job.gpus = static_cast<int>(row.integer(gpus, "num_gpu", 1, kMostGpus));
    job.submit = row.seconds(submit, "submit_time");
    job.steps = row.number(steps, "iterations");
    job.application = row.text(model);
    job.duration = row.seconds(duration, "duration");
    return true;
  });
}

Workload read_alibaba(const Csv& csv) {
  const std::size_t name = csv.column("name"), gpus = csv.column("num_gpu"), created = csv.column("creation_time"),
                    deleted = csv.column("deletion_time"), qos = csv.column("qos");
  const auto scheduled = csv.find_column("scheduled_time");
  return read_rows(csv, [&](RowReader& row, JobRequest& job) {
    job.name = row.text(name);
    job.gpus = static_cast<int>(row.integer(gpus, "num_gpu", 0, kMostGpus));
    job.submit = row.seconds(created, "creation_time");
    job.queue = row.text(qos);
    const Nanos end = row.seconds(deleted, "deletion_time");
    Nanos start = job.submit;
    if (scheduled && !row.text(*scheduled).empty()) start = row.seconds(*scheduled, "scheduled_time");
    job.start = start, job.end = end, job.duration = end - start;
    if (job.duration.count() < 0) row.fail("was deleted before it was scheduled");
    return job.gpus > 0;
  });
}

Workload read_gavel(const Csv& csv) {
  int number = 0;
  return read_rows(csv, [&](RowReader& row, JobRequest& job) {
    struct Places {
      std::size_t steps, gpus, arrival;
    };
    // 12 columns: Shockwave; 10: Gavel; 7: Gavel's Philly traces.
    const Places places = row.columns() >= 12   ? Places{5, 6, 11}
                          : row.columns() >= 10 ? Places{5, 6, 9}
                                                : Places{4, 6, 5};
    job.name = fmt::format("job-{}", number++);
    job.application = row.text(0);
    job.steps = row.number(places.steps, "steps");
    job.submit = row.seconds(places.arrival, "arrival");
    job.gpus = static_cast<int>(row.integer(places.gpus, "scale factor", 1, kMostGpus));
    return true;
  });
}

Workload read_swf(const Csv& csv) {
  return read_rows(csv, [&](RowReader& row, JobRequest& job) {
    std::vector<std::string_view> cells;
    for (std::string_view cell : split(row.text(0), ' '))
      if (!trim(cell).empty()) cells.push_back(trim(cell));
    if (cells.empty() || cells[0].starts_with(';')) return false;
    if (cells.size() < 11) {
      row.fail(fmt::format("has {} fields, expected 18", cells.size()));
      return false;
    }
    const auto field = [&](std::size_t i, std::string_view what) {
      const auto value = parse_number(cells[i]);
      if (!value) row.fail(fmt::format("field {} ({}) '{}' is not a number", i + 1, what, cells[i]));
      return value.value_or(0);
    };
    const double submit = field(1, "submit"), wait = field(2, "wait"), run = field(3, "run time"),
                 allocated = field(4, "processors"), wanted = field(7, "processors asked for"),
                 limit = field(8, "time asked for");
    job.name = cells[0];
    const auto whole = [](double seconds) { return Nanos(static_cast<std::int64_t>(seconds) * kSecond); };
    if (submit < 0) row.fail("submit time is negative");
    if (!row.fault().empty()) return false;
    if (run < 0) return false;  // never ran
    job.submit = whole(submit), job.duration = whole(run);
    if (wait >= 0) job.start = job.submit + whole(wait), job.end = job.start + job.duration;
    if (limit > 0) job.limit = whole(limit);
    const double gpus = wanted > 0 ? wanted : allocated;
    if (gpus < 1 || gpus > kMostGpus) row.fail("asks for no processors");
    job.gpus = static_cast<int>(gpus);
    if (cells.size() > 14) job.queue = cells[14];
    return true;
  });
}

Workload read_sacct(const Csv& csv) {
  const std::size_t id = csv.column("JobID"), submit = csv.column("Submit"), start = csv.column("Start"),
                    end = csv.column("End");
  const auto name = csv.find_column("JobName"), partition = csv.find_column("Partition"),
             alloc = csv.find_column("AllocTRES"), requested = csv.find_column("ReqTRES"),
             limit = csv.find_column("Timelimit"), limit_raw = csv.find_column("TimelimitRaw");
  if (!alloc && !requested)
    throw Error(ErrorKind::kBadInput, csv.name() + ":1",
                "has neither AllocTRES nor ReqTRES; run sacct -P -o "
                "JobID,JobName,Partition,Submit,Start,End,Timelimit,AllocTRES,State");
  return read_rows(csv, [&](RowReader& row, JobRequest& job) {
    const std::string_view jobid = row.text(id);
    if (jobid.find('.') != std::string_view::npos) return false;  // a step
    job.name = jobid;
    if (name) job.application = row.text(*name);
    if (partition) job.queue = row.text(*partition);
    job.submit = row.timestamp(submit, "Submit");
    if (trim(row.text(start)) == "Unknown" || trim(row.text(start)) == "None") return false;  // never started
    job.start = row.timestamp(start, "Start");
    if (trim(row.text(end)) == "Unknown") return false;  // still runs
    job.end = row.timestamp(end, "End");
    job.duration = job.end - job.start;
    if (row.fault().empty() && job.duration.count() < 0) row.fail("ended before it started");
    if (row.fault().empty() && job.start < job.submit) row.fail("started before it was submitted");
    std::optional<int> gpus;
    if (alloc) gpus = gpus_of_tres(row.text(*alloc));
    if (!gpus && requested) gpus = gpus_of_tres(row.text(*requested));
    if (!gpus) return false;  // a job without GPUs
    job.gpus = *gpus;
    const auto column = limit_raw ? limit_raw : limit;
    if (column)
      if (const auto time = parse_slurm_duration(trim(row.text(*column)))) job.limit = *time;
    return true;
  });
}

std::string first_line(const std::string& text) {
  return text.substr(0, text.find('\n'));
}

WorkloadFormat sniff(const std::string& text, const std::string& where) {
  const std::string line = first_line(text);
  const auto has = [&](std::string_view word) { return line.find(word) != std::string::npos; };
  if (has("num_replicas") && has("application")) return WorkloadFormat::kPollux;
  if (has("arrival_slot")) return WorkloadFormat::kPsTrace;
  if (has("timestamp") && has("num_gpus")) return WorkloadFormat::kPhilly;
  if (has("num_gpu") && has("iterations")) return WorkloadFormat::kTiresias;
  if (has("gpu_milli") && has("creation_time")) return WorkloadFormat::kAlibaba;
  if (has("JobID") && has("|")) return WorkloadFormat::kSacct;
  if (std::count(line.begin(), line.end(), '\t') >= 6) return WorkloadFormat::kGavel;
  if (line.starts_with(";") || parse_number(split(trim(line), ' ').front())) return WorkloadFormat::kSwf;
  throw Error(ErrorKind::kBadInput, where,
              "is no workload that is known here: Pollux, Philly, Tiresias, Alibaba, Gavel, SWF, sacct -P, DL2");
}

}  // namespace

std::string name_of(WorkloadFormat format) {
  constexpr std::array<const char*, 8> kNames{"pollux", "philly", "tiresias", "alibaba",
                                              "gavel",  "swf",    "sacct",    "dl2"};
  return kNames[static_cast<std::size_t>(format)];
}

WorkloadFormat sniff_workload(const std::filesystem::path& path) {
  return sniff(read_document_text(path), path.string());
}

Workload read_workload(const std::filesystem::path& path) {
  std::string text = read_document_text(path);
  const std::string name = path.string();
  Workload workload;
  switch (sniff(text, name)) {
    case WorkloadFormat::kPollux:
      workload = read_pollux(Csv(std::move(text), name));
      break;
    case WorkloadFormat::kPhilly:
      workload = read_philly(Csv(std::move(text), name));
      break;
    case WorkloadFormat::kTiresias:
      workload = read_tiresias(Csv(std::move(text), name));
      break;
    case WorkloadFormat::kAlibaba:
      workload = read_alibaba(Csv(std::move(text), name));
      break;
    case WorkloadFormat::kGavel:
      workload = read_gavel(Csv(std::move(text), name, '\t', false));
      break;
    case WorkloadFormat::kSwf:
      workload = read_swf(Csv(std::move(text), name, '\n', false));
      break;
    case WorkloadFormat::kSacct:
      workload = read_sacct(Csv(std::move(text), name, '|'));
      break;
    case WorkloadFormat::kPsTrace:
      throw Error(ErrorKind::kBadInput, name, "is a trace of parameter-server jobs, not of jobs with GPUs");
  }
  std::stable_sort(workload.jobs.begin(), workload.jobs.end(),
                   [](const JobRequest& a, const JobRequest& b) { return a.submit < b.submit; });
  return workload;
}

Workload read_pollux_workload(const std::filesystem::path& path) {
  return read_pollux(Csv::from_file(path));
}

std::optional<Nanos> parse_timestamp(std::string_view text) {
  if (text.size() < 19 || text[4] != '-' || text[7] != '-' || (text[10] != ' ' && text[10] != 'T') || text[13] != ':' ||
      text[16] != ':')
    return std::nullopt;
  std::array<std::int64_t, 6> parts;
  constexpr std::array<std::pair<int, int>, 6> kPlaces{{{0, 4}, {5, 2}, {8, 2}, {11, 2}, {14, 2}, {17, 2}}};
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const auto value = parse_integer(
        text.substr(static_cast<std::size_t>(kPlaces[i].first), static_cast<std::size_t>(kPlaces[i].second)));
    if (!value || *value < 0) return std::nullopt;
    parts[i] = *value;
  }
  const std::chrono::year_month_day date{std::chrono::year(static_cast<int>(parts[0])),
                                         std::chrono::month(static_cast<unsigned>(parts[1])),
                                         std::chrono::day(static_cast<unsigned>(parts[2]))};
  if (!date.ok() || parts[3] > 23 || parts[4] > 59 || parts[5] > 60) return std::nullopt;
  const std::int64_t days = std::chrono::sys_days(date).time_since_epoch().count();
  return Nanos((((days * 24 + parts[3]) * 60 + parts[4]) * 60 + parts[5]) * kSecond);
}

std::string format_timestamp(Nanos time) {
  const std::int64_t seconds = time.count() / kSecond;
  const std::chrono::year_month_day date{std::chrono::sys_days(std::chrono::days(seconds / 86400))};
  const std::int64_t day = seconds % 86400;
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}", static_cast<int>(date.year()),
                     static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()), day / 3600, day / 60 % 60,
                     day % 60);
}

std::optional<int> gpus_of_tres(std::string_view tres) {
  std::optional<int> sum;
  for (std::string_view part : split(tres, ',')) {
    const std::size_t equals = part.find('=');
    if (equals == std::string_view::npos || !part.starts_with("gres/gpu")) continue;
    const auto count = parse_integer(part.substr(equals + 1));
    if (!count || *count < 1 || *count > kMostGpus) continue;
    // "gres/gpu" is the sum of the "gres/gpu:type" beside it.
    if (part.substr(0, equals) == "gres/gpu") return static_cast<int>(*count);
    sum = sum.value_or(0) + static_cast<int>(*count);
  }
  return sum;
}

std::optional<Nanos> parse_slurm_duration(std::string_view text) {
  std::int64_t days = 0;
  const std::size_t dash = text.find('-');
  if (dash != std::string_view::npos) {
    const auto value = parse_integer(text.substr(0, dash));
    if (!value || *value < 0 || *value > 100'000) return std::nullopt;
    days = *value;
    text = text.substr(dash + 1);
  }
  std::vector<std::int64_t> parts;
  for (std::string_view part : split(text, ':')) {
    const auto value = parse_integer(part);
    if (!value || *value < 0 || *value > 1'000'000'000) return std::nullopt;
    parts.push_back(*value);
  }
  std::int64_t seconds = 0;
  if (parts.size() == 3)
    seconds = (parts[0] * 60 + parts[1]) * 60 + parts[2];
  else if (dash != std::string_view::npos && parts.size() <= 2)
    seconds = parts[0] * 3600 + (parts.size() == 2 ? parts[1] * 60 : 0);
  else if (parts.size() == 2)
    seconds = parts[0] * 60 + parts[1];
  else if (parts.size() == 1)
    seconds = parts[0] * 60;
  else
    return std::nullopt;
  return Nanos((days * 86400 + seconds) * kSecond);
}

std::string to_sacct(const Workload& workload) {
  std::string text = "JobID|JobName|Partition|Submit|Start|End|Timelimit|AllocTRES|State\n";
  for (const JobRequest& job : workload.jobs) {
    if (job.start.count() < 0) continue;
    const std::int64_t limit = job.limit.count() / kSecond;
    text += fmt::format("{}|{}|{}|{}|{}|{}|{}-{:02}:{:02}:{:02}|billing={},gres/gpu={}|COMPLETED\n", job.name,
                        job.application, job.queue, format_timestamp(job.submit), format_timestamp(job.start),
                        format_timestamp(job.end), limit / 86400, limit / 3600 % 24, limit / 60 % 60, limit % 60,
                        job.gpus, job.gpus);
  }
  return text;
}

}  // namespace paceline::schedule
