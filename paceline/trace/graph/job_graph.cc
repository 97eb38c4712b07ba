#include "paceline/trace/graph/job_graph.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <unordered_map>

#include "paceline/trace/graph/lanes.h"
#include "paceline/trace/understand/comm_events.h"
#include "paceline/trace/understand/host.h"
#include "paceline/trace/understand/launches.h"
#include "paceline/trace/understand/names.h"

namespace paceline::trace {
namespace {

using base::kNone;
using taskgraph::Builder;
using taskgraph::CollectiveId;
using taskgraph::TaskId;
using taskgraph::TaskKind;

/// A gap of a host thread that ends this soon after others are done was spent waiting for them.
constexpr std::int64_t kWakeUp = 300'000;
/// Shorter gaps are the interpreter's, whatever ends in them.
constexpr std::int64_t kShortestWait = 100'000;
/// A collective that starts this soon behind another on its thread stood in the queue.
constexpr std::int64_t kQueued = 100'000;
/// Two kernels on different streams that meet this closely: the second waited for the first. Kernels that follow each
/// other on one stream are 1 to 3 us apart, over an event it takes a few more (df_index_resolver, DLRM).
constexpr std::int64_t kMeets = 12'000;
/// Bytes of an element of a type that is not recorded: 32-bit floats are the most common.
constexpr std::int64_t kUnknownElement = 4;
/// Daydream's nominal network: 100 Gbit/s at 85 %, as dPRO's code has it for its baseline.
constexpr double kDaydreamBytesPerNs = 0.85 * 100 / 8;
/// dPRO keeps idle time between two tasks of a device as part of the first, up to 1000 us (the thresholds of its
/// collector); what is longer must come out of its graph.
constexpr std::int64_t kDproGap = 1'000'000;

using Proto = std::uint32_t;
constexpr Proto kNoProto = 0xFFFFFFFFu;

/// A task while it is still known when it ran.
struct ProtoTask {
  std::int64_t begin, end;  // recorded, on the job's clock
  std::int64_t duration;    // of it work; the rest is waiting
  LaneId lane = kNone<LaneId>;
  NameId name = kNone<NameId>, scope = kNone<NameId>;
  TaskKind kind = TaskKind::kOther;
  std::int32_t step = -1;
  EventRef source = {};
  CollectiveId collective = kNone<CollectiveId>;
};

class Assembler {
 public:
  Assembler(const std::vector<RankTrace>& rows, const Trace& trace, const GraphOptions& options)
      : rows_(rows), trace_(trace), options_(options) {}

  JobGraph assemble() {
    job_.origin = INT64_MAX;
    for (std::uint32_t r = 0; r < rows_.size(); ++r) {
      const auto& starts = rows_[r].slices.start;
      if (starts.empty()) continue;
      job_.origin = std::min(job_.origin, trace_.clocks[r].align(*std::min_element(starts.begin(), starts.end())));
    }
    for (std::uint32_t r = 0; r < rows_.size(); ++r) add_rank(r);
    if (options_.model == GraphModel::kFull) add_hidden_waits();
    join_collectives();
    return emit();
  }

 private:
  friend class RankAssembler;
  void add_rank(std::uint32_t rank);

  Proto add(ProtoTask task) {
    protos_.push_back(task);
    if (task.lane != kNone<LaneId>) on_lane_[base::index(task.lane)].push_back(static_cast<Proto>(protos_.size() - 1));
    return static_cast<Proto>(protos_.size() - 1);
  }
  LaneId add_lane(taskgraph::Lane lane) {
    on_lane_.emplace_back();
    return builder_.add_lane(std::move(lane));
  }
  void depend(Proto from, Proto to) { edges_.push_back({from, to}); }

  /// Work on a device: the same work in every step and rank has the same `work`.
  struct DeviceWork {
    Proto proto;
    std::int64_t launched;
    std::tuple<NameId, NameId, std::uint32_t> work;  // name, scope, the how-manieth of these in its step
  };

  /// Between streams only the wait that decided a start shows. What one rank waited for in one step the others wait for
  /// too, where they came later anyway.
  void add_hidden_waits() {
    using Source = std::pair<NameId, NameId>;
    std::map<std::tuple<NameId, NameId, std::uint32_t>, std::set<Source>> waits;
    std::map<Proto, const DeviceWork*> work_of;
    for (const auto& rank : device_work_) {
      for (const DeviceWork& work : rank) work_of[work.proto] = &work;
    }
    std::set<std::pair<Proto, Proto>> known;
    for (const auto& [from, to] : inferred_) {
      waits[work_of.at(to)->work].insert({protos_[from].name, protos_[from].scope});
      known.insert({from, to});
    }
    for (const auto& rank : device_work_) {
      std::map<std::pair<Source, std::int32_t>, std::vector<const DeviceWork*>> sources;  // by launch
      for (const DeviceWork& work : rank) {
        sources[{{protos_[work.proto].name, protos_[work.proto].scope}, protos_[work.proto].step}].push_back(&work);
      }
      for (auto& [of, list] : sources) {
        std::sort(list.begin(), list.end(),
                  [](const DeviceWork* a, const DeviceWork* b) { return a->launched < b->launched; });
      }
      for (const DeviceWork& work : rank) {
        const auto found = waits.find(work.work);
        if (found == waits.end()) continue;
        for (const Source& source : found->second) {
          const auto list = sources.find({source, protos_[work.proto].step});
          if (list == sources.end()) continue;
          const auto after = std::partition_point(list->second.begin(), list->second.end(),
                                                  [&](const DeviceWork* w) { return w->launched < work.launched; });
          if (after == list->second.begin()) continue;
          const Proto from = (*std::prev(after))->proto;
          if (protos_[from].lane == protos_[work.proto].lane || known.contains({from, work.proto})) continue;
          if (protos_[from].end > protos_[work.proto].begin) continue;
          depend(from, work.proto);
          ++job_.quality.inferred;
        }
      }
    }
  }

