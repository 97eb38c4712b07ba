#include "tests/support/job_model.h"

#include <fmt/core.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <stdexcept>

namespace paceline::test_support {
namespace {

enum Dimension { kWorld, kPipeline, kReplica, kShard, kTensor };

enum class Bound { kCompute, kMemory };

/// One operator of a transformer layer and its kernel. Times of about 4096 tokens of 4096 features on an H100.
struct Operator {
  std::string_view op, inner, kernel;
  Bound bound;
  double us;
  std::string_view shapes;                // {0} = tokens
  int span;                               // index in kSpans
  bool gathers = false, reduces = false;  // with tensor parallelism: all-gather before, reduce-scatter behind
};
constexpr std::array<std::string_view, 5> kSpans{"attention_norm", "attention", "ffn_norm", "feed_forward", "output"};
constexpr std::array<Operator, 11> kLayer{{
    {"aten::rms_norm", "aten::_fused_rms_norm",
     "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::BFloat16, float>(int, float, "
     "c10::BFloat16 const*)",
     Bound::kMemory, 110, "[[1, {0}, 4096], [4096], []]", 0},
    {"aten::linear", "aten::mm", "nvjet_tst_256x128_64x4_2x1_v_bz_coopA_TNT", Bound::kCompute, 400,
     "[[{0}, 4096], [4096, 6144]]", 1, true, false},
    {"aten::mul", "aten::mul",
     "void at::native::elementwise_kernel<128, 4, at::native::rotary>(int, at::native::rotary)", Bound::kMemory, 90,
     "[[1, {0}, 32, 64], [1, {0}, 1, 64]]", 1},
    {"aten::scaled_dot_product_attention", "aten::_flash_attention_forward",
     "void flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4, false, false, cutlass::bfloat16_t> "
     ">(flash::Flash_fwd_params)",
     Bound::kCompute, 350, "[[1, 32, {0}, 128], [1, 8, {0}, 128], [1, 8, {0}, 128]]", 1},
    {"aten::linear", "aten::mm", "nvjet_tst_128x256_64x4_1x2_h_bz_coopA_TNN", Bound::kCompute, 160,
     "[[{0}, 4096], [4096, 4096]]", 1, false, true},
    {"aten::add", "aten::add",
     "void at::native::vectorized_elementwise_kernel<8, at::native::CUDAFunctor_add<c10::BFloat16>, std::array<char*, "
     "3ul> >(int)",
     Bound::kMemory, 70, "[[1, {0}, 4096], [1, {0}, 4096], []]", 1},
    {"aten::rms_norm", "aten::_fused_rms_norm",
     "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::BFloat16, float>(int, float, "
     "c10::BFloat16 const*)",
     Bound::kMemory, 110, "[[1, {0}, 4096], [4096], []]", 2},
    {"aten::linear", "aten::mm", "nvjet_tst_192x192_64x4_2x1_v_bz_coopB_TNT", Bound::kCompute, 900,
     "[[{0}, 4096], [4096, 28672]]", 3, true, false},
    {"aten::silu", "aten::silu",
     "void at::native::vectorized_elementwise_kernel<8, at::native::silu_kernel, std::array<char*, 2ul> >(int)",
     Bound::kMemory, 170, "[[1, {0}, 14336]]", 3},
    {"aten::linear", "aten::mm", "nvjet_tst_128x256_64x4_1x2_h_bz_coopA_TNT", Bound::kCompute, 450,
     "[[{0}, 14336], [14336, 4096]]", 3, false, true},
    {"aten::add", "aten::add",
     "void at::native::vectorized_elementwise_kernel<8, at::native::CUDAFunctor_add<c10::BFloat16>, std::array<char*, "
     "3ul> >(int)",
     Bound::kMemory, 70, "[[1, {0}, 4096], [1, {0}, 4096], []]", 3},
}};
constexpr double kTokens = 4096;
constexpr double kLayerForward = 2880;  // us, the sum of the above
constexpr double kLayerComm = 620;      // us to gather or scatter a layer's parameters
constexpr double kTensorComm = 45;      // us
constexpr double kPointToPoint = 160;   // us
constexpr std::int64_t kLayerElements = 218'112'000;

constexpr LaneKind kGatherStream = LaneKind::kComm1, kReduceStream = LaneKind::kComm2,
                   kReplicaStream = LaneKind::kComm3, kTensorStream = LaneKind::kComm4;

}  // namespace

Mesh mesh_of(const ModernJob& job) {
  Mesh mesh;
  mesh.gpus_per_host = job.gpus_per_host > 0 ? job.gpus_per_host : std::clamp(job.ranks / 4, 2, 8);
  const int hosts = job.ranks / mesh.gpus_per_host;
  if (job.ranks < 2 || hosts * mesh.gpus_per_host != job.ranks) {
    throw std::invalid_argument(fmt::format("{} ranks do not fill hosts of {}", job.ranks, mesh.gpus_per_host));
  }
  // A slow network between two hosts shows only where some groups cross it and others do not.
  const int shard_hosts = job.shard_hosts > 0 ? job.shard_hosts : job.fault == Fault::kLinkInter ? 2 : 0;
  switch (job.topology) {
    case Topology::kDdp:
      mesh.replicas = job.ranks;
      break;
    case Topology::kFsdp1:
    case Topology::kFsdp2:
      mesh.shards = job.ranks;
      break;
    case Topology::kHsdp:
      mesh.shards = mesh.gpus_per_host * std::max(shard_hosts, 1);
      mesh.replicas = job.ranks / mesh.shards;
      break;
    case Topology::kTpFsdp:
      mesh.tensors = mesh.gpus_per_host;
      mesh.shards = shard_hosts > 0 ? shard_hosts : hosts;
      mesh.replicas = hosts / mesh.shards;
      break;
    case Topology::kPipeline:
      mesh.pipeline = hosts;
      mesh.replicas = mesh.gpus_per_host;
      break;
  }
  if (mesh.pipeline * mesh.replicas * mesh.shards * mesh.tensors != job.ranks) {
    throw std::invalid_argument("the sharding groups do not divide the ranks");
  }
  return mesh;
}

JobModel::JobModel(const ModernJob& job, Engine& engine, bool with_fault)
    : job_(job), engine_(engine), with_fault_(with_fault), mesh_(mesh_of(job)) {
  make_groups();
  choose_fault();
}

// ---------------------------------------------------------------- groups

void JobModel::make_groups() {
  std::vector<int> all(static_cast<std::size_t>(job_.ranks));
  std::iota(all.begin(), all.end(), 0);
  int names = 0;
  const auto add = [&](std::string name, std::string description, std::vector<int> ranks, int dimension) {
    for (const int rank : ranks) {
      group_of_[static_cast<std::size_t>(dimension)][static_cast<std::size_t>(rank)] =
          static_cast<int>(engine_.groups.size());
    }
    Group group;
    group.name = std::move(name);
    group.description = std::move(description);
    group.ranks = std::move(ranks);
    group.point_to_point = dimension == kPipeline;
    engine_.groups.push_back(std::move(group));
  };
  for (auto& list : group_of_) list.assign(all.size(), -1);
  add("0", "default_pg", all, kWorld);
  const std::array<int, 5> extent{1, mesh_.pipeline, mesh_.replicas, mesh_.shards, mesh_.tensors};
  const std::array<int, 5> stride{0, mesh_.replicas * mesh_.shards * mesh_.tensors, mesh_.shards * mesh_.tensors,
                                  mesh_.tensors, 1};
  const std::array<const char*, 5> what{"", "mesh_pp", "mesh_dp_replicate", "mesh_dp_shard", "mesh_tp"};
  for (const int dimension : {kPipeline, kReplica, kShard, kTensor}) {
    const int size = extent[static_cast<std::size_t>(dimension)], step = stride[static_cast<std::size_t>(dimension)];
    if (size == 1) continue;
    if (size == job_.ranks && job_.topology != Topology::kFsdp2) {  // the default group serves
      group_of_[static_cast<std::size_t>(dimension)] = group_of_[kWorld];
      continue;
    }
    ++names;
    for (int first = 0; first < job_.ranks; ++first) {
      if (first / step % size != 0) continue;
      std::vector<int> ranks;
      for (int i = 0; i < size; ++i) ranks.push_back(first + i * step);
      add(fmt::format("{}", names), what[static_cast<std::size_t>(dimension)], std::move(ranks), dimension);
      if (!job_.sibling_names) ++names;
    }
  }
}

// ---------------------------------------------------------------- faults

void JobModel::choose_fault() {
  base::Rng chance(job_.seed * 7919 + 17);
  const auto ranks = static_cast<std::uint64_t>(job_.ranks);
  fault_rank_ = static_cast<int>(chance.below(ranks));
  factor_ = 1.15 + 0.15 * chance.uniform();
  outlier_step_ = static_cast<int>(chance.below(static_cast<std::uint64_t>(std::max(job_.steps, 1))));
  by_input_ = job_.seed % 2 == 1;
  // Only the first stage of a pipeline loads batches.
  if (job_.fault == Fault::kInput && mesh_.pipeline > 1) fault_rank_ %= job_.ranks / mesh_.pipeline;
  const bool host_input = job_.fault == Fault::kWholeHost && by_input_;
  if (host_input && mesh_.pipeline > 1) by_input_ = false;
  if (job_.fault_rank >= 0) fault_rank_ = job_.fault_rank;
  if (fault_rank_ >= job_.ranks) throw std::invalid_argument("there is no such rank");
  for (stride_ = job_.ranks / 2 - 1; stride_ > 1 && std::gcd(stride_, job_.ranks) != 1;) --stride_;
  stride_ = std::max(stride_, 1);
  const double work_us =
      3 * kLayerForward * job_.layers * (mesh_.pipeline > 1 ? double(job_.micro_batches) / mesh_.pipeline + 1 : 1.0);
  const auto scaled = [&](double factor) { return 1 + (factor - 1) * job_.severity; };
  switch (job_.fault) {
    case Fault::kClock:
      factor_ = scaled(factor_);
      break;
    case Fault::kMemoryBandwidth:
      factor_ = scaled(1.3 + 2 * (factor_ - 1.15));
      break;
    case Fault::kImbalance:
      factor_ = scaled(factor_ + 0.05);
      break;
    case Fault::kWholeHost:
      factor_ = scaled(factor_);
      if (by_input_) injected_ = static_cast<std::int64_t>(work_us * 1000 * 0.12 * job_.severity);
      break;
    case Fault::kHostOp:
    case Fault::kHostPause:
    case Fault::kInput:
      injected_ = static_cast<std::int64_t>(work_us * 1000 * (0.10 + (factor_ - 1.15) / 3) * job_.severity);
      break;
    case Fault::kLinkInter:
    case Fault::kLinkIntra:
    case Fault::kLinkRail:
      // Where much computation hides the collectives of the slow group, a link must be slower to be felt.
      factor_ = scaled(job_.topology == Topology::kHsdp && job_.fault == Fault::kLinkRail        ? 14.0
                       : job_.topology == Topology::kPipeline && job_.fault == Fault::kLinkIntra ? 18.0
                                                                                                 : 6.0);
      // Gradients of a pipeline are brought together behind the last backward pass of the first stage.
      if (job_.topology == Topology::kPipeline && job_.fault == Fault::kLinkIntra) fault_rank_ %= mesh_.gpus_per_host;
      break;
    default:
      factor_ = 1;
  }
  const int host = fault_host(), gpus = mesh_.gpus_per_host;
  rail_ = job_.fault == Fault::kLinkRail ? fault_rank_ % gpus : -1;
  const bool link =
      job_.fault == Fault::kLinkInter || job_.fault == Fault::kLinkIntra || job_.fault == Fault::kLinkRail;
  for (std::size_t g = 0; link && g < engine_.groups.size(); ++g) {
    const std::vector<int>& members = engine_.groups[g].ranks;
    if (g == 0) continue;  // its collectives are tiny
    const int first_host = members.front() / gpus, last_host = members.back() / gpus;
    const bool crosses = first_host != last_host;
    const bool has_fault = std::find(members.begin(), members.end(), fault_rank_) != members.end();
    const bool one_rail =
        std::all_of(members.begin(), members.end(), [&](int rank) { return rank % gpus == members.front() % gpus; });
    const int partner = host / 2 * 2;  // the pair (partner, partner + 1)
    const auto on = [&](int wanted) {
      return std::any_of(members.begin(), members.end(), [&](int rank) { return rank / gpus == wanted; });
    };
    bool slow = false;
    if (job_.fault == Fault::kLinkIntra) slow = !crosses && first_host == host;
    if (job_.fault == Fault::kLinkRail) slow = crosses && one_rail && has_fault;
    if (job_.fault == Fault::kLinkInter && !engine_.groups[g].point_to_point) {
      slow = crosses && members.size() <= static_cast<std::size_t>(2 * gpus) && on(partner) && on(partner + 1);
    }
    if (job_.fault == Fault::kLinkInter && engine_.groups[g].point_to_point) slow = true;  // of this pair only
    if (slow) slow_groups_.push_back(static_cast<int>(g));
  }
  if (link && slow_groups_.empty()) {
    throw std::invalid_argument("no group of this topology shows that slow link apart from others");
  }
}

double JobModel::intensity(int rank, int step) const {
  if (!with_fault_) return 0;
  const bool whole_host = job_.fault == Fault::kWholeHost;
  const auto hit = [&](int faulty) {
    return whole_host ? rank / mesh_.gpus_per_host == faulty / mesh_.gpus_per_host : rank == faulty;
  };
  switch (job_.pattern) {
    case Pattern::kPersistent:
      return hit(fault_rank_) ? 1 : 0;
    case Pattern::kRotating: {
      // Only the first stage of a pipeline loads batches.
      const int among = job_.fault == Fault::kInput && mesh_.pipeline > 1 ? job_.ranks / mesh_.pipeline : job_.ranks;
      return hit((fault_rank_ + step * stride_) % among) ? 1 : 0;
    }
    case Pattern::kOutlier:
      return hit(fault_rank_) && step == outlier_step_ ? job_.steps : 0;
  }
  return 0;
}

double JobModel::group_slowness(int group, int step) const {
  if (!with_fault_ || std::find(slow_groups_.begin(), slow_groups_.end(), group) == slow_groups_.end()) return 1;
  switch (job_.pattern) {
    case Pattern::kPersistent:
      return factor_;
    case Pattern::kRotating:
      return group == slow_groups_[static_cast<std::size_t>(step) % slow_groups_.size()] ? factor_ : 1;
    case Pattern::kOutlier:
      return step == outlier_step_ ? 1 + (factor_ - 1) * job_.steps : 1;
  }
  return 1;
}

// ---------------------------------------------------------------- a rank

/// What a collective is called at every level of the trace.
struct JobModel::Comm {
  std::string_view op, annotation, argument, kernel, suffix;
};

class JobModel::Rank {
 public:
  Rank(JobModel& model, Machine& machine)
      : model_(model), job_(model.job_), mesh_(model.mesh_), m_(machine), stage_(stage_of(machine.rank)) {
    tiny_ = model_.with_fault_ && job_.fault == Fault::kLaunchBound ? 0.035 : 1.0;
  }

