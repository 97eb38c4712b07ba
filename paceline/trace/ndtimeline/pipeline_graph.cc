#include "paceline/trace/ndtimeline/pipeline_graph.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <span>
#include <tuple>
#include <utility>

#include "paceline/base/error.h"

namespace paceline::trace::ndtimeline {
namespace {

using taskgraph::Builder;
using taskgraph::TaskId;
using taskgraph::TaskKind;

/// Clocks of a stage's streams agree to this much where times decide whether a transfer belongs to a compute.
constexpr std::int64_t kClockNoise = 50'000;

constexpr std::int64_t kLongestStep = std::int64_t{7} * 24 * 3600 * 1'000'000'000;  // ns; more is damage

enum Stream : std::uint32_t {
  kCompute,
  kForwardSend,
  kForwardRecv,
  kBackwardSend,
  kBackwardRecv,
  kForwardSendBackwardRecv,
  kBackwardSendForwardRecv,
  kDataParallel,
  kStreams
};
constexpr std::array<std::string_view, kStreams> kStreamNames{"compute",
                                                              "forward-send",
                                                              "forward-recv",
                                                              "backward-send",
                                                              "backward-recv",
                                                              "forward-send-backward-recv",
                                                              "backward-send-forward-recv",
                                                              "data parallel"};

/// What an operation is for; veScale and Megatron name some of them differently.
enum class Role : std::uint8_t {
  kForward,
  kBackward,
  kTransfer,  // between stages; which one its stream says
  kGather,
  kReduce,
  kLayerNorm,
  kEmbedding,
  kSeparate,  // gradients reduced apart from the others, when those overlap with the backward pass
  kClip,
  kCollectGarbage,
  kOptimizer,
  kOther
};
struct Meaning {
  std::string_view name;
  Role role;
  Stream stream;
};
constexpr std::array kMeanings{
    Meaning{"forward-compute", Role::kForward, kCompute},
    Meaning{"backward-compute", Role::kBackward, kCompute},
    Meaning{"forward-send", Role::kTransfer, kForwardSend},
    Meaning{"forward-recv", Role::kTransfer, kForwardRecv},
    Meaning{"backward-send", Role::kTransfer, kBackwardSend},
    Meaning{"backward-recv", Role::kTransfer, kBackwardRecv},
    Meaning{"forward-send-backward-recv", Role::kTransfer, kForwardSendBackwardRecv},
    Meaning{"backward-send-forward-recv", Role::kTransfer, kBackwardSendForwardRecv},
    Meaning{"params-all-gather", Role::kGather, kDataParallel},
    Meaning{"unshard-all-gather", Role::kGather, kDataParallel},
    Meaning{"grads-reduce-scatter", Role::kReduce, kDataParallel},
    Meaning{"grad-reduce-scatter", Role::kReduce, kDataParallel},
    Meaning{"grad-all-reduce", Role::kReduce, kDataParallel},
    Meaning{"layernorm-grads-all-reduce", Role::kLayerNorm, kDataParallel},
    Meaning{"embedding-grads-all-reduce", Role::kEmbedding, kDataParallel},
    Meaning{"separate-grads-all-reduce", Role::kSeparate, kDataParallel},
    Meaning{"optimizer-clip-main-grad", Role::kClip, kDataParallel},
    Meaning{"gc", Role::kCollectGarbage, kCompute},
    Meaning{"optimizer", Role::kOptimizer, kCompute},
};

Meaning meaning_of(std::string_view name) {
  const auto* found =
      std::find_if(kMeanings.begin(), kMeanings.end(), [&](const Meaning& m) { return m.name == name; });
  return found == kMeanings.end() ? Meaning{name, Role::kOther, kCompute} : *found;
}

/// Where a transfer goes: its peer's stream, and whether that is on the next stage or the one before.
struct Peer {
  Stream stream;
  int stages;
};
Peer peer_of(Stream stream) {
  switch (stream) {
    case kForwardSend:
      return {kForwardRecv, 1};
    case kForwardRecv:
      return {kForwardSend, -1};
    case kBackwardSend:
      return {kBackwardRecv, -1};
    case kBackwardRecv:
      return {kBackwardSend, 1};
    case kForwardSendBackwardRecv:
      return {kBackwardSendForwardRecv, 1};
    default:
      return {kForwardSendBackwardRecv, -1};
  }
}

/// Index of an operation within its step.
using Index = std::uint32_t;

/// The four sides of the transfers of a stage, with the streams whose operations take that side.
struct Side {
  Role compute;
  bool send;
  std::array<Stream, 2> streams;
};
constexpr std::array<Side, 4> kSides{{
    {Role::kForward, true, {kForwardSend, kForwardSendBackwardRecv}},
    {Role::kForward, false, {kForwardRecv, kBackwardSendForwardRecv}},
    {Role::kBackward, true, {kBackwardSend, kBackwardSendForwardRecv}},
    {Role::kBackward, false, {kBackwardRecv, kForwardSendBackwardRecv}},
}};

/// Lanes, edges and rendezvous of the operations of one step.
class Step {
 public:
  Step(const Recording& recording, const std::vector<Meaning>& meanings, std::span<const Operation> operations)
      : workers_(recording.workers), meanings_(meanings), operations_(operations), lanes(workers_.size() * kStreams) {
    for (const Worker& worker : workers_) stages_ = std::max(stages_, worker.stage + 1);
    for (const Operation& operation : operations_) chunks_ = std::max(chunks_, operation.model_chunk + 1);
    for (Index begin = 0, end = 0; begin < operations_.size(); begin = end) {
      while (end < operations_.size() && operations_[end].worker == operations_[begin].worker) ++end;
      add_worker(begin, end);
    }
    pair_transfers();
    for (const auto& [key, members] : meetings_) groups.push_back(members);
  }