  /// Members of a collective meet: what they do together starts when the last is there and ends at the first end.
  void join_collectives() {
    for (const Collective& collective : trace_.collectives) {
      const std::span members(trace_.members.data() + collective.members_begin, collective.size());
      std::int64_t last_begin = INT64_MIN, first_end = INT64_MAX;
      std::vector<Proto> protos;
      for (const Member& member : members) {
        const auto found = member_proto_.find({member.rank, member.event});
        if (found == member_proto_.end()) continue;
        protos.push_back(found->second);
        last_begin = std::max(last_begin, protos_[found->second].begin);
        first_end = std::min(first_end, protos_[found->second].end);
      }
      const CommEvent& event = trace_.event(members.front());
      if (options_.model == GraphModel::kDaydream) {
        for (const Proto proto : protos) {
          const double bytes = 4.0 * static_cast<double>(std::max<std::int64_t>(event.elements, 0));
          protos_[proto].duration = static_cast<std::int64_t>(bytes / kDaydreamBytesPerNs);
        }
        continue;
      }
      if (protos.size() < 2 || last_begin > first_end || protos.size() < members.size()) {
        ++job_.quality.apart;
        continue;
      }
      ++job_.quality.joined;
      const RankSummary& summary = trace_.ranks[members.front().rank];
      const std::int64_t element_bytes =
          event.dtype == kNone<NameId> ? 0 : bytes_of_type(summary.names.text(event.dtype));
      const CollectiveId id = builder_.add_collective(
          {.name = builder_.intern(collective_name(collective.kind)),
           .group = builder_.intern(trace_.groups[collective.group]),
           .bytes = std::max<std::int64_t>(event.elements, 0) * (element_bytes > 0 ? element_bytes : kUnknownElement),
           .transfer = first_end - last_begin});
      for (const Proto proto : protos) {
        protos_[proto].collective = id;
        protos_[proto].duration = protos_[proto].end - first_end;
      }
    }
  }

  /// Puts tasks and gaps in the order of their lanes. A gap is what a task began later than all that it waits for
  /// ended.
  JobGraph emit() {
    std::vector<std::vector<Proto>> waits_for(protos_.size());
    for (const auto& [from, to] : edges_) {
      if (protos_[from].end <= protos_[to].begin) {
        waits_for[to].push_back(from);
      } else {
        ++job_.quality.contradicted;
      }
    }
    std::vector<TaskId> first_task(protos_.size(), kNone<TaskId>);  // the gap before it, or itself
    std::vector<TaskId> task_of(protos_.size(), kNone<TaskId>);
    const auto add_task = [&](const ProtoTask& proto, std::int64_t begin) {
      const bool is_gap = proto.kind == TaskKind::kHostGap && proto.collective == kNone<CollectiveId>;
      const bool kept = !is_gap || keeps_gap(proto.duration, begin == 0);
      const TaskId id = builder_.add_task({.duration = kept ? proto.duration : 0,
                                           .lane = proto.lane,
                                           .name = proto.name,
                                           .scope = proto.scope,
                                           .kind = proto.kind,
                                           .step = proto.step});
      job_.source.push_back(proto.source);
      job_.recorded_start.push_back(begin);
      return id;
    };
    const auto add_with_gap = [&](Proto p, std::int64_t ready) {
      const ProtoTask& proto = protos_[p];
      for (const Proto from : waits_for[p]) ready = std::max(ready, protos_[from].end);
      if (proto.begin > ready && keeps_gap(proto.begin - ready, ready == 0)) {
        ProtoTask gap = proto;
        gap.duration = proto.begin - ready;
        gap.source.row = kNoRow;
        gap.kind = gap_kind(proto, gap.duration, ready == 0);
        gap.name = gap_names_[static_cast<std::size_t>(gap.kind)];
        if (gap.kind == TaskKind::kGap) job_.quality.unexplained += gap.duration;
        first_task[p] = add_task(gap, ready);
      }
      task_of[p] = add_task(proto, proto.begin);
      if (proto.collective != kNone<CollectiveId>) builder_.add_member(proto.collective, task_of[p]);
      if (first_task[p] == kNone<TaskId>) {
        first_task[p] = task_of[p];
      } else if (proto.lane == kNone<LaneId>) {
        builder_.add_edge(first_task[p], task_of[p]);
      }
    };
    gap_names_[static_cast<std::size_t>(TaskKind::kGap)] = builder_.intern("gap");
    gap_names_[static_cast<std::size_t>(TaskKind::kDelay)] = builder_.intern("delay");
    gap_names_[static_cast<std::size_t>(TaskKind::kHostGap)] = builder_.intern("host gap");
    for (std::vector<Proto>& lane : on_lane_) {
      std::int64_t now = 0;
      for (const Proto p : lane) {
        add_with_gap(p, now);
        now = protos_[p].end;
      }
    }
    for (Proto p = 0; p < protos_.size(); ++p) {
      if (protos_[p].lane == kNone<LaneId>) add_with_gap(p, 0);
    }
    for (Proto to = 0; to < protos_.size(); ++to) {
      for (const Proto from : waits_for[to]) builder_.add_edge(task_of[from], first_task[to]);
    }
    for (StepTasks& step : job_.steps) {
      const Proto first = on_lane_[base::index(protos_[index(step.host_end)].lane)].front();
      for (TaskId* const proto : {&step.begin, &step.host_end, &step.device_end}) {
        if (*proto != kNone<TaskId>) *proto = task_of[index(*proto)];
      }
      // It begins with the recording: behind the gap before its lane's first task.
      if (step.begin == kNone<TaskId> && first_task[first] != task_of[first]) step.begin = first_task[first];
    }
    for (Gradient& gradient : job_.gradients) gradient.ready = task_of[index(gradient.ready)];
    job_.graph = std::move(builder_).build();
    return std::move(job_);
  }

