#include "paceline/base/parallel.h"

#include <oneapi/tbb/global_control.h>
#include <oneapi/tbb/parallel_for.h>
#include <oneapi/tbb/task_arena.h>
#include <oneapi/tbb/task_group.h>

#if defined(__SANITIZE_THREAD__)
#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>
#endif

namespace paceline::base {
namespace {
std::unique_ptr<tbb::global_control>& limit() {
  static std::unique_ptr<tbb::global_control> control;
  return control;
}

#if defined(__SANITIZE_THREAD__)
/// The packaged oneTBB is not built for ThreadSanitizer, which takes all that it hands from thread to thread for races.
/// Plain threads show what matters: whether bodies race with one another.
void run_in_parallel(std::size_t count, const std::function<void(std::size_t)>& body) {
  std::atomic<std::size_t> next{0};
  std::mutex guard;
  std::exception_ptr first;
  std::vector<std::thread> workers;
  for (std::size_t t = 0; t < std::min<std::size_t>(count, static_cast<std::size_t>(threads())); ++t) {
    workers.emplace_back([&] {
      for (std::size_t i = next.fetch_add(1, std::memory_order_relaxed); i < count;
           i = next.fetch_add(1, std::memory_order_relaxed)) {
        try {
          body(i);
        } catch (...) {
          const std::lock_guard lock(guard);
          if (!first) first = std::current_exception();
          next = count;
        }
      }
    });
  }
  for (std::thread& worker : workers) worker.join();
  if (first) std::rethrow_exception(first);
}
#else
void run_in_parallel(std::size_t count, const std::function<void(std::size_t)>& body) {
  tbb::parallel_for(std::size_t{0}, count, body);
}
#endif
}  // namespace

void set_threads(int threads) {
  limit().reset();
  if (threads > 0) {
    limit() = std::make_unique<tbb::global_control>(tbb::global_control::max_allowed_parallelism,
                                                    static_cast<std::size_t>(threads));
  }
}

int threads() {
  return static_cast<int>(tbb::global_control::active_value(tbb::global_control::max_allowed_parallelism));
}

void parallel_for(std::size_t count, const std::function<void(std::size_t)>& body) {
  if (count == 0) return;
  if (count == 1 || threads() == 1) {
    for (std::size_t i = 0; i < count; ++i) body(i);
    return;
  }
  run_in_parallel(count, body);
}

struct TaskGroup::Impl {
  tbb::task_group group;
};

TaskGroup::TaskGroup() : impl_(std::make_unique<Impl>()) {}

TaskGroup::~TaskGroup() {
  try {
    impl_->group.wait();
  } catch (...) {  // NOLINT(bugprone-empty-catch): whoever wanted the error called wait()
  }
}

void TaskGroup::run(std::function<void()> task) {
  impl_->group.run(std::move(task));
}

void TaskGroup::wait() {
  impl_->group.wait();
}

}  // namespace paceline::base