  Program run() {
    m_.now = base::Rng(job_.seed).fork(static_cast<std::uint64_t>(m_.rank)).between(0, 400'000);
    for (step_ = 0; step_ < job_.steps; ++step_) {
      const auto stream = static_cast<std::uint64_t>(m_.rank) * 100'000 + static_cast<std::uint64_t>(step_);
      m_.host_noise = base::Rng(job_.seed * 31 + 1).fork(stream);
      m_.device_noise = base::Rng(job_.seed * 31 + 2).fork(stream);
      intensity_ = model_.intensity(m_.rank, step_);
      const std::int64_t begin = m_.now;
      {
        const Scope whole(*this, fmt::format("ProfilerStep#{}", job_.first_step + step_), "user_annotation");
        if (mesh_.pipeline > 1) {
          co_await pipeline_step();
        } else {
          co_await data_parallel_step();
        }
        m_.spend(20);
      }
      if (m_.rank == 0) model_.steps_.emplace_back(begin, m_.now);
      co_await m_.step_end();
    }
  }

 private:
  class Scope {
   public:
    Scope(Rank& rank, const std::string& name, std::string_view category) : machine_(rank.m_) {
      machine_.next_external();
      event_ = machine_.open(machine_.engine().text(name), category, {});
    }
    ~Scope() { machine_.close(event_); }
    Scope(const Scope&) = delete;

   private:
    Machine& machine_;
    std::size_t event_;
  };

  int stage_of(int rank) const { return rank / (job_.ranks / mesh_.pipeline); }
  bool first_stage() const { return stage_ == 0; }
  bool last_stage() const { return stage_ == mesh_.pipeline - 1; }
  bool faulty(Fault fault) const { return job_.fault == fault && intensity_ > 0; }
  bool everywhere(Fault fault) const { return model_.with_fault_ && job_.fault == fault; }
  std::int64_t injected() const {
    return static_cast<std::int64_t>(static_cast<double>(model_.injected_) * intensity_);
  }
  double stretched(double factor) const { return 1 + (factor - 1) * intensity_; }
  double tokens() const { return kTokens * (faulty(Fault::kImbalance) ? stretched(model_.factor_) : 1.0); }

  // --- device work

  /// ns of a kernel of `us` on this rank in this step.
  std::int64_t kernel_time(double us, Bound bound) {
    double factor = tiny_;
    const bool slow_clock = faulty(Fault::kClock) || (faulty(Fault::kWholeHost) && !model_.by_input_);
    if (slow_clock) factor *= stretched(bound == Bound::kCompute ? model_.factor_ : 1 + (model_.factor_ - 1) * 0.15);
    if (faulty(Fault::kMemoryBandwidth) && bound == Bound::kMemory) factor *= stretched(model_.factor_);
    if (faulty(Fault::kImbalance)) factor *= tokens() / kTokens;
    factor *= std::max(0.5, m_.device_noise.normal(1.0, job_.noise));
    return std::max<std::int64_t>(static_cast<std::int64_t>(us * factor * 1000), 1'500);
  }

  std::string_view shapes(std::string_view pattern, std::int64_t tokens) {
    return m_.engine().text(fmt::format("\"Input Dims\": {}, \"Input type\": [\"c10::BFloat16\", \"c10::BFloat16\"]",
                                        fmt::format(fmt::runtime(pattern), tokens)));
  }

  static std::string_view grid(Bound bound) {
    return bound == Bound::kCompute ? "\"grid\": [132, 1, 1], \"block\": [384, 1, 1], \"shared memory\": 229376"
                                    : "\"grid\": [8192, 1, 1], \"block\": [256, 1, 1], \"shared memory\": 0";
  }

  /// An operator with its inner operator, further ones where traces with stacks have them, and one kernel.
  TaskId operation(std::string_view op, std::string_view inner, std::string_view kernel, Bound bound, double us,
                   std::string_view args) {
    const auto kernel_on_stream = [&] {
      return m_.launch(LaneKind::kCompute, "cudaLaunchKernel", kernel, "kernel", kernel_time(us, bound), grid(bound));
    };
    if (m_.in_graph()) return kernel_on_stream();
    m_.next_external();
    const Machine::Scope outer(m_, op, "cpu_op", args);
    m_.spend(2.5);
    for (int i = 0; i < job_.filler; ++i) {
      static constexpr std::array<std::string_view, 4> kViews{"aten::t", "aten::transpose", "aten::as_strided",
                                                              "aten::view"};
      m_.next_external();
      const Machine::Scope view(m_, kViews[static_cast<std::size_t>(i) % 4], "cpu_op", args);
      m_.spend(0.35);
    }
    m_.next_external();
    const Machine::Scope within(m_, inner, "cpu_op", args);
    m_.spend(3.0);
    const TaskId task = kernel_on_stream();
    m_.spend(1.2);
    return task;
  }

  /// The time a collective takes is the same for all its members.
  std::int64_t comm_time(double us, int group, std::int64_t number) {
    base::Rng noise = base::Rng(job_.seed * 131 + 5)
                          .fork(static_cast<std::uint64_t>(group) * 1'000'003 + static_cast<std::uint64_t>(number));
    const double latency = 9.0;
    double time = (us * tiny_ - latency) * std::max(0.7, noise.normal(1.0, 2 * job_.noise));
    if (noise.chance(0.01)) time *= 1.2;  // other traffic
    time = std::max(time, 2.0) * slowness_ + latency;
    return static_cast<std::int64_t>(time * 1000);
  }

  /// One collective from the host: operator, annotation, record_param_comms, kernel.
  TaskId collective(LaneKind stream, int group_id, const Comm& comm, double us, std::int64_t in, std::int64_t out) {
    Group& group = m_.engine().groups[static_cast<std::size_t>(group_id)];
    const std::int64_t number = ++sequence_of(group_id);
    if (m_.rank == group.ranks.front() && model_.with_fault_) ++group.collectives;
    slowness_ = us > 20 ? model_.group_slowness(group_id, step_) : 1;
    CommFacts facts;
    facts.group = group_id;
    facts.collective = comm.argument;
    facts.in_elements = in;
    facts.out_elements = out;
    facts.sequence = number;
    const auto meeting = static_cast<std::uint64_t>(group_id) << 32 | static_cast<std::uint64_t>(number);
    return issue(stream, comm, facts, comm_time(us, group_id, number), meeting, static_cast<int>(group.ranks.size()));
  }

  TaskId issue(LaneKind stream, const Comm& comm, const CommFacts& facts, std::int64_t time, std::uint64_t meeting,
               int members) {
    m_.next_external();
    const Machine::Scope op(m_, comm.op, "cpu_op");
    m_.spend(4.0);
    m_.next_external();
    {
      const Machine::Scope record(m_, "record_param_comms", "cpu_op");
      m_.events.back().facts = static_cast<std::int32_t>(m_.facts.size());
      m_.facts.push_back(facts);
      m_.spend(5.0);
      const Machine::Scope annotation(m_, comm.annotation, "user_annotation");
      m_.spend(1.0);
      const TaskId task =
          m_.launch_collective(stream, kernel_name(comm), facts, time, meeting, members,
                               "\"grid\": [24, 1, 1], \"block\": [640, 1, 1], \"shared memory\": 82240");
      m_.spend(2.0);
      return task;
    }
  }

  std::string_view kernel_name(const Comm& comm) {
    switch (job_.kernel_names) {
      case KernelNames::kNcclDev:
        return m_.engine().text(
            fmt::format("ncclDevKernel_{}{}(ncclDevKernelArgsStorage<4096ul>)", comm.kernel, comm.suffix));
      case KernelNames::kNccl:
        return m_.engine().text(fmt::format("ncclKernel_{}_RING_LL_Sum_int8_t(ncclWorkElem)", comm.kernel));
      case KernelNames::kSymmetric:
        return m_.engine().text(fmt::format("ncclSymDevKernel_{}_LL(ncclSymDevArgs)", comm.kernel));
      case KernelNames::kRccl:
        return "ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>)";
    }
    return {};
  }

  std::int64_t& sequence_of(int group) {
    if (sequences_.size() < m_.engine().groups.size()) sequences_.resize(m_.engine().groups.size(), 0);
    return sequences_[static_cast<std::size_t>(group)];
  }

  static constexpr Comm kAllReduce{"c10d::allreduce_", "nccl:all_reduce", "allreduce", "AllReduce_Sum_bf16",
                                   "_RING_LL"};
  static constexpr Comm kAllGather{"c10d::_allgather_base_", "nccl:_all_gather_base", "_allgather_base", "AllGather",
                                   "_RING_LL"};
  static constexpr Comm kReduceScatter{"c10d::_reduce_scatter_base_", "nccl:_reduce_scatter_base",
                                       "_reduce_scatter_base", "ReduceScatter_Sum_bf16", "_RING_LL"};
  static constexpr Comm kTensorGather{"_c10d_functional::all_gather_into_tensor", "nccl:_all_gather_base",
                                      "_allgather_base", "AllGather", "_RING_LL"};
  static constexpr Comm kTensorScatter{"_c10d_functional::reduce_scatter_tensor", "nccl:_reduce_scatter_base",
                                       "_reduce_scatter_base", "ReduceScatter_Sum_bf16", "_RING_LL"};
  static constexpr Comm kSend{"c10d::send", "nccl:send", "send", "SendRecv", ""};
  static constexpr Comm kRecv{"c10d::recv_", "nccl:recv", "recv", "SendRecv", ""};
  static constexpr Comm kSendRecv{"c10d::send", "nccl:coalesced", "send", "SendRecv", ""};

  // --- layers

  std::string layer_name(int layer) const { return fmt::format("layers.{}", layer); }

  void tensor_comm(const Comm& comm) {
    if (mesh_.tensors == 1) return;
    const int group = model_.group_of(m_.rank, kTensor);
    m_.wait(kTensorStream, m_.last_on(LaneKind::kCompute));
    const std::int64_t small = 16'777'216 / mesh_.tensors, large = 16'777'216;
    const bool gathers = comm.kernel == "AllGather";
    const TaskId task =
        collective(kTensorStream, group, comm, kTensorComm, gathers ? small : large, gathers ? large : small);
    m_.wait(LaneKind::kCompute, task);
  }

  bool graphed_layers() const { return job_.cuda_graphs && mesh_.tensors == 1; }

  void forward_layer(int layer) {
    const Scope module(*this, layer_name(layer), "user_annotation");
    const Machine::Graph graph(m_, graphed_layers());
    const auto count = static_cast<std::int64_t>(tokens());
    std::size_t i = 0;
    for (int span = 0; span < 4; ++span) {
      std::optional<Scope> part;
      if (!m_.in_graph())
        part.emplace(*this, fmt::format("layers.{}.{}", layer, kSpans[static_cast<std::size_t>(span)]),
                     "user_annotation");
      for (; i < kLayer.size() && kLayer[i].span == span; ++i) {
        const Operator& op = kLayer[i];
        if (op.gathers) tensor_comm(kTensorGather);
        operation(op.op, op.inner, op.kernel, op.bound, op.us, shapes(op.shapes, count));
        if (op.reduces) tensor_comm(kTensorScatter);
      }
    }
  }

  void backward_layer() {
    const Machine::Graph graph(m_, graphed_layers());
    const auto count = static_cast<std::int64_t>(tokens());
    for (std::size_t i = kLayer.size(); i-- > 0;) {
      const Operator& op = kLayer[i];
      const std::string_view args = shapes(op.shapes, count);
      if (op.reduces) tensor_comm(kTensorGather);
      const std::string_view node = op.op.substr(op.op.find("::") + 2);
      std::optional<Scope> evaluate, inside;
      if (!m_.in_graph()) {
        evaluate.emplace(*this, fmt::format("autograd::engine::evaluate_function: {}Backward0", node), "cpu_op");
        m_.spend(3.0);
        inside.emplace(*this, fmt::format("{}Backward0", node), "cpu_op");
      }
      if (op.inner == "aten::mm") {
        operation("aten::mm", "aten::mm", op.kernel, op.bound, op.us, args);
        operation("aten::mm", "aten::mm", "nvjet_tst_256x128_64x4_2x1_v_bz_coopA_NTN", op.bound, op.us, args);
      } else if (op.bound == Bound::kCompute) {
        operation("aten::_scaled_dot_product_flash_attention_backward", "aten::_flash_attention_backward",
                  "void flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<Flash_bwd_kernel_traits<128, 64, 128, 8, "
                  "4, 4, 4> >(flash::Flash_bwd_params)",
                  op.bound, 2.3 * op.us, args);
      } else {
        operation(op.op, op.inner, op.kernel, op.bound, 1.6 * op.us, args);
      }
      if (op.gathers) tensor_comm(kTensorScatter);
    }
  }

  void embed() {
    const auto count = static_cast<std::int64_t>(tokens());
    const Scope module(*this, "tok_embeddings", "user_annotation");
    operation("aten::embedding", "aten::index_select",
              "void at::native::(anonymous namespace)::indexSelectLargeIndex<c10::BFloat16, long>", Bound::kMemory, 60,
              shapes("[[128256, 4096], [1, {0}], [], [], []]", count));
  }

  void loss(bool backward) {
    const auto count = static_cast<std::int64_t>(tokens());
    const Scope module(*this, backward ? "loss.backward" : "output", "user_annotation");
    const double scale = mesh_.pipeline > 1 ? 0.1 : 0.5;
    operation("aten::linear", "aten::mm", "nvjet_tst_256x128_64x4_2x1_v_bz_splitK_TNT", Bound::kCompute,
              (backward ? 1800 : 900) * scale, shapes("[[{0}, 4096], [4096, 128256]]", count));
    operation("aten::cross_entropy_loss", "aten::_log_softmax",
              "void at::native::(anonymous namespace)::cunn_SoftMaxForward<8, float, float, float>(float*, float "
              "const*, int)",
              Bound::kMemory, 260 * scale, shapes("[[{0}, 128256], [{0}], [], [], []]", count));
  }

  /// What a host does before it computes: the batch, and what may go wrong there.
  void load_batch() {
    {
      const Scope input(*this, "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", "user_annotation");
      m_.spend(180);
      if (faulty(Fault::kInput) || (faulty(Fault::kWholeHost) && model_.by_input_)) {
        m_.pause(injected() / (mesh_.pipeline > 1 ? job_.micro_batches : 1));
      }
    }
    m_.next_external();
    const Machine::Scope copy(m_, "aten::copy_", "cpu_op", "\"Input Dims\": [[1, 4096], [1, 4096], []]");
    m_.spend(3);
    m_.launch(LaneKind::kCompute, "cudaMemcpyAsync", "Memcpy HtoD (Pinned -> Device)", "gpu_memcpy", 9'000,
              "\"bytes\": 32768, \"memory bandwidth (GB/s)\": 3.6");
    m_.spend(2);
  }

  void prepare_batch() {
    {
      m_.next_external();
      const Machine::Scope op(m_, "aten::unique_dim", "cpu_op", "\"Input Dims\": [[1, 4096], [], [], [], []]");
      m_.spend(60);
      if (faulty(Fault::kHostOp)) m_.pause(injected());
    }
    if (faulty(Fault::kHostPause)) m_.pause(injected());
  }

  Program allocate() {
    if (!faulty(Fault::kAllocator)) co_return;
    m_.next_external();
    const Machine::Scope op(m_, "aten::empty", "cpu_op", "\"Input Dims\": [[], [], [], [], [], []]");
    {
      const Machine::Scope call(m_, "cudaDeviceSynchronize", "cuda_runtime");
      m_.spend(3);
      co_await m_.until_idle();
    }
    const int calls = static_cast<int>(25 * intensity_ * job_.severity);
    for (const std::string_view name : {"cudaFree", "cudaMalloc"}) {
      for (int i = 0; i < calls; ++i) {
        const Machine::Scope call(m_, name, "cuda_runtime");
        m_.spend(name == "cudaFree" ? 190 : 110);
      }
    }
  }

  Program optimize() {
    {
      const Scope step(*this, "Optimizer.step#AdamW.step", "user_annotation");
      for (int i = 0; i < 3; ++i) {
        operation("aten::_fused_adamw_", "aten::_fused_adamw_",
                  "void at::native::(anonymous "
                  "namespace)::multi_tensor_apply_kernel<at::native::FusedAdamMathFunctor<float> >",
                  Bound::kMemory, 330, "\"Input Dims\": [[[4096, 6144], [4096, 4096]], [], []]");
      }
    }
    {
      const Scope zero(*this, "Optimizer.zero_grad#AdamW.zero_grad", "user_annotation");
      m_.spend(15);
    }
    co_await read_loss();
  }

  Program read_loss() {
    m_.next_external();
    const Machine::Scope item(m_, "aten::item", "cpu_op", "\"Input Dims\": [[]]");
    m_.spend(1);
    const Machine::Scope local(m_, "aten::_local_scalar_dense", "cpu_op", "\"Input Dims\": [[]]");
    m_.spend(2);
    m_.launch(LaneKind::kCompute, "cudaMemcpyAsync", "Memcpy DtoH (Device -> Pinned)", "gpu_memcpy", 2'200,
              "\"bytes\": 4");
    const Machine::Scope call(m_, "cudaStreamSynchronize", "cuda_runtime");
    m_.spend(2);
    co_await m_.until_idle();
  }

  /// The norm of all gradients: the one collective that brings all ranks of a sharded job together.
  void clip_gradients() {
    const Scope span(*this, "clip_grad_norm_", "user_annotation");
    operation("aten::_foreach_norm", "aten::_foreach_norm",
              "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::LpNormFunctor<float> >",
              Bound::kMemory, 150, "\"Input Dims\": [[[4096, 6144], [4096, 4096]], [], []]");
    m_.wait(kGatherStream, m_.last_on(LaneKind::kCompute));
    const TaskId task = collective(kGatherStream, model_.group_of(m_.rank, kWorld), kAllReduce, 18, 1, 1);
    m_.wait(LaneKind::kCompute, task);
  }

  // --- data parallel of all kinds

  bool fully_sharded() const { return mesh_.shards > 1; }
  double layer_comm() const {
    double us = kLayerComm;
    if (job_.fault == Fault::kIssuedLate) us *= 2.2;  // also where nothing is wrong: it could hide
    if (everywhere(Fault::kTooBig)) us = 1.7 * kLayerForward * (fully_sharded() ? 1 : 2);
    return us * (mesh_.tensors > 1 ? 0.6 : 1.0);
  }

  std::string hook(std::string_view modern, std::string_view legacy, int layer) const {
    return job_.topology == Topology::kFsdp1 ? std::string(legacy)
                                             : fmt::format("FSDP::{} ({})", modern, layer_name(layer));
  }

  /// Gathers the parameters of a layer, not before `after` on the compute stream.
  TaskId gather(int layer, TaskId after) {
    if (!fully_sharded()) return kNoTask;
    const Scope span(*this, hook("all_gather", "FullyShardedDataParallel._all_gather_flat_param", layer),
                     "user_annotation");
    m_.spend(4);
    m_.wait(kGatherStream, after);
    return collective(kGatherStream, model_.group_of(m_.rank, kShard), kAllGather, layer_comm(),
                      kLayerElements / mesh_.shards, kLayerElements);
  }

  /// Computation may begin once the parameters are there; returns what the next gathering waits for.
  TaskId use_gathered(int layer, TaskId gathered) {
    if (!fully_sharded()) return kNoTask;
    m_.wait(LaneKind::kCompute, gathered);
    const Scope span(*this, hook("all_gather_copy_out", "FullyShardedDataParallel._use_unsharded_flat_param", layer),
                     "user_annotation");
    return operation(
        "fsdp::split_with_sizes_copy", "aten::split_with_sizes_copy",
        "void at::native::(anonymous namespace)::split_with_sizes_copy_out_contiguous_no_cast_kernel(char**, char*)",
        Bound::kMemory, 55, "\"Input Dims\": [[8, 27264000], [], [], []]");
  }

  /// A host that issues a gathering only when the computation before it is over.
  Program hold_back() {
    const TaskId computed = m_.last_on(LaneKind::kCompute);
    const Machine::Scope call(m_, "cudaEventSynchronize", "cuda_runtime");
    m_.spend(2);
    co_await m_.until(computed);
  }

  /// Brings the gradients of a layer together.
  void reduce(int layer) {
    if (fully_sharded()) {
      const Scope span(*this, hook("post_backward_reduce", "FullyShardedDataParallel._post_backward_hook", layer),
                       "user_annotation");
      m_.spend(6);
      m_.wait(kReduceStream, m_.last_on(LaneKind::kCompute));
      const TaskId scattered = collective(kReduceStream, model_.group_of(m_.rank, kShard), kReduceScatter, layer_comm(),
                                          kLayerElements, kLayerElements / mesh_.shards);
      if (mesh_.replicas == 1) return;
      m_.wait(kReplicaStream, scattered);
      collective(kReplicaStream, model_.group_of(m_.rank, kReplica), kAllReduce, 0.8 * layer_comm(),
                 kLayerElements / mesh_.shards, kLayerElements / mesh_.shards);
      return;
    }
    if (mesh_.replicas == 1) return;
    m_.wait(kReplicaStream, m_.last_on(LaneKind::kCompute));
    collective(kReplicaStream, model_.group_of(m_.rank, kReplica), kAllReduce, layer_comm(), kLayerElements,
               kLayerElements);
  }

  void wait_for_reductions() {
    m_.wait(LaneKind::kCompute, m_.last_on(kReduceStream));
    m_.wait(LaneKind::kCompute, m_.last_on(kReplicaStream));
  }

  Program data_parallel_step() {
    const bool late = everywhere(Fault::kIssuedLate);
    load_batch();
    prepare_batch();
    {
      const Scope span(*this, fully_sharded() ? "FSDP::root_pre_forward" : "DistributedDataParallel.forward",
                       "user_annotation");
      m_.spend(10);
    }
    TaskId gathered = gather(0, kNoTask);
    embed();
    co_await allocate();
    for (int layer = 0; layer < job_.layers; ++layer) {
      const TaskId copied = use_gathered(layer, gathered);
      if (!late && layer + 1 < job_.layers) gathered = gather(layer + 1, copied);
      forward_layer(layer);
      if (late && fully_sharded() && layer + 1 < job_.layers) {
        co_await hold_back();
        gathered = gather(layer + 1, kNoTask);
      }
    }
    loss(false);
    m_.thread = LaneKind::kBackward;
    loss(true);
    gathered = gather(job_.layers - 1, m_.last_on(LaneKind::kCompute));
    for (int layer = job_.layers - 1; layer >= 0; --layer) {
      const TaskId copied = use_gathered(layer, gathered);
      if (!late && layer > 0) gathered = gather(layer - 1, copied);
      backward_layer();
      if (late && fully_sharded() && layer > 0) {
        co_await hold_back();
        gathered = gather(layer - 1, kNoTask);
      }
      if (!late || fully_sharded()) reduce(layer);
    }
    m_.thread = LaneKind::kMain;
    for (int layer = job_.layers - 1; late && !fully_sharded() && layer >= 0; --layer) reduce(layer);
    wait_for_reductions();
    if (fully_sharded()) clip_gradients();
    co_await optimize();
  }

  // --- pipeline: 1F1B as Megatron runs it

  /// A transfer between this stage and the next (side 1) or the previous (side -1); ends together on both.
  Program transfer(const Comm& comm, int side) {
    const int per_stage = job_.ranks / mesh_.pipeline;
    const int peer = m_.rank + side * per_stage, lower = std::min(m_.rank, peer);
    const bool sends = comm.argument == "send";
    CommFacts facts;
    facts.group = model_.group_of(m_.rank, kPipeline);
    facts.collective = comm.argument;
    facts.in_elements = facts.out_elements = 16'777'216;
    facts.sequence = ++sequence_of(facts.group);
    facts.source = sends ? m_.rank : peer;
    facts.destination = sends ? peer : m_.rank;
    const std::int64_t number = ++between_[side > 0];
    const int host = model_.fault_host() / 2 * 2;
    slowness_ = model_.group_slowness(facts.group, step_);
    // Of a slow network only the pair of stages on those two hosts.
    if (job_.fault == Fault::kLinkInter && lower / mesh_.gpus_per_host != host) slowness_ = 1;
    const auto meeting =
        (std::uint64_t{1} << 63) | static_cast<std::uint64_t>(lower) << 32 | static_cast<std::uint64_t>(number);
    const std::int64_t time = comm_time(kPointToPoint, 100'000 + lower, number);
    m_.wait(kGatherStream, m_.last_on(LaneKind::kCompute));
    const TaskId task = issue(kGatherStream, comm, facts, time, meeting, 2);
    m_.wait(LaneKind::kCompute, task);
    // Megatron synchronises behind batched transfers.
    const Machine::Scope call(m_, "cudaDeviceSynchronize", "cuda_runtime");
    m_.spend(2);
    co_await m_.until(task);
  }

  int stage_layers() const { return std::max(job_.layers / mesh_.pipeline, 1); }

  Program forward_batch(int batch) {
    const Scope span(*this, "forward_step", "user_annotation");
    if (first_stage()) load_batch();
    if (batch == warm_up()) {
      prepare_batch();
      co_await allocate();
    }
    if (first_stage()) embed();
    for (int layer = 0; layer < stage_layers(); ++layer) forward_layer(stage_ * stage_layers() + layer);
    if (last_stage()) loss(false);
  }

  void backward_batch(int batch) {
    const Scope span(*this, "backward_step", "user_annotation");
    m_.thread = LaneKind::kBackward;
    if (last_stage()) loss(true);
    for (int layer = stage_layers() - 1; layer >= 0; --layer) {
      backward_layer();
      if (batch == job_.micro_batches - 1) reduce(stage_ * stage_layers() + layer);
    }
    m_.thread = LaneKind::kMain;
  }

  int warm_up() const { return std::min(mesh_.pipeline - stage_ - 1, job_.micro_batches); }

  Program pipeline_step() {
    const int warm = warm_up(), steady = job_.micro_batches - warm;
    int forward = 0, backward = 0;
    for (int i = 0; i < warm; ++i) {
      if (!first_stage()) co_await transfer(kRecv, -1);
      co_await forward_batch(forward++);
      co_await transfer(kSend, 1);
    }
    if (steady > 0 && !first_stage()) co_await transfer(kRecv, -1);
    for (int i = 0; i < steady; ++i) {
      co_await forward_batch(forward++);
      if (!last_stage()) co_await transfer(kSendRecv, 1);
      backward_batch(backward++);
      if (first_stage()) continue;
      co_await transfer(i == steady - 1 ? kSend : kSendRecv, -1);
    }
    for (int i = 0; i < warm; ++i) {
      co_await transfer(kRecv, 1);
      backward_batch(backward++);
      if (!first_stage()) co_await transfer(kSend, -1);
    }
    wait_for_reductions();
    clip_gradients();
    co_await optimize();
  }

  JobModel& model_;
  const ModernJob& job_;
  const Mesh& mesh_;
  Machine& m_;
  int stage_, step_ = 0;
  double intensity_ = 0, tiny_ = 1, slowness_ = 1;
  std::vector<std::int64_t> sequences_;
  std::array<std::int64_t, 2> between_{};
};

Program JobModel::program(Machine& machine) {
  Rank rank(*this, machine);  // lives in this coroutine
  co_await rank.run();
}

}  // namespace paceline::test_support