  bool keeps_gap(std::int64_t length, bool first) const {
    return options_.model == GraphModel::kFull || first || length <= kDproGap;
  }

  static TaskKind gap_kind(const ProtoTask& proto, std::int64_t length, bool first) {
    if (first) return TaskKind::kDelay;  // where its recording begins
    if (proto.kind == TaskKind::kHost || proto.kind == TaskKind::kHostGap) return TaskKind::kHostGap;
    return length < kKernelGap ? TaskKind::kDelay : TaskKind::kGap;
  }

  const std::vector<RankTrace>& rows_;
  const Trace& trace_;
  const GraphOptions options_;
  Builder builder_;
  JobGraph job_;
  std::vector<ProtoTask> protos_;
  std::vector<std::vector<Proto>> on_lane_;
  std::vector<std::pair<Proto, Proto>> edges_;
  std::vector<std::vector<DeviceWork>> device_work_;                       // of each rank
  std::vector<std::pair<Proto, Proto>> inferred_;                          // edges between streams that decided a start
  std::map<std::pair<std::uint32_t, std::uint32_t>, Proto> member_proto_;  // (rank, event)
  NameId gap_names_[taskgraph::kTaskKinds] = {};
};

/// The tasks of one rank.
class RankAssembler {
 public:
  RankAssembler(Assembler& job, std::uint32_t rank)
      : job_(job),
        rank_(rank),
        trace_(job.rows_[rank]),
        slices_(trace_.slices),
        summary_(job.trace_.ranks[rank]),
        launcher_(link_launches(trace_)),
        parent_(link_parents(trace_)),
        names_(trace_.names.size(), kNone<NameId>) {}

  void run() {
    const std::optional<LaneId> main = main_thread(trace_);
    for (std::uint32_t id = 0; id < trace_.lanes.size(); ++id) {
      const Lane& lane = trace_.lanes[id];
      if (lane.device) continue;
      Thread thread{.recorded = id, .main = main && base::index(*main) == id, .pieces = {}, .protos = {}};
      if (thread.main || has_operators(lane)) {
        thread.pieces = pieces_of(trace_, lane);
        if (thread.main) main_ = threads_.size();
        threads_.push_back(std::move(thread));
      }
      for (Row row = lane.begin; row < lane.end; ++row) {
        if (is_host_collective(trace_, row)) gloo_.push_back(row);
      }
    }
    if (summary_.has_device) gloo_.clear();
    std::stable_sort(gloo_.begin(), gloo_.end(), [&](Row a, Row b) { return slices_.start[a] < slices_.start[b]; });
    cut_at_steps();
    find_waits_for_threads();
    find_waits_for_gloo();
    add_threads();
    add_gloo();
    add_device();
    tie_threads();
    tie_gloo();
    find_members();
    mark_steps();
    find_gradients();
  }

 private:
  struct Thread {
    std::uint32_t recorded;  // lane of the trace
    bool main;
    std::vector<Piece> pieces;
    std::vector<Proto> protos;               // one per piece; kNoProto where the thread had nothing to do
    std::vector<std::int64_t> started = {};  // moments at which another thread gave it work
  };

  // --- small helpers ----------------------------------------------------------------------------------------------
  std::int64_t at(std::int64_t time) const { return job_.trace_.clocks[rank_].align(time) - job_.job_.origin; }

  NameId keep(NameId id) {
    if (id == kNone<NameId>) return id;
    NameId& kept = names_[base::index(id)];
    if (kept == kNone<NameId>) kept = job_.builder_.intern(trace_.names.text(id));
    return kept;
  }

  bool full() const { return job_.options_.model == GraphModel::kFull; }

  bool has_operators(const Lane& lane) const {
    for (Row row = lane.begin; row < lane.end; ++row) {
      if (slices_.category[row] == Category::kCpuOp && !is_host_collective(trace_, row)) return true;
    }
    return false;
  }

  /// "span|operator" around a row of the host.
  NameId scope_of(Row row) {
    NameId span = kNone<NameId>, op = kNone<NameId>;
    for (Row up = row; up != kNoRow; up = parent_[up]) {
      if (slices_.category[up] == Category::kCpuOp && op == kNone<NameId>) op = slices_.name[up];
      if (slices_.category[up] == Category::kUserAnnotation && span == kNone<NameId> &&
          !trace_.name(up).starts_with("ProfilerStep#")) {
        span = slices_.name[up];
      }
    }
    const auto [found, added] = scopes_.try_emplace({span, op}, kNone<NameId>);
    if (added) {
      const auto text = [&](NameId id) { return id == kNone<NameId> ? std::string_view() : trace_.names.text(id); };
      found->second = job_.builder_.intern(fmt::format("{}|{}", text(span), text(op)));
    }
    return found->second;
  }

  std::int32_t step_at(std::int64_t time) const {
    const auto& steps = summary_.steps;
    const auto after =
        std::partition_point(steps.begin(), steps.end(), [&](const StepSummary& s) { return s.begin <= time; });
    if (after == steps.begin() || std::prev(after)->end <= time) return -1;
    return static_cast<std::int32_t>(std::prev(after) - steps.begin());
  }

