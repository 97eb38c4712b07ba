#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "paceline/taskgraph/task_graph.h"
#include "paceline/trace/load.h"
#include "paceline/trace/understand/trace.h"

namespace paceline::trace {

/// Where a task was recorded. `row` is kNoRow for gaps and delays, which no row stands for.
struct EventRef {
  std::uint32_t rank = 0;  // index into Trace::ranks
  Row row = kNoRow;
};

/// A step of one rank in the graph. It is over when the thread that drives it has ended it and the device has done what
/// was launched in it, and lasts from the end of the step before it, the first one from the end of `begin`.
struct StepTasks {
  std::uint32_t rank = 0;
  std::int64_t number = -1;
  taskgraph::TaskId begin = base::kNone<taskgraph::TaskId>;  // kNone: from 0 on
  taskgraph::TaskId host_end = base::kNone<taskgraph::TaskId>;
  taskgraph::TaskId device_end = base::kNone<taskgraph::TaskId>;  // kNone: nothing ran on a device
  std::int64_t recorded_begin = 0, recorded_end = 0;              // ns since JobGraph::origin
};

/// A parameter's gradient as it became ready: torch::autograd::AccumulateGrad with its shape.
struct Gradient {
  std::uint32_t rank = 0;
  std::int32_t step = -1;                                    // index
  taskgraph::TaskId ready = base::kNone<taskgraph::TaskId>;  // the task that ends with it
  std::int64_t elements = 0;
};

/// What is known of the dependencies of a recorded job.
struct GraphQuality {
  std::uint32_t launches = 0;      // edges from a call to its kernel
  std::uint32_t synchronised = 0;  // host waits whose end a device task explains
  std::uint32_t handed_over = 0;   // work that another thread started, and waits for other threads
  std::uint32_t inferred = 0;      // edges between streams read off the times alone
  std::uint32_t contradicted = 0;  // edges that the recorded times contradict, left out
  std::uint32_t joined = 0;        // collectives
  std::uint32_t apart = 0;         // collectives whose members do not meet in time, or of which one rank was recorded
  std::int64_t unexplained = 0;    // ns of kGap tasks
};

struct JobGraph {
  taskgraph::TaskGraph graph;
  std::vector<EventRef> source;              // per task
  std::vector<std::int64_t> recorded_start;  // per task, ns on the job's clock since `origin`
  std::vector<StepTasks> steps;              // by rank, then order
  std::vector<Gradient> gradients;           // by rank, then the time at which they were ready; needs shapes recorded
  std::int64_t origin = 0;                   // the job's clock at 0
  GraphQuality quality;
};

/// How much of a job's dependencies goes into the graph; the lesser ones serve to compare.
enum class GraphModel : std::uint8_t {
  kFull,
  kDpro,     // no edges between streams, no waiting of the host for the device (dPRO, MLSys 2022)
  kDaydream  // every rank alone, its collectives as long as their bytes at a nominal bandwidth (Daydream, ATC 2020)
};

struct GraphOptions {
  GraphModel model = GraphModel::kFull;
};

/// All ranks of a job as one graph: host threads and device streams are lanes; launches, synchronisation, work handed
/// from thread to thread and collectives make its edges; what nothing explains is a kGap task. Replayed unchanged it
/// gives the recorded times again, but for edges that the record contradicts. `rows` are those of `trace.ranks`, in the
/// same order. O(rows log rows).
JobGraph build_graph(const std::vector<RankTrace>& rows, const Trace& trace, const GraphOptions& options = {});

/// Reads a job, keeps its rows, and builds the graph.
struct LoadedGraph {
  Trace trace;
  JobGraph job;
};
LoadedGraph load_graph(const std::vector<std::string>& arguments, const JobOptions& options = {},
                       const GraphOptions& graph_options = {});

}  // namespace paceline::trace