 private:
  const std::vector<Worker>& workers_;
  const std::vector<Meaning>& meanings_;  // by name
  std::span<const Operation> operations_;
  std::uint32_t stages_ = 1;
  std::int32_t chunks_ = 1;
  // (stage, dp rank, tp rank, stream): transfers that have a peer, in order.
  std::map<std::tuple<std::uint32_t, std::uint32_t, std::uint32_t, Stream>, std::vector<Index>> transfers_;
  // (role, stage or 0, dp rank or 0, tp rank or 0, n-th)
  std::map<std::tuple<Role, std::uint32_t, std::uint32_t, std::uint32_t, std::size_t>, std::vector<Index>> meetings_;

 public:
  std::vector<std::vector<Index>> lanes;  // [worker * kStreams + stream]
  std::vector<std::pair<Index, Index>> edges;
  std::vector<std::vector<Index>> groups;
  std::uint32_t unpaired = 0;

 private:
  Role role(Index i) const { return meanings_[base::index(operations_[i].name)].role; }
  Stream stream(Index i) const { return meanings_[base::index(operations_[i].name)].stream; }

  void add_worker(Index begin, Index end) {
    std::map<Role, std::vector<Index>> by_role;
    for (Index i = begin; i < end; ++i) by_role[role(i)].push_back(i);
    const std::uint32_t worker = operations_[begin].worker;
    auto* lane = &lanes[worker * kStreams];

    for (Index i = begin; i < end; ++i) {
      const Role is = role(i);
      if (is == Role::kForward || is == Role::kBackward || is == Role::kTransfer || is == Role::kOther) {
        lane[stream(i)].push_back(i);
      }
    }
    std::vector<Index> passes;
    for (const Index i : lane[kCompute]) {
      if (role(i) != Role::kOther) passes.push_back(i);
    }
    for (const Role late : {Role::kCollectGarbage, Role::kOptimizer}) {
      lane[kCompute].insert(lane[kCompute].end(), by_role[late].begin(), by_role[late].end());
    }

    std::vector<Index> transfers = by_role[Role::kTransfer];
    const std::vector<bool> has_peer = match_transfers(worker, transfers, by_role);
    for (std::size_t i = 0; i < transfers.size(); ++i) {
      const Worker& at = workers_[worker];
      if (has_peer[i]) {
        transfers_[{at.stage, at.dp_rank, at.tp_rank, stream(transfers[i])}].push_back(transfers[i]);
      } else {
        groups.push_back({transfers[i]});
      }
    }
    delay_first_backward_transfers(lane, passes);
    add_data_parallel(worker, by_role, passes);
  }

