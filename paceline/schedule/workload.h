#pragma once
#include <cstdint>
#include <filesystem>
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

/// name,time,application,num_replicas,batch_size; time in seconds. Jobs keep the order of the file.
Workload read_pollux_workload(const std::filesystem::path& path);

}  // namespace paceline::schedule