  /// The piece's task of a thread that is over at `time` and nothing of which comes between; kNoProto before the first.
  static Proto over_at(const Thread& thread, std::int64_t time) {
    auto after =
        std::partition_point(thread.pieces.begin(), thread.pieces.end(), [&](const Piece& p) { return p.end <= time; });
    while (after != thread.pieces.begin()) {
      --after;
      const Proto proto = thread.protos[static_cast<std::size_t>(after - thread.pieces.begin())];
      if (proto != kNoProto) return proto;
    }
    return kNoProto;
  }
  static Proto beginning_at(const Thread& thread, std::int64_t time) {
    const auto found = std::partition_point(thread.pieces.begin(), thread.pieces.end(),
                                            [&](const Piece& p) { return p.begin < time; });
    return found == thread.pieces.end() || found->begin != time
               ? kNoProto
               : thread.protos[static_cast<std::size_t>(found - thread.pieces.begin())];
  }

  const Thread* thread_of(Row row) const {
    for (const Thread& thread : threads_) {
      if (thread.recorded == base::index(slices_.lane[row])) return &thread;
    }
    return nullptr;
  }

  // --- host threads -----------------------------------------------------------------------------------------------
  void cut_at_steps() {
    if (!main_) return;
    for (const StepSummary& step : summary_.steps) {
      cut(threads_[*main_].pieces, step.begin);
      cut(threads_[*main_].pieces, step.end);
    }
  }

  /// Whether the main thread runs an operator or a call somewhere in [begin, end).
  bool main_works(std::int64_t begin, std::int64_t end) const {
    const auto& pieces = threads_[*main_].pieces;
    auto at = std::partition_point(pieces.begin(), pieces.end(), [&](const Piece& p) { return p.end <= begin; });
    for (; at != pieces.end() && at->begin < end; ++at) {
      if (at->row != kNoRow) return true;
    }
    return false;
  }

  /// Threads besides the main one (autograd's) start when it gives them work, and it waits for them where it stands
  /// still while they run.
  void find_waits_for_threads() {
    if (!main_) return;
    for (std::size_t t = 0; t < threads_.size(); ++t) {
      Thread& worker = threads_[t];
      if (worker.main) continue;
      for (std::size_t i = 0; i < worker.pieces.size(); ++i) {
        const Piece& piece = worker.pieces[i];
        if (piece.row == kNoRow) continue;
        const bool idle_before = i == 0 || (worker.pieces[i - 1].row == kNoRow &&
                                            main_works(worker.pieces[i - 1].begin, worker.pieces[i - 1].end));
        if (idle_before) worker.started.push_back(piece.begin);
      }
      for (const std::int64_t time : worker.started) cut(threads_[*main_].pieces, time);
      for (Piece& gap : threads_[*main_].pieces) {
        if (gap.row != kNoRow || gap.end - gap.begin < kShortestWait) continue;
        const auto after = std::partition_point(worker.pieces.begin(), worker.pieces.end(),
                                                [&](const Piece& p) { return p.end <= gap.end; });
        auto last = after;
        while (last != worker.pieces.begin() && std::prev(last)->row == kNoRow) --last;
        if (last == worker.pieces.begin()) continue;
        const std::int64_t end = std::prev(last)->end;
        const bool still_running = after != worker.pieces.end() && after->begin < gap.end && after->row != kNoRow;
        if (end > gap.begin && !still_running) note_wait(gap, end);
      }
    }
  }

  static void note_wait(Piece& gap, std::int64_t until) {
    const std::int64_t left = gap.end - until;
    if (left > std::max(kWakeUp, (gap.end - gap.begin) / 3)) return;
    gap.waits = true;
    gap.waited_until = std::max(gap.waited_until, until);
  }

  /// The thread that issues collectives at `time`: a worker in the middle of its work, else the main one.
  std::size_t driver_at(std::int64_t time) const {
    for (std::size_t t = 0; t < threads_.size(); ++t) {
      if (threads_[t].main) continue;
      const auto& pieces = threads_[t].pieces;
      const auto found =
          std::partition_point(pieces.begin(), pieces.end(), [&](const Piece& p) { return p.end <= time; });
      if (found != pieces.end() && found->begin <= time &&
          (found->row != kNoRow || !main_works(found->begin, found->end)))
        return t;
    }
    return *main_;
  }

  void find_waits_for_gloo() {
    if (!main_ || gloo_.empty()) return;
    std::unordered_map<std::uint32_t, std::int64_t> last_end;  // per gloo thread
    for (const Row row : gloo_) {
      const std::uint32_t lane = base::index(slices_.lane[row]);
      const auto previous = last_end.find(lane);
      const bool queued = previous != last_end.end() && slices_.start[row] - previous->second < kQueued;
      driver_.push_back(queued ? SIZE_MAX : driver_at(slices_.start[row]));
      if (!queued) cut(threads_[driver_.back()].pieces, slices_.start[row]);
      last_end[lane] = slices_.end(row);
    }
    if (!full()) return;
    for (Thread& thread : threads_) {
      std::int64_t last = 0;  // end of those that started before the gap is over
      auto next = gloo_.begin();
      for (Piece& gap : thread.pieces) {
        for (; next != gloo_.end() && slices_.start[*next] < gap.end; ++next) last = std::max(last, slices_.end(*next));
        if (gap.row != kNoRow || gap.end - gap.begin < kShortestWait) continue;
        const bool pending = last > gap.end;
        if (!pending && last > gap.begin) note_wait(gap, last);
      }
    }
  }