  /// Ties every transfer to the compute it feeds or is fed by. Some recorders also write transfers that never took
  /// place: receives behind the last compute, sends before the first one, and, in interleaved pipelines, those into the
  /// first and out of the last model chunk. False for these; they stand alone.
  std::vector<bool> match_transfers(std::uint32_t worker, const std::vector<Index>& transfers,
                                    std::map<Role, std::vector<Index>>& by_role) {
    std::vector<bool> has_peer(transfers.size(), false);
    for (const Side& side : kSides) {
      const std::vector<Index>& computes = by_role[side.compute];
      if (computes.empty()) continue;
      std::int64_t first_end = operations_[computes.front()].end;
      for (const Index compute : computes) first_end = std::min(first_end, operations_[compute].end);
      const std::int64_t last_begin = operations_[computes.back()].begin;
      std::vector<std::size_t> matched;
      for (std::size_t i = 0; i < transfers.size(); ++i) {
        const Operation& transfer = operations_[transfers[i]];
        const bool of_side = std::count(side.streams.begin(), side.streams.end(), stream(transfers[i])) > 0;
        const bool took_place =
            side.send ? transfer.end >= first_end - kClockNoise : transfer.begin <= last_begin + kClockNoise;
        if (of_side && took_place) matched.push_back(i);
      }
      const std::vector<Index> fed = computes_of(worker, side, computes, matched.size());
      auto at = computes.begin();
      for (std::size_t n = 0; n < std::min(matched.size(), fed.size()); ++n) {
        const Index transfer = transfers[matched[n]];
        if (side.send) {
          edges.emplace_back(fed[n], transfer);
        } else {
          edges.emplace_back(transfer, fed[n]);
          at = std::find(at, computes.end(), fed[n]);
          if (at != computes.begin()) edges.emplace_back(*(at - 1), transfer);
        }
        if (takes_place(worker, side, fed[n])) has_peer[matched[n]] = true;
      }
    }
    return has_peer;
  }

  /// Whether the result of a pass goes to, or its input comes from, another place of the model.
  bool takes_place(std::uint32_t worker, const Side& side, Index compute) const {
    const std::int64_t place =
        std::int64_t{std::max(operations_[compute].model_chunk, 0)} * stages_ + workers_[worker].stage;
    const std::int64_t peer = place + ((side.compute == Role::kForward) == side.send ? 1 : -1);
    return peer >= 0 && peer < std::int64_t{chunks_} * stages_;
  }

  /// Which of a stage's passes `count` transfers belong to, in order: all; all but the first, whose receive has nothing
  /// to wait for; or those alone that have a peer.
  std::vector<Index> computes_of(std::uint32_t worker, const Side& side, const std::vector<Index>& computes,
                                 std::size_t count) const {
    if (!side.send && count + 1 == computes.size()) return {computes.begin() + 1, computes.end()};
    std::vector<Index> with_peer;
    for (const Index compute : computes) {
      if (takes_place(worker, side, compute)) with_peer.push_back(compute);
    }
    return count == with_peer.size() ? with_peer : computes;
  }

  /// A stage launches its first backward transfers behind the last but one forward pass before its first backward pass.
  void delay_first_backward_transfers(const std::vector<Index>* lane, const std::vector<Index>& passes) {
    const auto first = std::find_if(passes.begin(), passes.end(), [&](Index i) { return role(i) == Role::kBackward; });
    if (first == passes.end() || first - passes.begin() < 2) return;
    for (const Stream stream : {kBackwardSend, kBackwardRecv}) {
      if (!lane[stream].empty()) edges.emplace_back(*(first - 2), lane[stream].front());
    }
  }

