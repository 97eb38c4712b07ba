#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "paceline/base/units.h"
#include "paceline/schedule/csv.h"

namespace paceline::schedule {

/// One job as somebody submitted it. Fields a format lacks keep their zero.
struct JobRequest {
  std::string name{};
  base::Nanos submit{0};
  std::string application{};  // model or command that tells how fast it runs
  int gpus = 1;
  int batch = 0;
  base::Nanos duration{0};  // run time when it is rigid
  double steps = 0;         // work, in steps of `application`
  std::string queue{};      // partition, virtual cluster or tenant
  double weight = 1;
  base::Nanos start{-1}, end{-1};  // what really happened, -1 unknown
  base::Nanos limit{0};            // time limit that the user asked for
  int line = 0;
};

/// The jobs in submission order (ties in file order), and the lines that could not be used.
struct Workload {
  std::string name;
  std::vector<JobRequest> jobs;
  std::vector<Problem> problems;
};

/// What a file's first line says it is.
enum class WorkloadFormat : std::uint8_t { kPollux, kPhilly, kTiresias, kAlibaba, kGavel, kSwf, kSacct, kPsTrace };
std::string name_of(WorkloadFormat format);
/// Throws Error(kBadInput) that names the formats when the file is none of them.
WorkloadFormat sniff_workload(const std::filesystem::path& path);

/// Any of these, in order of submission. Lines that cannot be used become problems; the rest is kept.
///   Pollux    name,time,application,num_replicas,batch_size; also Sia's workloads
///   Philly    timestamp,duration,num_gpus,gpu_time,cluster
///   Tiresias  job_id,num_gpu,submit_time,iterations,model_name,duration,interval
///   Alibaba   pods of cluster-trace-gpu-v2023; those without a GPU are left out
///   Gavel     tab-separated .trace with 10 columns, Philly-derived with 7, Shockwave's with 12
///   SWF       the Standard Workload Format of the Parallel Workloads Archive; processors count as GPUs
///   sacct     sacct -P with JobID,Submit,Start,End,State and AllocTRES or ReqTRES; steps are left out
Workload read_workload(const std::filesystem::path& path);

/// name,time,application,num_replicas,batch_size; time in seconds. Jobs keep the order of the file.
Workload read_pollux_workload(const std::filesystem::path& path);

/// "2017-10-09 07:01:55" or with T, as if in UTC.
std::optional<base::Nanos> parse_timestamp(std::string_view text);
std::string format_timestamp(base::Nanos time);
/// GPUs in a TRES string: "billing=8,cpu=8,gres/gpu=4,gres/gpu:a100=4" gives 4.
std::optional<int> gpus_of_tres(std::string_view tres);
/// Slurm's [days-]hours:minutes:seconds or minutes.
std::optional<base::Nanos> parse_slurm_duration(std::string_view text);

/// What `sacct -P` would print of jobs that started and ended.
std::string to_sacct(const Workload& workload);

}  // namespace paceline::schedule
