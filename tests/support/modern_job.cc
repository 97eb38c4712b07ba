#include "tests/support/modern_job.h"

#include <fmt/core.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <utility>

#include "paceline/base/parallel.h"
#include "tests/support/job_model.h"
#include "tests/support/kineto_writer.h"

namespace paceline::test_support {
namespace {

template <class Enum, std::size_t kCount>
Enum find_name(const std::array<std::pair<std::string_view, Enum>, kCount>& table, std::string_view name) {
  for (const auto& [text, value] : table) {
    if (text == name) return value;
  }
  std::string known;
  for (const auto& [text, value] : table) known += fmt::format("{}{}", known.empty() ? "" : ", ", text);
  throw std::invalid_argument(fmt::format("'{}' is none of: {}", name, known));
}

template <class Enum, std::size_t kCount>
std::string_view find_value(const std::array<std::pair<std::string_view, Enum>, kCount>& table, Enum value) {
  for (const auto& [text, known] : table) {
    if (known == value) return text;
  }
  return {};
}

constexpr std::array<std::pair<std::string_view, Topology>, 6> kTopologies{{{"ddp", Topology::kDdp},
                                                                            {"fsdp1", Topology::kFsdp1},
                                                                            {"fsdp2", Topology::kFsdp2},
                                                                            {"hsdp", Topology::kHsdp},
                                                                            {"tp_fsdp", Topology::kTpFsdp},
                                                                            {"pipeline", Topology::kPipeline}}};
constexpr std::array<std::pair<std::string_view, Fault>, 15> kFaults{{{"none", Fault::kNone},
                                                                      {"clock", Fault::kClock},
                                                                      {"memory_bandwidth", Fault::kMemoryBandwidth},
                                                                      {"host_op", Fault::kHostOp},
                                                                      {"host_pause", Fault::kHostPause},
                                                                      {"input", Fault::kInput},
                                                                      {"allocator", Fault::kAllocator},
                                                                      {"link_inter", Fault::kLinkInter},
                                                                      {"link_intra", Fault::kLinkIntra},
                                                                      {"link_rail", Fault::kLinkRail},
                                                                      {"imbalance", Fault::kImbalance},
                                                                      {"whole_host", Fault::kWholeHost},
                                                                      {"launch_bound", Fault::kLaunchBound},
                                                                      {"issued_late", Fault::kIssuedLate},
                                                                      {"too_big", Fault::kTooBig}}};
constexpr std::array<std::pair<std::string_view, Pattern>, 3> kPatterns{
    {{"persistent", Pattern::kPersistent}, {"rotating", Pattern::kRotating}, {"outlier", Pattern::kOutlier}}};
constexpr std::array<std::pair<std::string_view, KernelNames>, 4> kKernelNames{
    {{"nccl_dev", KernelNames::kNcclDev},
     {"nccl", KernelNames::kNccl},
     {"nccl_symmetric", KernelNames::kSymmetric},
     {"rccl", KernelNames::kRccl}}};
constexpr std::array<std::pair<std::string_view, Layout>, 5> kLayouts{{{"flat", Layout::kFlat},
                                                                       {"torchtitan", Layout::kTorchtitan},
                                                                       {"tensorboard", Layout::kTensorBoard},
                                                                       {"brackets", Layout::kBrackets},
                                                                       {"merged", Layout::kMerged}}};

constexpr std::int64_t kBegin = KinetoWriter::kBaseTime + 86'400'000'000'000;
constexpr std::int64_t kProcessStride = 100'000'000;  // between the process ids of ranks merged into one file

std::string host_name(int host) {
  return fmt::format("node{:02}", host + 1);
}

/// The verdict that diagnose must reach.
std::string verdict_kind(const ModernJob& job) {
  const bool rotating = job.pattern == Pattern::kRotating;
  switch (job.fault) {
    case Fault::kNone:
      return "no_culprit";
    case Fault::kWholeHost:
      return rotating ? "rotating_late_host" : "late_host";
    case Fault::kLinkInter:
    case Fault::kLinkIntra:
    case Fault::kLinkRail:
      return "slow_link";
    case Fault::kLaunchBound:
      return "host_bound";
    case Fault::kIssuedLate:
    case Fault::kTooBig:
      return "exposed_transfer";
    default:
      return rotating ? "rotating_late_rank" : "late_rank";
  }
}

bool of_one_rank(Fault fault) {
  switch (fault) {
    case Fault::kClock:
    case Fault::kMemoryBandwidth:
    case Fault::kHostOp:
    case Fault::kHostPause:
    case Fault::kInput:
    case Fault::kAllocator:
    case Fault::kImbalance:
      return true;
    default:
      return false;
  }
}

/// One trace file, or several ranks' share in one.
class TraceFile {
 public:
  TraceFile(const std::filesystem::path& path, const Style& style, int rank, int world) {
    std::filesystem::create_directories(path.parent_path());
    file_.reset(std::fopen(path.c_str(), "wb"));
    if (!file_) throw std::runtime_error("cannot write " + path.string());
    std::setvbuf(file_.get(), nullptr, _IOFBF, 1 << 16);
    writer_ = std::make_unique<KinetoWriter>(
        [this](std::string_view part) {
          bytes_ += static_cast<std::int64_t>(part.size());
          if (std::fwrite(part.data(), 1, part.size(), file_.get()) != part.size())
            throw std::runtime_error("disk full");
        },
        style, rank, world);
  }

