#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "paceline/base/json.h"
#include "paceline/taskgraph/task_graph.h"

namespace paceline::replay {

/// What every task of a class would take if none straggled.
enum class Ideal : std::uint8_t {
  kMean,    // of computation: the work is there, if not evenly shared
  kMedian,  // of communication: its slow outliers are no work
  kNothing  // delays that the comparison leaves out
};

/// Tasks that should take equally long.
struct TaskClass {
  Ideal ideal = Ideal::kMedian;
  std::uint32_t group = 0;   // index into Roles::groups
  std::uint32_t absent = 0;  // how often it was not there, which counts as 0 ns
};

/// Workers by one of their coordinates, e.g. "dp rank".
struct Dimension {
  std::string name;
  std::vector<std::string> places;
  std::vector<std::uint32_t> place_of;  // per worker
};

/// A stretch that is measured: from the end of `begin` (kNone: from 0) to the end of `end`.
struct Span {
  taskgraph::TaskId begin = base::kNone<taskgraph::TaskId>, end = base::kNone<taskgraph::TaskId>;
};
struct Step {
  std::int64_t number = 0;
  std::vector<Span> spans;  // one for all, or one a worker; their mean counts
};

inline constexpr std::uint32_t kNobody = 0xFFFFFFFFu;

/// Who does the tasks of a graph, what they are compared with, and what is measured.
struct Roles {
  std::vector<std::string> groups;  // e.g. "forward-compute"
  std::vector<TaskClass> classes;
  std::vector<std::string> workers;  // names
  std::vector<Dimension> dimensions;
  std::optional<std::uint32_t> pipeline;  // the dimension whose last place ends the pipeline
  std::vector<Step> steps;
  std::vector<std::uint32_t> worker_of, class_of;  // per task; a task of no class (kNobody) always takes its own time
};

/// S of the part that keeps its own times while everything else is ideal.
struct Slowdown {
  std::string name;
  double factor = 1;
};
struct WorkerEffect {
  std::string name;
  double score = 1;         // the least of S of its places: how much it slows the job down by itself
  std::int64_t repair = 0;  // ns by which the mean step would be shorter if only this worker were ideal
};
struct StepTimes {
  std::int64_t number = 0;
  std::int64_t replayed = 0, without_delays = 0, ideal = 0;  // ns
};

/// Slowdowns by stragglers as StragglerAnalysis defines them (OSDI 2025). T means the mean step time.
struct Stragglers {
  std::vector<StepTimes> steps;
  std::int64_t replayed = 0;                                              // T of the graph as it is
  std::int64_t without_delays = 0;                                        // T without the delays that are left out
  std::int64_t ideal = 0;                                                 // T with every class ideal
  double slowdown = 1;                                                    // S = without_delays / ideal
  std::vector<Slowdown> groups;                                           // S_t
  std::vector<std::pair<std::string, std::vector<Slowdown>>> dimensions;  // S_w of the places of each dimension
  std::vector<WorkerEffect> workers;                                      // S_w, in the order of Roles::workers
  std::vector<std::uint32_t> worst;   // workers with the highest score, 3 % of them, rounded up
  std::optional<double> worst_share;  // M_W: which part of without_delays - ideal the repair of `worst` wins
  std::optional<double> last_share;   // M_S: the same for the last pipeline stage; both nothing when S = 1
};

/// Static graphs. All questions are variants of one graph, eight to a pass: O(questions * (tasks + edges)) time,
/// O(tasks) memory. Throws Error(kBadInput) when `roles` has no step or the ideal step takes no time.
Stragglers find_stragglers(const taskgraph::TaskGraph& graph, const Roles& roles);

/// Where the loss against the ideal comes from.
enum class Blame : std::uint8_t {
  kNoOne,      // S < 1.03, from which on StragglerAnalysis looks for causes
  kWorkers,    // the repair of the worst workers wins at least half of the loss
  kLastStage,  // that of the last pipeline stage does
  kSpread      // neither: many workers, or others from step to step
};
Blame blame(const Stragglers& stragglers);
std::string_view blame_name(Blame blame);

/// "paceline/stragglers/1".
base::Json to_json(const Stragglers& stragglers);

}  // namespace paceline::replay
