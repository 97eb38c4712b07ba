#pragma once
#include <cstdint>
#include <memory>

#include "paceline/replay/replay.h"

namespace paceline::replay {

/// Replays edits of one static graph by looking again only at what they reach: a change stops where a task ends when it
/// ended before. New times that cannot change the makespan (shorter ones off the critical path, longer ones within the
/// slack) reach nothing until an end is asked for. Construction O(tasks + edges); an edit O(reached log reached).
class Evaluator {
 public:
  explicit Evaluator(const TaskGraph& graph);
  ~Evaluator();

  const Timeline& base() const;
  /// Makespan with the edit made; what replay(graph, delta) gives. Throws Error(kBadInput) when the edit names what is
  /// not there or makes tasks wait for each other in a circle; a circle in which all last 0 ns is not noticed.
  std::int64_t makespan(const Delta& delta);
  /// Of the last edit: when a task of the graph or an added one ends.
  std::int64_t end(TaskId task) const;
  /// Of the last edit: how many tasks were looked at so far.
  std::size_t reached() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace paceline::replay