  void add_data_parallel(std::uint32_t worker, std::map<Role, std::vector<Index>>& by_role,
                         const std::vector<Index>& passes) {
    const Worker& at = workers_[worker];
    std::vector<Index>& lane = lanes[worker * kStreams + kDataParallel];
    std::vector<Index>& reduces = by_role[Role::kReduce];
    const bool overlaps = !by_role[Role::kSeparate].empty();

    lane = by_role[Role::kGather];
    if (overlaps) {
      lane.insert(lane.end(), reduces.begin(), reduces.end());
      std::sort(lane.begin(), lane.end());  // as recorded
    }
    std::vector<Index> tail;
    const auto append = [&](const std::vector<Index>& more) { tail.insert(tail.end(), more.begin(), more.end()); };
    append(by_role[Role::kLayerNorm]);
    append(by_role[Role::kEmbedding]);
    if (!overlaps) append(reduces);
    append(by_role[Role::kSeparate]);
    append(by_role[Role::kClip]);
    const std::vector<Index>& garbage = by_role[Role::kCollectGarbage];
    if (!tail.empty()) {
      if (!garbage.empty() || !passes.empty()) {
        edges.emplace_back(garbage.empty() ? passes.back() : garbage.back(), tail.front());
      }
      for (const Index optimizer : by_role[Role::kOptimizer]) edges.emplace_back(tail.back(), optimizer);
    }
    lane.insert(lane.end(), tail.begin(), tail.end());

    gather_before_forward(by_role[Role::kGather], by_role[Role::kForward]);
    if (overlaps) reduce_behind_backward(reduces, by_role[Role::kBackward]);

    for (const Role alike : {Role::kGather, Role::kReduce, Role::kSeparate}) {
      for (std::size_t n = 0; n < by_role[alike].size(); ++n) {
        meetings_[{alike, at.stage, 0, at.tp_rank, n}].push_back(by_role[alike][n]);
      }
    }
    for (std::size_t n = 0; n < by_role[Role::kEmbedding].size(); ++n) {
      meetings_[{Role::kEmbedding, 0, at.dp_rank, at.tp_rank, n}].push_back(by_role[Role::kEmbedding][n]);
    }
    for (std::size_t n = 0; n < by_role[Role::kClip].size(); ++n) {
      meetings_[{Role::kClip, 0, 0, 0, n}].push_back(by_role[Role::kClip][n]);
    }
    for (const Index layer_norm : by_role[Role::kLayerNorm]) groups.push_back({layer_norm});
  }

  /// The last gather of a model chunk holds back its first forward pass.
  void gather_before_forward(const std::vector<Index>& gathers, const std::vector<Index>& forwards) {
    std::map<std::int32_t, Index> last;
    for (const Index gather : gathers) last[operations_[gather].model_chunk] = gather;
    for (const auto& [chunk, gather] : last) {
      const auto first = std::find_if(forwards.begin(), forwards.end(),
                                      [&](Index i) { return chunk < 0 || operations_[i].model_chunk == chunk; });
      if (first != forwards.end()) edges.emplace_back(gather, *first);
    }
  }

  /// The first reduction of a model chunk waits for its last backward pass.
  void reduce_behind_backward(const std::vector<Index>& reduces, const std::vector<Index>& backwards) {
    std::map<std::int32_t, Index> first;
    for (const Index reduce : reduces) first.try_emplace(operations_[reduce].model_chunk, reduce);
    for (const auto& [chunk, reduce] : first) {
      const auto last = std::find_if(backwards.rbegin(), backwards.rend(),
                                     [&](Index i) { return chunk < 0 || operations_[i].model_chunk == chunk; });
      if (last != backwards.rend()) edges.emplace_back(*last, reduce);
    }
  }