  void add_threads() {
    for (Thread& thread : threads_) {
      const Lane& lane = trace_.lanes[thread.recorded];
      const LaneId id =
          job_.add_lane({.rank = rank_, .name = fmt::format("thread {}{}", lane.thread, thread.main ? " (main)" : "")});
      for (const Piece& piece : thread.pieces) {
        const bool idle = !thread.main && piece.row == kNoRow && main_ && main_works(piece.begin, piece.end);
        if (idle) {
          thread.protos.push_back(kNoProto);
          continue;
        }
        ProtoTask task;
        task.begin = at(piece.waits ? piece.waited_until : piece.begin);
        task.end = at(piece.end);
        task.lane = id;
        task.source = {rank_, piece.row};
        task.kind = piece.row == kNoRow ? TaskKind::kHostGap : TaskKind::kHost;
        task.name = piece.row == kNoRow ? job_.builder_.intern("host gap") : keep(slices_.name[piece.row]);
        task.scope = scope_of(piece.row != kNoRow ? piece.row : piece.span);
        task.step = step_at(piece.begin);
        if (!summary_.has_device && piece.row != kNoRow) task.kind = TaskKind::kCompute;
        task.duration = task.end - task.begin;
        thread.protos.push_back(job_.add(task));
      }
    }
  }

  void tie_threads() {
    if (!main_) return;
    Thread& main = threads_[*main_];
    for (const Thread& worker : threads_) {
      if (worker.main) continue;
      for (const std::int64_t time : worker.started) {
        const Proto from = over_at(main, time), to = beginning_at(worker, time);
        if (from != kNoProto && to != kNoProto) job_.depend(from, to), ++job_.job_.quality.handed_over;
      }
      for (std::size_t i = 0; i < main.pieces.size(); ++i) {
        if (!main.pieces[i].waits) continue;
        const Proto from = over_at(worker, main.pieces[i].waited_until);
        if (from != kNoProto && job_.protos_[from].end > at(main.pieces[i].begin)) {
          job_.depend(from, main.protos[i]), ++job_.job_.quality.handed_over;
        }
      }
    }
  }

  // --- gloo -------------------------------------------------------------------------------------------------------
  void add_gloo() {
    std::map<std::uint32_t, LaneId> lanes;
    for (const Row row : gloo_) {
      const std::uint32_t recorded = base::index(slices_.lane[row]);
      const auto [lane, added] = lanes.try_emplace(recorded, kNone<LaneId>);
      if (added)
        lane->second = job_.add_lane({.rank = rank_, .name = fmt::format("gloo {}", trace_.lanes[recorded].thread)});
      ProtoTask task{.begin = at(slices_.start[row]), .end = at(slices_.end(row)), .duration = 0};
      const auto& lane_tasks = job_.on_lane_[base::index(lane->second)];
      if (!lane_tasks.empty()) task.begin = std::max(task.begin, job_.protos_[lane_tasks.back()].end);
      task.end = std::max(task.begin, task.end);
      task.duration = task.end - task.begin;
      task.lane = lane->second;
      task.name = keep(slices_.name[row]);
      task.kind = TaskKind::kCollective;
      task.step = step_at(slices_.start[row]);
      task.source = {rank_, row};
      gloo_proto_.push_back(job_.add(task));
    }
  }

  void tie_gloo() {
    if (gloo_.empty() || !main_) return;
    for (std::size_t i = 0; i < gloo_.size(); ++i) {
      if (driver_[i] == SIZE_MAX) continue;
      const Proto from = over_at(threads_[driver_[i]], slices_.start[gloo_[i]]);
      if (from != kNoProto) job_.depend(from, gloo_proto_[i]), ++job_.job_.quality.handed_over;
    }
    if (!full()) return;
    for (const Thread& thread : threads_) {
      for (std::size_t p = 0; p < thread.pieces.size(); ++p) {
        const Piece& gap = thread.pieces[p];
        if (!gap.waits) continue;
        for (std::size_t i = 0; i < gloo_.size(); ++i) {
          if (slices_.start[gloo_[i]] >= gap.waited_until) break;
          if (slices_.end(gloo_[i]) > gap.begin) job_.depend(gloo_proto_[i], thread.protos[p]), tied_.insert(gloo_[i]);
        }
      }
    }
    tie_to_span_ends();
  }

  /// A span that never ended before the collectives issued in it waits for them, also where they were done long before:
  /// DDP's backward pass does.
  void tie_to_span_ends() {
    const Thread& main = threads_[*main_];
    const Lane& lane = trace_.lanes[main.recorded];
    std::vector<Row> spans;
    for (Row row = lane.begin; row < lane.end; ++row) {
      if (slices_.category[row] == Category::kUserAnnotation && !is_host_collective(trace_, row)) spans.push_back(row);
    }
    std::stable_sort(spans.begin(), spans.end(),
                     [&](Row a, Row b) { return slices_.duration[a] < slices_.duration[b]; });
    const auto kind = [&](Row row) {
      return trace_.name(row).starts_with("ProfilerStep#") ? std::string_view("ProfilerStep#") : trace_.name(row);
    };
    std::map<std::string_view, bool> waits;
    const auto issued_in = [&](Row span, auto&& visit) {
      auto i = std::partition_point(gloo_.begin(), gloo_.end(),
                                    [&](Row g) { return slices_.start[g] < slices_.start[span]; });
      for (; i != gloo_.end() && slices_.start[*i] < slices_.end(span); ++i)
        visit(static_cast<std::size_t>(i - gloo_.begin()));
    };
    for (const Row span : spans) {
      issued_in(span, [&](std::size_t i) {
        bool& always = waits.try_emplace(kind(span), true).first->second;
        always &= slices_.end(gloo_[i]) <= slices_.end(span);
      });
    }
    for (const Row span : spans) {
      const auto always = waits.find(kind(span));
      if (always == waits.end() || !always->second) continue;
      issued_in(span, [&](std::size_t i) {
        if (tied_.contains(gloo_[i])) return;
        auto piece = std::partition_point(main.pieces.begin(), main.pieces.end(),
                                          [&](const Piece& p) { return p.end <= slices_.end(span); });
        while (piece != main.pieces.begin() && std::prev(piece)->row != kNoRow) --piece;
        if (piece == main.pieces.begin() || std::prev(piece)->begin < slices_.end(gloo_[i])) return;
        job_.depend(gloo_proto_[i], main.protos[static_cast<std::size_t>(std::prev(piece) - main.pieces.begin())]);
        tied_.insert(gloo_[i]);
      });
    }
  }