  KinetoWriter& writer() { return *writer_; }
  void finish() {
    writer_->finish();
    if (std::fflush(file_.get()) != 0) throw std::runtime_error("disk full");
  }
  std::int64_t bytes() const { return bytes_; }

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  std::unique_ptr<std::FILE, Close> file_;
  std::unique_ptr<KinetoWriter> writer_;
  std::int64_t bytes_ = 0;
};

class JobWriter {
 public:
  JobWriter(const ModernJob& job, const Engine& engine, const JobTruth& truth, const std::filesystem::path& folder)
      : job_(job), engine_(engine), truth_(truth), mesh_(mesh_of(job)), events_(engine.machines.size(), 0) {
    Style style;
    style.sequence = job.sequence;
    describe_groups();
    if (job.layout == Layout::kMerged) {
      files_.push_back(std::make_unique<TraceFile>(folder / "merged.json", style, -1, job.ranks));
    }
    for (int rank = 0; rank < job.ranks; ++rank) {
      if (job.layout != Layout::kMerged) {
        style.process_groups = group_config(rank);
        files_.push_back(std::make_unique<TraceFile>(folder / file_name(rank), style, rank, job.ranks));
      }
      KinetoWriter& writer = writer_of(rank);
      if (job.layout == Layout::kMerged) {
        for (const std::int64_t id : {process(rank), device(rank)}) {
          writer.raw(fmt::format(
              R"({{"name": "process_name", "ph": "M", "ts": 0, "pid": {}, "tid": 0, "args": {{"name": "rank {}"}}}})",
              id, rank));
        }
      }
      writer.thread_name(process(rank), process(rank), fmt::format("thread {} (python)", process(rank)));
      writer.thread_name(process(rank), thread(rank, LaneKind::kBackward), "thread (pt_autograd_0)");
      for (const LaneKind lane :
           {LaneKind::kCompute, LaneKind::kComm1, LaneKind::kComm2, LaneKind::kComm3, LaneKind::kComm4}) {
        writer.thread_name(device(rank), stream(lane), fmt::format("stream {}", stream(lane)));
      }
    }
  }

  void write_step() {
    const auto write = [&](std::size_t rank) {
      const Machine& machine = *engine_.machines[rank];
      for (const Event& event : machine.events) write_event(machine, event);
      events_[rank] += static_cast<std::int64_t>(machine.events.size());
    };
    if (job_.layout == Layout::kMerged) {
      for (std::size_t rank = 0; rank < engine_.machines.size(); ++rank) write(rank);
    } else {
      base::parallel_for(engine_.machines.size(), write);
    }
  }

  void finish(JobTruth& truth) {
    for (const auto& file : files_) {
      file->finish();
      truth.bytes += file->bytes();
    }
    for (const std::int64_t count : events_) truth.events += count;
  }

