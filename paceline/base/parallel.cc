#include "paceline/base/parallel.h"

#include <oneapi/tbb/global_control.h>
#include <oneapi/tbb/parallel_for.h>
#include <oneapi/tbb/task_arena.h>
#include <oneapi/tbb/task_group.h>

#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

namespace paceline::base {
namespace {
/// The packaged oneTBB is not built for ThreadSanitizer, which then does not see that bodies start after the call and
/// end before its return. These say so, and no more: two bodies are never ordered by them.
class Ordering {
 public:
  Ordering() { release(begin_); }
  void body_begins() { acquire(begin_); }
  void body_ends() { release(end_); }
  void all_ended() { acquire(end_); }

 private:
#if defined(__SANITIZE_THREAD__)
  static void release(char& mark) { __tsan_release(&mark); }
  static void acquire(char& mark) { __tsan_acquire(&mark); }
#else
  static void release(char&) {}
  static void acquire(char&) {}
#endif
  char begin_ = 0, end_ = 0;
};

std::unique_ptr<tbb::global_control>& limit() {
  static std::unique_ptr<tbb::global_control> control;
  return control;
}
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
  Ordering ordering;
  tbb::parallel_for(std::size_t{0}, count, [&](std::size_t i) {
    ordering.body_begins();
    body(i);
    ordering.body_ends();
  });
  ordering.all_ended();
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