  void pair_transfers() {
    for (const auto& [key, mine] : transfers_) {
      const auto& [stage, dp_rank, tp_rank, stream] = key;
      const Peer peer = peer_of(stream);
      const auto other_stage = static_cast<std::uint32_t>((std::int64_t{stage} + peer.stages + stages_) % stages_);
      const auto found = transfers_.find({other_stage, dp_rank, tp_rank, peer.stream});
      const std::size_t pairs = found == transfers_.end() ? 0 : std::min(mine.size(), found->second.size());
      for (std::size_t n = 0; n < mine.size(); ++n) {
        if (n >= pairs) {
          groups.push_back({mine[n]});
          ++unpaired;
        } else if (peer.stages == 1) {
          groups.push_back({mine[n], found->second[n]});
        }
      }
    }
  }
};

// ---------------------------------------------------------------- which steps are whole

/// How often each worker did each operation.
using Content = std::map<std::pair<std::uint32_t, NameId>, std::uint32_t>;

std::string difference(const Recording& recording, const Content& content, const Content& usual) {
  for (const auto& [key, count] : usual) {
    const auto found = content.find(key);
    const std::uint32_t has = found == content.end() ? 0 : found->second;
    if (has == count) continue;
    const Worker& worker = recording.workers[key.first];
    return fmt::format("stage {} of dp rank {} has {} of {} {}", worker.stage, worker.dp_rank, has, count,
                       recording.names->text(key.second));
  }
  return "it has operations that other steps lack";
}

/// Rows of each step that has what most steps have; of equally many kinds of steps the one with more operations.
struct Rows {
  std::size_t begin, end;
};
std::vector<Rows> whole_steps(const Recording& recording, std::vector<std::string>& left_out) {
  const std::vector<Operation>& operations = recording.operations;
  std::vector<Rows> steps;
  std::map<Content, std::vector<std::size_t>> kinds;
  std::map<std::int32_t, std::string> lacks;
  for (std::size_t begin = 0, end = 0; begin < operations.size(); begin = end) {
    Content content;
    std::int64_t first = operations[begin].begin, last = first;
    for (; end < operations.size() && operations[end].step == operations[begin].step; ++end) {
      ++content[{operations[end].worker, operations[end].name}];
      first = std::min(first, operations[end].begin);
      last = std::max(last, operations[end].end);
    }
    if (last - first > kLongestStep) {
      lacks[operations[begin].step] = "its times are more than 7 days apart";
      continue;
    }
    kinds[std::move(content)].push_back(steps.size());
    steps.push_back({begin, end});
  }
  const auto size = [&](const auto& kind) { return steps[kind.second.front()].end - steps[kind.second.front()].begin; };
  const auto usual = std::max_element(kinds.begin(), kinds.end(), [&](const auto& a, const auto& b) {
    return std::pair(a.second.size(), size(a)) < std::pair(b.second.size(), size(b));
  });
  for (auto kind = kinds.begin(); kind != kinds.end(); ++kind) {
    if (kind == usual) continue;
    for (const std::size_t step : kind->second) {
      lacks[operations[steps[step].begin].step] = difference(recording, kind->first, usual->first);
    }
  }
  for (const auto& [number, what] : lacks) left_out.push_back(fmt::format("step {}: {}", number, what));
  if (kinds.empty()) throw Error(ErrorKind::kBadInput, recording.header.source, left_out.front());
  std::vector<Rows> whole;
  for (const std::size_t step : usual->second) whole.push_back(steps[step]);
  return whole;
}

// ---------------------------------------------------------------- tasks

class GraphWriter {
 public:
  explicit GraphWriter(const Recording& recording)
      : recording_(recording), builder_(recording.names), delay_name_(builder_.intern("launch delay")) {
    for (std::uint32_t id = 0; id < recording.names->size(); ++id) {
      meanings_.push_back(meaning_of(recording.names->text(NameId{id})));
    }
    lanes_.resize(recording.workers.size() * kStreams, base::kNone<LaneId>);
    for (const Worker& worker : recording.workers) several_tp_ = several_tp_ || worker.tp_rank > 0;
  }

  PipelineGraph run() {
    PipelineGraph result;
    barrier_ = add_barrier();
    for (const Rows rows : whole_steps(recording_, result.left_out)) {
      const std::span<const Operation> operations(recording_.operations.data() + rows.begin, rows.end - rows.begin);
      const Step step(recording_, meanings_, operations);
      result.unpaired += step.unpaired;
      result.steps.push_back(write(step, operations));
    }
    result.graph = std::move(builder_).build();
    return result;
  }

 private:
  TaskId add_barrier() { return builder_.add_task({.name = builder_.intern("step"), .kind = TaskKind::kOther}); }