  // --- device -----------------------------------------------------------------------------------------------------
  struct DeviceTask {
    Proto proto;
    std::int64_t launched;  // recorded begin of the call, on the rank's clock; INT64_MIN = unknown
  };
  struct Stream {
    std::string device;
    std::vector<DeviceTask> tasks;  // in recorded order
    std::int64_t computation = 0;   // ns
  };

  void add_device() {
    std::vector<std::int64_t> latencies;
    for (std::uint32_t id = 0; id < trace_.lanes.size(); ++id) {
      const Lane& lane = trace_.lanes[id];
      if (!lane.device) continue;
      std::vector<Row> rows;
      for (Row row = lane.begin; row < lane.end; ++row) {
        if (is_device_work(slices_.category[row])) rows.push_back(row);
      }
      if (rows.empty()) continue;
      const LaneId lane_id = job_.add_lane(
          {.rank = rank_, .name = fmt::format("device {} stream {}", lane.process, lane.thread), .device = true});
      Stream stream{.device = lane.process, .tasks = {}};
      std::int64_t now = INT64_MIN;
      for (const Row row : rows) {
        ProtoTask task{.begin = std::max(now, slices_.start[row]), .end = 0, .duration = 0};
        now = std::max(task.begin, slices_.end(row));
        const Row call = launcher_[row];
        const std::int64_t launched = call == kNoRow ? INT64_MIN : slices_.start[call];
        if (launched != INT64_MIN && !stream.tasks.empty() &&
            job_.protos_[stream.tasks.back().proto].end <= at(launched)) {
          latencies.push_back(slices_.start[row] - launched);
        }
        task.begin = at(task.begin), task.end = at(now);
        task.duration = task.end - task.begin;
        task.lane = lane_id;
        task.name = keep(slices_.name[row]);
        task.scope = call == kNoRow ? kNone<NameId> : scope_of(call);
        const bool kernel = slices_.category[row] == Category::kKernel;
        const bool collective = kernel && kind_of_kernel(trace_.name(row)) != CollectiveKind::kNone;
        task.kind = collective ? TaskKind::kCollective : kernel ? TaskKind::kCompute : TaskKind::kCopy;
        task.step = step_at(launched == INT64_MIN ? slices_.start[row] : launched);
        task.source = {rank_, row};
        stream.tasks.push_back({job_.add(task), launched});
        if (task.kind == TaskKind::kCompute) stream.computation += task.duration;
        if (collective) device_collectives_.push_back({row, stream.tasks.back().proto});
      }
      streams_.push_back(std::move(stream));
    }
    if (streams_.empty()) return;
    std::int64_t typical = 5'000;
    if (!latencies.empty()) {
      std::nth_element(latencies.begin(), latencies.begin() + static_cast<std::ptrdiff_t>(latencies.size() / 2),
                       latencies.end());
      typical = latencies[latencies.size() / 2];
    }
    const NameId launch = job_.builder_.intern("launch");
    for (const Stream& stream : streams_) {
      for (std::size_t i = 0; i < stream.tasks.size(); ++i) tie_kernel(stream, i, typical, launch);
    }
    if (!full()) return;
    wait_for_computation();
    find_synchronisations();
    note_device_work();
  }

  void note_device_work() {
    std::vector<Assembler::DeviceWork> list;
    for (const Stream& stream : streams_) {
      for (const DeviceTask& task : stream.tasks) list.push_back({task.proto, task.launched, {}});
    }
    std::stable_sort(list.begin(), list.end(), [](const auto& a, const auto& b) { return a.launched < b.launched; });
    std::map<std::tuple<NameId, NameId, std::int32_t>, std::uint32_t> seen;
    for (auto& work : list) {
      const ProtoTask& proto = job_.protos_[work.proto];
      work.work = {proto.name, proto.scope, seen[{proto.name, proto.scope, proto.step}]++};
    }
    job_.device_work_.push_back(std::move(list));
  }