 private:
  KinetoWriter& writer_of(int rank) {
    return files_[job_.layout == Layout::kMerged ? 0 : static_cast<std::size_t>(rank)]->writer();
  }
  std::int64_t shift(int rank) const { return job_.layout == Layout::kMerged ? kProcessStride * rank : 0; }
  std::int64_t process(int rank) const { return shift(rank) + 31'000 + rank * 17; }
  std::int64_t device(int rank) const { return shift(rank) + rank % mesh_.gpus_per_host; }
  std::int64_t thread(int rank, LaneKind lane) const {
    return lane == LaneKind::kBackward ? process(rank) + 421 : process(rank);
  }
  static int stream(LaneKind lane) {
    static constexpr std::array<int, kLanes> kStreams{0, 0, 7, 24, 28, 32, 36, 40};
    return kStreams[static_cast<std::size_t>(lane)];
  }

  std::string file_name(int rank) const {
    switch (job_.layout) {
      case Layout::kTorchtitan:
        return fmt::format("iteration_{}/rank{}_trace.json", job_.first_step + job_.steps, rank);
      case Layout::kTensorBoard:
        return fmt::format("{}_{}.{}.pt.trace.json", truth_.host_of_rank[static_cast<std::size_t>(rank)], process(rank),
                           1'735'776'000'123 + rank * 7);
      case Layout::kBrackets:
        return fmt::format("trace.rank[{}].json", rank);
      default:
        return fmt::format("rank-{}.json", rank);
    }
  }

  /// Rank lists as PyTorch writes them: cut behind 30 entries.
  std::string rank_list(const std::vector<int>& ranks, bool cut) const {
    constexpr std::size_t kLongest = 30;
    if (!cut || ranks.size() <= kLongest) return fmt::format("[{}]", fmt::join(ranks, ", "));
    return fmt::format("[{}, ...]", fmt::join(ranks.begin(), ranks.begin() + kLongest, ", "));
  }

  /// The arguments that are the same for all collectives of a group.
  void describe_groups() {
    for (const Group& group : engine_.groups) {
      std::string text = fmt::format(
          R"("Group size": {}, "Process Group Name": "{}", "Process Group Description": "{}", "Process Group Ranks": "{}")",
          group.ranks.size(), group.name, group.description, rank_list(group.ranks, job_.cut_lists));
      const int stride = group.ranks.size() > 1 ? group.ranks[1] - group.ranks[0] : 1;
      if (job_.global_ranks)
        text += fmt::format(R"(, "Global rank start": {}, "Global rank stride": {})", group.ranks[0], stride);
      group_args_.push_back(std::move(text));
    }
  }

  /// As PyTorch lists its groups: without ranks where all take part.
  std::string group_config(int rank) const {
    if (!job_.group_config) return {};
    std::string list;
    for (const Group& group : engine_.groups) {
      if (std::find(group.ranks.begin(), group.ranks.end(), rank) == group.ranks.end()) continue;
      const bool all = group.ranks.size() == static_cast<std::size_t>(job_.ranks);
      list += fmt::format(
          R"({}{{"pg_name": "{}", "pg_desc": "{}", "backend_config": "cuda:nccl", "pg_size": {}, "ranks": [{}]}})",
          list.empty() ? "" : ", ", group.name, group.description, group.ranks.size(),
          all ? std::string() : fmt::format("{}", fmt::join(group.ranks, ", ")));
    }
    return "[" + list + "]";
  }

  void append_facts(const Machine& machine, const CommFacts& facts, std::string& args) const {
    fmt::format_to(std::back_inserter(args),
                   R"(, "Collective name": "{}", "In msg nelems": {}, "Out msg nelems": {}, "dtype": "BFloat16", )"
                   R"("In split size": "[]", "Out split size": "[]", "Rank": {}, )",
                   facts.collective, facts.in_elements, facts.out_elements, machine.rank);
    args += group_args_[static_cast<std::size_t>(facts.group)];
    if (facts.source >= 0)
      fmt::format_to(std::back_inserter(args), R"(, "Src Rank": {}, "Dst Rank": {})", facts.source, facts.destination);
    if (job_.sequence) fmt::format_to(std::back_inserter(args), R"(, "Seq": {})", facts.sequence);
  }

  void write_event(const Machine& machine, const Event& event) {
    const int rank = machine.rank;
    const bool device_side = is_stream(event.lane);
    TrueSlice slice;
    slice.name = event.name;
    slice.category = event.category;
    slice.process = device_side ? device(rank) : process(rank);
    slice.thread = device_side ? stream(event.lane) : thread(rank, event.lane);
    slice.start = kBegin + event.start + truth_.clock_offset[static_cast<std::size_t>(rank)];
    slice.duration = event.duration;
    slice.correlation = event.correlation;
    slice.args = fmt::format("\"External id\": {}", event.external);
    if (device_side) {
      fmt::format_to(std::back_inserter(slice.args), ", \"device\": {}, \"context\": 1, \"stream\": {}",
                     rank % mesh_.gpus_per_host, stream(event.lane));
    }
    if (!event.args.empty()) slice.args.append(", ").append(event.args);
    if (event.facts >= 0 && (!device_side || job_.kernel_args)) {
      append_facts(machine, machine.facts[static_cast<std::size_t>(event.facts)], slice.args);
    }
    writer_of(rank).slice(slice);
  }

  const ModernJob& job_;
  const Engine& engine_;
  const JobTruth& truth_;
  Mesh mesh_;
  std::vector<std::string> group_args_;
  std::vector<std::unique_ptr<TraceFile>> files_;
  std::vector<std::int64_t> events_;
};

/// Mean length of the steps that `run` simulates.
std::int64_t mean_step(const JobModel& model) {
  std::int64_t sum = 0;
  for (const auto& [begin, end] : model.steps()) sum += end - begin;
  return model.steps().empty() ? 0 : sum / static_cast<std::int64_t>(model.steps().size());
}

void place_ranks(const ModernJob& job, JobTruth& truth) {
  const Mesh mesh = mesh_of(job);
  base::Rng chance(job.seed * 104'729 + 3);
  std::int64_t of_host = 0;
  for (int rank = 0; rank < job.ranks; ++rank) {
    if (rank % mesh.gpus_per_host == 0) of_host = chance.between(-job.clock_offset, job.clock_offset);
    truth.host_of_rank.push_back(host_name(rank / mesh.gpus_per_host));
    truth.clock_offset.push_back(of_host + chance.between(-2'000, 2'000));
  }
}

void tell_fault(const JobModel& model, const Engine& engine, JobTruth& truth) {
  const ModernJob& job = truth.job;
  truth.kind = verdict_kind(job);
  truth.verdict_class = job.fault == Fault::kNone ? "" : name_of(job.fault);
  truth.pattern = job.fault == Fault::kNone ? "" : name_of(job.pattern);
  truth.factor = model.factor();
  truth.injected_per_step = model.injected();
  truth.rail = model.rail();
  const bool moves = job.pattern == Pattern::kRotating;
  if (of_one_rank(job.fault) && !moves) truth.rank = model.fault_rank();
  if (truth.rank >= 0) truth.fault_hosts = {truth.host_of_rank[static_cast<std::size_t>(truth.rank)]};
  const int host = model.fault_host();
  if ((job.fault == Fault::kWholeHost || job.fault == Fault::kLinkIntra) && !moves)
    truth.fault_hosts = {host_name(host)};
  if (job.fault == Fault::kLinkInter) truth.fault_hosts = {host_name(host / 2 * 2), host_name(host / 2 * 2 + 1)};
  if (!model.slow_groups().empty()) truth.slow_group = model.slow_groups().front();
  for (const Group& group : engine.groups) {
    truth.groups.push_back({group.name, group.description, group.ranks, group.point_to_point ? 0 : group.collectives});
  }
}

}  // namespace

JobTruth write_job(const ModernJob& job, const std::filesystem::path& folder) {
  JobTruth truth;
  truth.job = job;
  place_ranks(job, truth);
  if (job.fault != Fault::kNone) {
    Engine engine(job.ranks);
    JobModel model(job, engine, /*with_fault=*/false);
    engine.run([&](Machine& machine) { return model.program(machine); }, [] {});
    truth.clean_step_ns = mean_step(model);
  }
  Engine engine(job.ranks);
  JobModel model(job, engine, /*with_fault=*/true);
  std::filesystem::create_directories(folder);
  JobWriter writer(job, engine, truth, folder);
  engine.run([&](Machine& machine) { return model.program(machine); }, [&] { writer.write_step(); });
  writer.finish(truth);
  truth.step_ns = mean_step(model);
  if (job.fault == Fault::kNone) truth.clean_step_ns = truth.step_ns;
  tell_fault(model, engine, truth);
  const std::string text = truth_json(truth);
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen((folder / "truth.json").c_str(), "wb"),
                                                             &std::fclose);
  if (!file || std::fwrite(text.data(), 1, text.size(), file.get()) != text.size()) {
    throw std::runtime_error("cannot write truth.json");
  }
  return truth;
}

std::string truth_json(const JobTruth& truth) {
  const ModernJob& job = truth.job;
  std::vector<std::string> hosts, fault_hosts, groups;
  for (const std::string& host : truth.host_of_rank) hosts.push_back(test_support::quoted(host));
  for (const std::string& host : truth.fault_hosts) fault_hosts.push_back(test_support::quoted(host));
  for (const GroupTruth& group : truth.groups) {
    groups.push_back(fmt::format(R"(    {{"name": {}, "description": {}, "collectives": {}, "ranks": [{}]}})",
                                 test_support::quoted(group.name), test_support::quoted(group.description),
                                 group.collectives, fmt::join(group.ranks, ", ")));
  }
  const auto text_or_null = [](std::string_view text) {
    return text.empty() ? std::string("null") : test_support::quoted(text);
  };
  const auto number_or_null = [](std::int64_t number) {
    return number < 0 ? std::string("null") : fmt::format("{}", number);
  };
  return fmt::format(
      R"({{
  "topology": {}, "ranks": {}, "steps": {}, "seed": {},
  "fault": {}, "pattern": {},
  "verdict": {{"kind": {}, "class": {}, "rank": {}, "hosts": [{}], "pattern": {}}},
  "rail": {}, "slow_group": {}, "factor": {:.4f}, "injected_per_step_ns": {},
  "step_ns": {}, "clean_step_ns": {},
  "events": {}, "bytes": {},
  "host_of_rank": [{}],
  "clock_offset_ns": [{}],
  "groups": [
{}
  ]
}}
)",
      test_support::quoted(name_of(job.topology)), job.ranks, job.steps, job.seed,
      test_support::quoted(name_of(job.fault)), test_support::quoted(name_of(job.pattern)),
      test_support::quoted(truth.kind), text_or_null(truth.verdict_class), number_or_null(truth.rank),
      fmt::join(fault_hosts, ", "), text_or_null(truth.pattern), number_or_null(truth.rail),
      number_or_null(truth.slow_group), truth.factor, truth.injected_per_step, truth.step_ns, truth.clean_step_ns,
      truth.events, truth.bytes, fmt::join(hosts, ", "), fmt::join(truth.clock_offset, ", "), fmt::join(groups, ",\n"));
}

Topology topology_named(std::string_view name) {
  return find_name(kTopologies, name);
}
Fault fault_named(std::string_view name) {
  return find_name(kFaults, name);
}
Pattern pattern_named(std::string_view name) {
  return find_name(kPatterns, name);
}
KernelNames kernel_names_named(std::string_view name) {
  return find_name(kKernelNames, name);
}
Layout layout_named(std::string_view name) {
  return find_name(kLayouts, name);
}
std::string_view name_of(Topology topology) {
  return find_value(kTopologies, topology);
}
std::string_view name_of(Fault fault) {
  return find_value(kFaults, fault);
}
std::string_view name_of(Pattern pattern) {
  return find_value(kPatterns, pattern);
}

}  // namespace paceline::test_support
