#pragma once
#include <cstddef>
#include <functional>
#include <memory>

namespace paceline::base {

/// Limits every later parallel_for and TaskGroup to `threads` (0 = all cores). Results never depend on it.
void set_threads(int threads);
int threads();

/// Calls body(i) for every i in [0, count), in any order, on several threads. Each call must write only to its own
/// place. Rethrows the first exception.
void parallel_for(std::size_t count, const std::function<void(std::size_t)>& body);

/// Tasks that run while the caller goes on; wait() rethrows the first exception. The destructor waits.
class TaskGroup {
 public:
  TaskGroup();
  ~TaskGroup();
  void run(std::function<void()> task);
  void wait();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace paceline::base