  /// A process group lets its stream wait for what was launched on the current one before the collective was issued
  /// (c10d::ProcessGroupNCCL: an event recorded there). Not so where the record shows collectives of the kind that
  /// started earlier: prefetched all-gathers depend on no computation.
  void wait_for_computation() {
    struct Candidate {
      Proto from, to;
      std::pair<NameId, std::string> of;
    };
    std::vector<Candidate> candidates;
    std::map<std::pair<NameId, std::string>, std::pair<int, int>> votes;  // for, against
    for (const Stream& stream : streams_) {
      const Stream* computation = nullptr;
      std::int64_t most = 0;
      for (const Stream& other : streams_) {
        if (other.device == stream.device && other.computation > most) computation = &other, most = other.computation;
      }
      if (computation == nullptr || computation == &stream) continue;
      for (const DeviceTask& task : stream.tasks) {
        const ProtoTask& proto = job_.protos_[task.proto];
        if (proto.kind != TaskKind::kCollective || task.launched == INT64_MIN) continue;
        const auto after = std::partition_point(computation->tasks.begin(), computation->tasks.end(),
                                                [&](const DeviceTask& t) { return t.launched < task.launched; });
        if (after == computation->tasks.begin()) continue;
        const std::string_view scope = job_.builder_.text(proto.scope);
        Candidate candidate{
            std::prev(after)->proto, task.proto, {proto.name, std::string(scope.substr(0, scope.find_first_of("(|")))}};
        const bool fits = job_.protos_[candidate.from].end <= proto.begin;
        ++(fits ? votes[candidate.of].first : votes[candidate.of].second);
        if (fits) candidates.push_back(std::move(candidate));
      }
    }
    for (const Candidate& candidate : candidates) {
      const auto& [fit, against] = votes[candidate.of];
      if (20 * against > fit + against) continue;
      job_.depend(candidate.from, candidate.to);
      ++job_.job_.quality.inferred;
    }
  }

  /// From the call to the kernel, and from another stream where only that explains when it began.
  void tie_kernel(const Stream& stream, std::size_t i, std::int64_t typical, NameId launch) {
    const DeviceTask& device = stream.tasks[i];
    const ProtoTask kernel = job_.protos_[device.proto];
    std::int64_t ready = i == 0 ? INT64_MIN : job_.protos_[stream.tasks[i - 1].proto].end;
    Proto issued = kNoProto;
    if (device.launched != INT64_MIN) {
      const Thread* const thread = thread_of(launcher_[kernel.source.row]);
      if (thread != nullptr) issued = over_at(*thread, device.launched);
    }
    const std::int64_t from_call = device.launched == INT64_MIN ? INT64_MIN : at(device.launched);
    if (full() && from_call != INT64_MIN && kernel.begin - std::max(ready, from_call + typical) > kMeets / 4) {
      if (const Proto other = meets(stream, device, kernel.begin); other != kNoProto) {
        job_.depend(other, device.proto);
        job_.inferred_.emplace_back(other, device.proto);
        ++job_.job_.quality.inferred;
        ready = std::max(ready, job_.protos_[other].end);
      }
    }
    if (issued == kNoProto || job_.protos_[issued].end > kernel.begin) return;
    const std::int64_t begin = job_.protos_[issued].end;
    // With nothing else to explain the start, a short time is the launch's own.
    std::int64_t latency = std::min(typical, kernel.begin - begin);
    if (ready <= begin + typical && kernel.begin - begin < kKernelGap) latency = kernel.begin - begin;
    ProtoTask delay{.begin = begin, .end = begin + latency, .duration = latency};
    delay.kind = TaskKind::kDelay;
    delay.name = launch;
    delay.step = kernel.step;
    delay.source = {rank_, kNoRow};
    const Proto proto = job_.add(delay);
    job_.depend(issued, proto), job_.depend(proto, device.proto);
    ++job_.job_.quality.launches;
  }

  /// A task of another stream of the device that ended just before `begin` and was launched before: the latest.
  Proto meets(const Stream& stream, const DeviceTask& device, std::int64_t begin) const {
    Proto best = kNoProto;
    for (const Stream& other : streams_) {
      if (&other == &stream || other.device != stream.device) continue;
      const auto after = std::partition_point(other.tasks.begin(), other.tasks.end(),
                                              [&](const DeviceTask& t) { return job_.protos_[t.proto].end <= begin; });
      if (after == other.tasks.begin()) continue;
      const DeviceTask& candidate = *std::prev(after);
      const std::int64_t end = job_.protos_[candidate.proto].end;
      if (begin - end > kMeets || candidate.launched > device.launched) continue;
      if (best == kNoProto || end > job_.protos_[best].end) best = candidate.proto;
    }
    return best;
  }

  /// A call that returns when the device has come so far lasts, as work, only from then on.
  void find_synchronisations() {
    for (Thread& thread : threads_) {
      for (std::size_t p = 0; p < thread.pieces.size(); ++p) {
        const Piece& piece = thread.pieces[p];
        if (piece.row == kNoRow || slices_.category[piece.row] != Category::kRuntime) continue;
        const std::string_view name = trace_.name(piece.row);
        const bool copy = name.find("emcpy") != name.npos;
        if (!copy && !is_synchronisation(name)) continue;
        const std::int64_t begin = at(piece.begin), end = at(piece.end);
        Proto last = kNoProto;
        for (const Stream& stream : streams_) {
          // The last task of the stream that was launched before the call, or by it.
          const auto after = std::partition_point(stream.tasks.begin(), stream.tasks.end(),
                                                  [&](const DeviceTask& t) { return t.launched <= piece.begin; });
          if (after == stream.tasks.begin()) continue;
          const DeviceTask& task = *std::prev(after);
          const std::int64_t done = job_.protos_[task.proto].end;
          if (copy && task.launched != piece.begin) continue;
          if (done <= begin || done > end) continue;
          if (is_device_synchronisation(name)) job_.depend(task.proto, thread.protos[p]);
          if (last == kNoProto || done > job_.protos_[last].end) last = task.proto;
        }
        if (last == kNoProto) continue;
        ++job_.job_.quality.synchronised;
        ProtoTask& call = job_.protos_[thread.protos[p]];
        call.begin = job_.protos_[last].end;
        call.duration = call.end - call.begin;
        if (!is_device_synchronisation(name)) job_.depend(last, thread.protos[p]);
      }
    }
  }

