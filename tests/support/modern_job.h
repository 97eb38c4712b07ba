// Whole training jobs as their profilers record them, beside the truth of what happened: a discrete simulation of every
// rank's host threads and device streams in which collectives are rendezvous, so that lateness travels by waiting as it
// does in real jobs. For tests and for the programs of the acceptance runs.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace paceline::test_support {

enum class Topology { kDdp, kFsdp1, kFsdp2, kHsdp, kTpFsdp, kPipeline };

/// What is wrong with the job; one thing at a time.
enum class Fault {
  kNone,
  kClock,            // all kernels of a rank slower, compute-bound ones more than memory-bound ones
  kMemoryBandwidth,  // only the memory-bound kernels of a rank slower
  kHostOp,           // one operator slow on the host of a rank
  kHostPause,        // the host of a rank stops between operators, as garbage collection does
  kInput,            // a rank waits for its batch
  kAllocator,        // a rank's allocator frees, synchronises and allocates inside the step
  kLinkInter,        // the network between two hosts
  kLinkIntra,        // the links inside a host
  kLinkRail,         // one rail: the links of all GPUs with one local index
  kImbalance,        // a rank has more tokens
  kWholeHost,        // all ranks of a host: clocks (even seeds) or input (odd seeds)
  kLaunchBound,      // all ranks: kernels smaller than what it takes to launch them
  kIssuedLate,       // all ranks: communication could hide behind computation but is issued behind it
  kTooBig,           // all ranks: communication is issued in time but takes longer than the computation
};

/// How a fault of one rank is spread over the steps; the time lost over all steps is the same.
enum class Pattern { kPersistent, kRotating, kOutlier };

/// How collective kernels are called.
enum class KernelNames { kNcclDev, kNccl, kSymmetric, kRccl };

/// How files are named.
enum class Layout {
  kFlat,         // rank-3.json
  kTorchtitan,   // iteration_10/rank3_trace.json
  kTensorBoard,  // <host>_<process>.<ms>.pt.trace.json
  kBrackets,     // trace.rank[3].json
  kMerged,       // one file with all ranks, the process ids of rank r moved on by r * 10^8
};

struct ModernJob {
  Topology topology = Topology::kDdp;
  int ranks = 8;
  int steps = 6;
  int first_step = 10;
  int layers = 6;         // of the whole model
  int filler = 0;         // further host operators a kernel, to reach the size of traces with stacks
  int gpus_per_host = 0;  // 0 = a quarter of the ranks, at least 2, at most 8
  int shard_hosts = 0;    // hosts in a sharding group of hsdp and tp_fsdp; 0 = as the topology has it
  int micro_batches = 8;  // of a pipeline
  std::uint64_t seed = 1;
  Fault fault = Fault::kNone;
  Pattern pattern = Pattern::kPersistent;
  int fault_rank = -1;                     // -1 = drawn
  double severity = 1.0;                   // multiplies what the fault adds
  double noise = 0.01;                     // standard deviation of kernel times
  std::int64_t clock_offset = 40'000'000;  // ns; hosts' clocks are up to this far from the true time

  bool sequence = true;       // "Seq"
  bool cut_lists = true;      // rank lists end after 30 entries, as PyTorch cuts them
  bool global_ranks = true;   // "Global rank start" and "Global rank stride"
  bool kernel_args = true;    // process group arguments on kernels; else only on record_param_comms
  bool group_config = true;   // distributedInfo lists the ranks of each group
  bool sibling_names = true;  // groups of one mesh dimension share one process group name, as split_group makes them
  bool cuda_graphs = false;   // a graph a layer and direction, except where tensor parallelism parts the layer
  bool flows = false;         // flow events between launches and kernels
  KernelNames kernel_names = KernelNames::kNcclDev;
  Layout layout = Layout::kFlat;
};

struct GroupTruth {
  std::string name, description;
  std::vector<int> ranks;
  std::int64_t collectives = 0;  // those that all members take part in, point to point not counted
};

struct JobTruth {
  ModernJob job;
  std::string kind, verdict_class, pattern;  // as diagnose calls them; the class is empty without a culprit
  int rank = -1;                             // -1 = none
  std::vector<std::string> fault_hosts;
  int rail = -1;
  std::vector<std::string> host_of_rank;
  std::vector<std::int64_t> clock_offset;  // ns, of each rank
  std::vector<GroupTruth> groups;
  std::int64_t slow_group = -1;                 // index in groups of the first slow one
  std::int64_t injected_per_step = 0;           // ns; 0 where the fault is a factor
  double factor = 1;                            // of what is slower
  std::int64_t step_ns = 0, clean_step_ns = 0;  // mean step as it is, and without the fault
  std::int64_t events = 0, bytes = 0;
};

/// Writes the traces and truth.json into `folder`, which is made. The same job gives the same bytes.
/// Throws std::invalid_argument for sizes that the topology does not allow.
JobTruth write_job(const ModernJob& job, const std::filesystem::path& folder);

/// JSON text of truth.json.
std::string truth_json(const JobTruth& truth);

/// Names as on the command line of make_job ("fsdp2", "host_op", "rotating", ...); std::invalid_argument for others.
Topology topology_named(std::string_view name);
Fault fault_named(std::string_view name);
Pattern pattern_named(std::string_view name);
KernelNames kernel_names_named(std::string_view name);
Layout layout_named(std::string_view name);
std::string_view name_of(Topology topology);
std::string_view name_of(Fault fault);
std::string_view name_of(Pattern pattern);

}  // namespace paceline::test_support