  LaneId lane(std::size_t slot) {
    if (lanes_[slot] == base::kNone<LaneId>) {
      const auto rank = static_cast<std::uint32_t>(slot / kStreams);
      const Worker& worker = recording_.workers[rank];
      lanes_[slot] =
          builder_.add_lane({.rank = rank,
                             .name = fmt::format("stage {}, dp rank {}{}, {}", worker.stage, worker.dp_rank,
                                                 several_tp_ ? fmt::format(", tp rank {}", worker.tp_rank) : "",
                                                 kStreamNames[slot % kStreams]),
                             .device = true});
    }
    return lanes_[slot];
  }

  /// Adds the step behind the barrier, and the barrier behind it.
  PipelineStep write(const Step& step, std::span<const Operation> operations) {
    PipelineStep result{.number = operations.front().step, .begin = barrier_};
    std::int64_t step_begin = operations.front().begin, step_end = operations.front().end;
    for (const Operation& operation : operations) {
      step_begin = std::min(step_begin, operation.begin);
      step_end = std::max(step_end, operation.end);
    }
    result.recorded = step_end - step_begin;

    // When each operation could have begun; -1 = it depends on nothing in the step.
    std::vector<std::int64_t> ready(operations.size(), -1);
    std::vector<bool> followed(operations.size(), false);
    const auto note = [&](Index from, Index to) {
      ready[to] = std::max(ready[to], operations[from].end - step_begin);
      followed[from] = true;
    };
    for (const auto& lane : step.lanes) {
      for (std::size_t i = 1; i < lane.size(); ++i) note(lane[i - 1], lane[i]);
    }
    for (const auto& [from, to] : step.edges) note(from, to);

    std::vector<TaskId> first(operations.size()), task(operations.size());
    for (std::size_t slot = 0; slot < step.lanes.size(); ++slot) {
      for (const Index i : step.lanes[slot]) {
        const Operation& operation = operations[i];
        const Meaning& meaning = meanings_[base::index(operation.name)];
        const bool computes = meaning.stream == kCompute;
        const std::int64_t delay = operation.begin - step_begin - std::max<std::int64_t>(ready[i], 0);
        taskgraph::Task proto{.lane = lane(slot), .step = operation.step};
        if (delay > 0) {
          proto.duration = delay;
          proto.name = delay_name_;
          proto.kind = TaskKind::kDelay;
          first[i] = builder_.add_task(proto);
        }
        proto.duration = computes ? operation.end - operation.begin : 0;
        proto.name = operation.name;
        proto.kind = !computes                               ? TaskKind::kCollective
                     : meaning.role == Role::kCollectGarbage ? TaskKind::kHost
                                                             : TaskKind::kCompute;
        task[i] = builder_.add_task(proto);
        if (delay <= 0) first[i] = task[i];
        if (ready[i] < 0) builder_.add_edge(barrier_, first[i]);
      }
    }
    for (const auto& [from, to] : step.edges) builder_.add_edge(task[from], first[to]);
    for (const auto& group : step.groups) add_group(group, operations, task);
    barrier_ = add_barrier();
    for (Index i = 0; i < operations.size(); ++i) {
      if (!followed[i]) builder_.add_edge(task[i], barrier_);
    }
    result.end = barrier_;
    return result;
  }

  void add_group(const std::vector<Index>& group, std::span<const Operation> operations,
                 const std::vector<TaskId>& task) {
    std::int64_t last_begin = operations[group.front()].begin;
    for (const Index i : group) last_begin = std::max(last_begin, operations[i].begin);
    const auto own = [&](Index i) { return std::max<std::int64_t>(operations[i].end - last_begin, 0); };
    std::int64_t transfer = own(group.front());
    for (const Index i : group) transfer = std::min(transfer, own(i));
    const auto id = builder_.add_collective({.name = operations[group.front()].name, .transfer = transfer});
    for (const Index i : group) {
      builder_.add_member(id, task[i]);
      builder_.task(task[i]).duration = own(i) - transfer;
    }
  }

  const Recording& recording_;
  Builder builder_;
  NameId delay_name_;
  std::vector<Meaning> meanings_;  // by NameId
  std::vector<LaneId> lanes_;      // [worker * kStreams + stream]
  bool several_tp_ = false;
  TaskId barrier_{};
};

}  // namespace

PipelineGraph build_graph(const Recording& recording) {
  return GraphWriter(recording).run();
}

}  // namespace paceline::trace::ndtimeline