  // --- collectives and steps ----------------------------------------------------------------------------------------
  void find_members() {
    std::unordered_multimap<std::int64_t, std::pair<Row, Proto>> by_begin;
    for (const auto& [row, proto] : device_collectives_) by_begin.emplace(slices_.start[row], std::pair(row, proto));
    for (std::size_t i = 0; i < gloo_.size(); ++i)
      by_begin.emplace(slices_.start[gloo_[i]], std::pair(gloo_[i], gloo_proto_[i]));
    for (std::uint32_t e = 0; e < summary_.collectives.size(); ++e) {
      const CommEvent& event = summary_.collectives[e];
      const auto [begin, end] = by_begin.equal_range(event.begin);
      for (auto found = begin; found != end; ++found) {
        if (slices_.end(found->second.first) != event.end) continue;
        job_.member_proto_[{rank_, e}] = found->second.second;
        by_begin.erase(found);
        break;
      }
    }
  }

  void mark_steps() {
    if (!main_) return;
    const Thread& main = threads_[*main_];
    std::vector<Proto> last_on_device(summary_.steps.size(), kNoProto);
    for (const Stream& stream : streams_) {
      for (const DeviceTask& task : stream.tasks) {
        const ProtoTask& proto = job_.protos_[task.proto];
        if (proto.step < 0) continue;
        Proto& last = last_on_device[static_cast<std::size_t>(proto.step)];
        if (last == kNoProto || proto.end >= job_.protos_[last].end) last = task.proto;
      }
    }
    for (std::size_t i = 0; i < summary_.steps.size(); ++i) {
      const StepSummary& step = summary_.steps[i];
      StepTasks tasks{
          .rank = rank_, .number = step.number, .recorded_begin = at(step.begin), .recorded_end = at(step.end)};
      const auto as_id = [](Proto proto) { return static_cast<TaskId>(proto); };
      tasks.begin = as_id(over_at(main, step.begin));
      tasks.host_end = as_id(over_at(main, step.end));
      if (const Proto last = last_on_device[i]; last != kNoProto) {
        tasks.device_end = as_id(last);
        tasks.recorded_end = std::max(tasks.recorded_end, job_.protos_[last].end);
      }
      job_.job_.steps.push_back(tasks);
    }
  }

  /// A gradient is ready when its operator is over, on a device when what was launched until then is done.
  void find_gradients() {
    std::vector<Row> rows;
    for (Row row = 0; row < slices_.size(); ++row) {
      const bool shaped = slices_.category[row] == Category::kCpuOp && slices_.shapes[row] != kNone<NameId>;
      if (shaped && trace_.name(row) == "torch::autograd::AccumulateGrad") rows.push_back(row);
    }
    std::stable_sort(rows.begin(), rows.end(), [&](Row a, Row b) { return slices_.end(a) < slices_.end(b); });
    for (const Row row : rows) {
      const Thread* const thread = thread_of(row);
      const std::int32_t step = step_at(slices_.start[row]);
      if (thread == nullptr || step < 0) continue;
      Proto ready = over_at(*thread, slices_.end(row));
      for (const Stream& stream : streams_) {
        const auto after = std::partition_point(stream.tasks.begin(), stream.tasks.end(),
                                                [&](const DeviceTask& t) { return t.launched < slices_.end(row); });
        if (after == stream.tasks.begin()) continue;
        const Proto last = std::prev(after)->proto;
        const bool computes = job_.protos_[last].kind == TaskKind::kCompute;
        if (computes && (ready == kNoProto || job_.protos_[last].end > job_.protos_[ready].end)) ready = last;
      }
      if (ready == kNoProto) continue;
      const std::int64_t elements = elements_in(trace_.names.text(slices_.shapes[row]));
      job_.job_.gradients.push_back({.rank = rank_,
                                     .step = step,
                                     .ready = static_cast<TaskId>(ready),
                                     .elements = std::max<std::int64_t>(elements, 1)});  // a scalar has no dimensions
    }
  }

  Assembler& job_;
  const std::uint32_t rank_;
  const RankTrace& trace_;
  const Slices& slices_;
  const RankSummary& summary_;
  const std::vector<Row> launcher_, parent_;
  std::vector<NameId> names_;
  std::map<std::pair<NameId, NameId>, NameId> scopes_;
  std::vector<Thread> threads_;
  std::optional<std::size_t> main_;
  std::vector<Row> gloo_;
  std::vector<std::size_t> driver_;  // thread that issued gloo_[i]; SIZE_MAX = it stood in the queue
  std::vector<Proto> gloo_proto_;
  std::set<Row> tied_;
  std::vector<Stream> streams_;
  std::vector<std::pair<Row, Proto>> device_collectives_;
};

void Assembler::add_rank(std::uint32_t rank) {
  RankAssembler(*this, rank).run();
}

}  // namespace

JobGraph build_graph(const std::vector<RankTrace>& rows, const Trace& trace, const GraphOptions& options) {
  return Assembler(rows, trace, options).assemble();
}

LoadedGraph load_graph(const std::vector<std::string>& arguments, const JobOptions& options,
                       const GraphOptions& graph_options) {
  Loaded loaded = load(arguments, options.load);
  std::vector<RankSummary> summaries;
  for (const RankTrace& rank : loaded.ranks) summaries.push_back(reduce(rank, options.reduce));
  LoadedGraph result;
  result.trace = assemble(std::move(summaries));
  result.trace.warnings = std::move(loaded.warnings);
  result.job = build_graph(loaded.ranks, result.trace, graph_options);
  return result;
}

}  // namespace paceline::trace
