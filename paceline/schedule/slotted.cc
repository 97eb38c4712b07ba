#include "paceline/schedule/slotted.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "paceline/base/error.h"
#include "paceline/base/statistics.h"

namespace paceline::schedule {

PsTrace read_ps_trace(const std::filesystem::path& path) {
  const Csv csv = Csv::from_file(path);
  const std::array<std::size_t, 9> columns{csv.column("job"),
                                           csv.column("arrival_slot"),
                                           csv.column("type"),
                                           csv.column("num_epochs"),
                                           csv.column("epoch_size_batches"),
                                           csv.column("worker_cpu"),
                                           csv.column("worker_gpu_slots"),
                                           csv.column("ps_cpu"),
                                           csv.column("ps_gpu_slots")};
  const std::size_t model = csv.column("model");
  PsTrace trace{path.stem().string(), {}, {}};
  for (const Csv::Row& row : csv.rows()) {
    std::array<double, 9> x{};
    std::string bad = row.cells.size() <= model ? "has too few columns" : "";
    for (std::size_t i = 0; i < columns.size() && bad.empty(); ++i) {
      const auto value = columns[i] < row.cells.size() ? parse_number(row.cells[columns[i]]) : std::nullopt;
      if (!value || *value < 0 || *value > 1e9)
        bad = fmt::format("column {} is not a number from 0", columns[i] + 1);
      else
        x[i] = *value;
    }
    if (bad.empty() && (x[3] <= 0 || x[4] <= 0)) bad = "has no work";
    if (!bad.empty()) {
      trace.problems.push_back({csv.where(row), bad});
      continue;
    }
    const auto whole = [&](std::size_t i) { return static_cast<int>(x[i]); };
    trace.jobs.push_back({whole(0),
                          whole(1),
                          whole(2),
                          std::string(row.cells[model]),
                          x[3],
                          x[4],
                          {whole(5), whole(6)},
                          {whole(7), whole(8)},
                          row.line});
  }
  return trace;
}

PsSpeedTable::PsSpeedTable(const std::map<std::string, PsSpeed>& speeds, int most_tasks)
    : most_tasks_(most_tasks), side_(static_cast<std::size_t>(most_tasks) + 2) {
  for (const auto& [name, speed] : speeds) {
    names_.push_back(name);
    for (std::size_t servers = 0; servers < side_; ++servers)
      for (std::size_t workers = 0; workers < side_; ++workers)
        table_.push_back(servers == 0 || workers == 0
                             ? 0.0
                             : std::max(0.0, speed.at(static_cast<double>(servers), static_cast<double>(workers))));
  }
}

std::optional<std::size_t> PsSpeedTable::find(const std::string& model) const {
  const auto at = std::find(names_.begin(), names_.end(), model);
  if (at == names_.end()) return std::nullopt;
  return static_cast<std::size_t>(at - names_.begin());
}

SlottedCluster::SlottedCluster(const PsTrace& trace, const PsSpeedTable& speeds, SlottedOptions options)
    : jobs_(trace.jobs), speeds_(&speeds), options_(options) {
  for (PsJob& job : jobs_) {
    job.arrival *= options_.slots_per_arrival;
    const auto model = speeds.find(job.model);
    if (!model)
      throw Error(ErrorKind::kBadInput, fmt::format("{}:{}", trace.name, job.line),
                  fmt::format("unknown model '{}'", job.model));
    const PsDemand pair = job.worker + job.server;
    if (pair.cpu > options_.node.cpu || pair.gpu_slots > options_.node.gpu_slots)
      throw Error(ErrorKind::kBadInput, fmt::format("{}:{}", trace.name, job.line),
                  "a worker and a server of this job do not fit on a node");
    model_.push_back(*model);
  }
  std::stable_sort(jobs_.begin(), jobs_.end(), [](const PsJob& a, const PsJob& b) {
    return std::tie(a.arrival, a.id) < std::tie(b.arrival, b.id);
  });
  for (std::size_t i = 0; i < jobs_.size(); ++i) model_[i] = *speeds.find(jobs_[i].model);
  states_.resize(jobs_.size());
  unfinished_ = jobs_.size();
  capacity_ = {options_.node.cpu * options_.nodes, options_.node.gpu_slots * options_.nodes};
  free_ = capacity_;
}

bool SlottedCluster::begin_slot() {
  if (unfinished_ == 0) return false;
  ++slot_;
  if (slot_ >= options_.give_up)
    throw Error(ErrorKind::kInfeasible, fmt::format("slot {}", slot_),
                fmt::format("{} jobs never finish under this rule", unfinished_));
  used_.assign(static_cast<std::size_t>(options_.nodes), {});
  by_use_.clear();
  granted_.clear();
  for (int node = 0; node < options_.nodes; ++node) by_use_.insert(by_use_.end(), {0, node});
  free_ = capacity_;
  std::erase_if(active_, [&](std::uint32_t i) { return states_[i].completion_time.has_value(); });
  while (next_arrival_ < jobs_.size() && jobs_[next_arrival_].arrival <= slot_)
    active_.push_back(static_cast<std::uint32_t>(next_arrival_++));
  for (std::uint32_t i : active_) {
    JobState& state = states_[i];
    state.last_workers = state.workers, state.last_servers = state.servers;
    state.workers = state.servers = 0;
    state.share = 0;
  }
  return true;
}

double SlottedCluster::dominant_share(const PsDemand& demand) const {
  return std::max(static_cast<double>(demand.cpu) / capacity_.cpu,
                  static_cast<double>(demand.gpu_slots) / capacity_.gpu_slots);
}

PsDemand SlottedCluster::demand_of(std::uint32_t i, Grant grant) const {
  const PsJob& job = jobs_[i];
  if (grant == Grant::kBundle) return job.worker + job.server;
  return grant == Grant::kServer ? job.server : job.worker;
}

void SlottedCluster::book(std::uint32_t i, Grant grant, int node, int sign) {
  const PsDemand one = demand_of(i, grant), demand{sign * one.cpu, sign * one.gpu_slots};
  PsDemand& used = used_[static_cast<std::size_t>(node)];
  by_use_.erase({used.sum(), node});
  used = used + demand;
  by_use_.insert({used.sum(), node});
  free_ = {free_.cpu - demand.cpu, free_.gpu_slots - demand.gpu_slots};
  JobState& state = states_[i];
  if (grant != Grant::kServer) state.workers += sign;
  if (grant != Grant::kWorker) state.servers += sign;
  const PsJob& job = jobs_[i];
  state.share = dominant_share({state.workers * job.worker.cpu + state.servers * job.server.cpu,
                                state.workers * job.worker.gpu_slots + state.servers * job.server.gpu_slots});
}

bool SlottedCluster::grant(std::uint32_t i, Grant grant, NodeChoice choice) {
  const PsDemand demand = demand_of(i, grant);
  auto node = by_use_.begin();
  const auto fits = [&](int n) {
    const PsDemand after = used_[static_cast<std::size_t>(n)] + demand;
    return after.cpu <= options_.node.cpu && after.gpu_slots <= options_.node.gpu_slots;
  };
  if (choice == NodeChoice::kLeastUsedOnly) {
    if (!fits(node->second)) return false;
  } else {
    if (free_.cpu < demand.cpu || free_.gpu_slots < demand.gpu_slots) return false;
    while (node != by_use_.end() && !fits(node->second)) {
      // Nodes come by use: once even the sum does not fit, no later node has room.
      if (node->first + demand.sum() > options_.node.sum()) return false;
      ++node;
    }
    if (node == by_use_.end()) return false;
  }
  if (watch_) watch_(i, grant);
  granted_.push_back({i, grant, node->second});
  book(i, grant, node->second, +1);
  return true;
}

void SlottedCluster::undo() {
  PL_CHECK(!granted_.empty());
  const Granted last = granted_.back();
  granted_.pop_back();
  book(last.job, last.grant, last.node, -1);
}

double SlottedCluster::finish_slot() {
  double reward = 0;
  for (std::uint32_t i : active_) {
    JobState& state = states_[i];
    double epochs = std::max(0.0, speed(i, state.servers, state.workers));
    if (epochs <= 0) continue;
    double lost = 0;  // share of the slot
    if (state.workers != state.last_workers || state.servers != state.last_servers)
      lost = std::min(1.0, options_.restart_seconds / options_.slot_seconds);
    epochs *= 1 - lost;
    const double left = remaining(i);
    if (epochs >= left) {
      const double share = lost + (1 - lost) * left / epochs;
      state.completion_time = slot_ + share - jobs_[i].arrival;
      makespan_ = std::max(makespan_, slot_ + share);
      state.progress = jobs_[i].epochs;
      --unfinished_;
      epochs = left;
    } else {
      state.progress += epochs;
    }
    reward += epochs / jobs_[i].epochs;
  }
  reward_sum_ += reward;
  return reward;
}

double SlottedCluster::average_completion_time() const {
  double sum = 0;
  for (const JobState& state : states_) sum += state.completion_time.value_or(0);
  return states_.empty() ? 0 : sum / static_cast<double>(states_.size());
}

SlottedResult simulate_slotted(const PsTrace& trace, const PsSpeedTable& speeds, SlottedPolicy& policy,
                               const SlottedOptions& options) {
  SlottedCluster cluster(trace, speeds, options);
  while (cluster.begin_slot()) {
    policy.allocate(cluster);
    cluster.finish_slot();
  }
  SlottedResult result{cluster.average_completion_time(), cluster.makespan(), cluster.mean_reward(), {}};
  for (std::uint32_t i = 0; i < cluster.size(); ++i)
    result.completion_times.push_back(*cluster.state(i).completion_time);
  return result;
}

}  // namespace paceline::schedule
