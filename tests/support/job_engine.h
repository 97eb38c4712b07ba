// The engine under modern_job: machines (a rank's host threads and device streams) that run programs written as
// coroutines, and the rendezvous between them. All times are the true time in ns; clocks come in when events are
// written.
#pragma once
#include <coroutine>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "paceline/base/rng.h"

namespace paceline::test_support {

/// A coroutine that another one awaits, or that the engine starts.
class [[nodiscard]] Program {
 public:
  struct promise_type {
    std::coroutine_handle<> caller;
    std::exception_ptr error;
    Program get_return_object() { return Program(std::coroutine_handle<promise_type>::from_promise(*this)); }
    std::suspend_always initial_suspend() noexcept { return {}; }
    struct Return {
      bool await_ready() noexcept { return false; }
      std::coroutine_handle<> await_suspend(std::coroutine_handle<promise_type> ended) noexcept {
        const auto caller = ended.promise().caller;
        return caller ? caller : std::noop_coroutine();
      }
      void await_resume() noexcept {}
    };
    Return final_suspend() noexcept { return {}; }
    void return_void() {}
    void unhandled_exception() { error = std::current_exception(); }
  };

  Program(Program&& other) noexcept : handle_(std::exchange(other.handle_, {})) {}
  Program& operator=(Program&&) = delete;
  ~Program() {
    if (handle_) handle_.destroy();
  }

  bool await_ready() const { return false; }
  std::coroutine_handle<> await_suspend(std::coroutine_handle<> caller) {
    handle_.promise().caller = caller;
    return handle_;
  }
  void await_resume() const { rethrow(); }

  std::coroutine_handle<> handle() const { return handle_; }
  bool done() const { return handle_.done(); }
  void rethrow() const {
    if (handle_.promise().error) std::rethrow_exception(handle_.promise().error);
  }

 private:
  explicit Program(std::coroutine_handle<promise_type> handle) : handle_(handle) {}
  std::coroutine_handle<promise_type> handle_;
};

enum class LaneKind : std::uint8_t { kMain, kBackward, kCompute, kComm1, kComm2, kComm3, kComm4, kCopy };
inline constexpr int kLanes = 8;
constexpr bool is_stream(LaneKind lane) {
  return lane >= LaneKind::kCompute;
}

/// What the arguments of a collective say.
struct CommFacts {
  int group = -1;
  std::string_view collective;  // "allreduce", "_allgather_base", ...
  std::int64_t in_elements = 0, out_elements = 0, sequence = 0;
  int source = -1, destination = -1;  // ranks of a point to point transfer
};

struct Event {
  std::int64_t start = 0, duration = 0;
  std::string_view name, category;
  std::string_view args;  // JSON members beside those that every event of its kind has
  std::int64_t correlation = 0, external = 0;
  std::int32_t facts = -1;  // in Machine::facts
  LaneKind lane = LaneKind::kMain;
};

struct Group {
  std::string name, description;
  std::vector<int> ranks;
  bool point_to_point = false;
  double slow = 1;  // of its transfers, in the steps that slow_in_step says
  std::int64_t collectives = 0;
};

class Engine;
using TaskId = std::int64_t;
inline constexpr TaskId kNoTask = -1;

/// One rank: its host, which runs a program, and its device streams, which serve what was launched in order.
class Machine {
 public:
  Machine(Engine& engine, int number) : engine_(engine), rank(number) {}

  Engine& engine() { return engine_; }

  // --- host
  /// A slice on the current thread from now to the end of the scope.
  class Scope {
   public:
    Scope(Machine& machine, std::string_view name, std::string_view category, std::string_view args = {})
        : machine_(machine), event_(machine.open(name, category, args)) {}
    ~Scope() { machine_.close(event_); }
    Scope(const Scope&) = delete;

   private:
    Machine& machine_;
    std::size_t event_;
  };
  std::size_t open(std::string_view name, std::string_view category, std::string_view args);
  void close(std::size_t event) { events[event].duration = now - events[event].start; }
  /// Host time with the noise of hosts.
  void spend(double us);
  void pause(std::int64_t ns) { now += ns; }
  std::int64_t next_external() { return ++external_; }

  // --- device
  /// A runtime call that puts work on a stream.
  TaskId launch(LaneKind stream, std::string_view call, std::string_view name, std::string_view category,
                std::int64_t duration, std::string_view args = {});
  TaskId launch_collective(LaneKind stream, std::string_view name, const CommFacts& facts, std::int64_t duration,
                           std::uint64_t rendezvous, int members, std::string_view args = {});
  /// One cudaGraphLaunch (if `launched`) for all that is launched until the end of the scope: that has no calls of its
  /// own, and the host gets no operator to run.
  class Graph {
   public:
    Graph(Machine& machine, bool launched);
    ~Graph() { machine_.graph_ = 0; }
    Graph(const Graph&) = delete;

   private:
    Machine& machine_;
  };
  bool in_graph() const { return graph_ != 0; }
  /// What is launched on `stream` from now on starts after `task`.
  void wait(LaneKind stream, TaskId task);
  TaskId last_on(LaneKind stream) const { return last_task_[static_cast<std::size_t>(stream)]; }

  struct Until {
    Machine& machine;
    TaskId task;
    bool await_ready() const { return false; }
    void await_suspend(std::coroutine_handle<> handle) const { machine.block(handle, task); }
    void await_resume() const {}
  };
  /// Blocks the host until `task` has ended; the caller opens the scope of the runtime call.
  Until until(TaskId task) { return {*this, task}; }
  Until until_idle();

  struct StepEnd {
    Machine& machine;
    bool await_ready() const { return false; }
    void await_suspend(std::coroutine_handle<> handle) const { machine.block_at_step_end(handle); }
    void await_resume() const {}
  };
  /// All ranks meet here outside time, so that events can be written and forgotten.
  StepEnd step_end() { return {*this}; }

  std::int64_t now = 0;
  LaneKind thread = LaneKind::kMain;
  base::Rng host_noise{0}, device_noise{0};
  std::vector<Event> events;
  std::vector<CommFacts> facts;

 private:
  friend class Engine;
  struct Task {
    std::int64_t launched = 0, duration = 0;
    std::int64_t start = -1, end = -1;
    std::size_t event = 0;
    std::uint64_t rendezvous = 0;
    int members = 0;  // 0 = no collective
    bool registered = false;
    std::vector<TaskId> waits;
  };
  struct Stream {
    std::deque<TaskId> queue;
    std::int64_t free = 0;
    std::vector<TaskId> pending_waits;
  };

  void block(std::coroutine_handle<> handle, TaskId task);
  void block_at_step_end(std::coroutine_handle<> handle);
  /// A runtime call; returns its correlation id.
  std::int64_t call_runtime(std::string_view call, double us);
  TaskId add_task(LaneKind stream, std::string_view call, Task task, Event event);
  bool ended(TaskId task, std::int64_t* end = nullptr) const;
  bool advance_streams();
  bool advance_head(Stream& stream);
  void forget_step();

  Engine& engine_;
  std::vector<Task> tasks_;
  TaskId first_task_ = 0;
  Stream streams_[kLanes];
  TaskId last_task_[kLanes] = {kNoTask, kNoTask, kNoTask, kNoTask, kNoTask, kNoTask, kNoTask, kNoTask};
  std::coroutine_handle<> resume_;
  TaskId blocked_on_ = kNoTask;
  bool at_step_end_ = false;
  std::int64_t correlation_ = 1000, external_ = 0;
  std::int64_t graph_ = 0;  // correlation of the graph launch that is open

 public:
  const int rank;
};

class Engine {
 public:
  explicit Engine(int ranks);

  /// Runs one program a rank to the end. `on_step` is called whenever all ranks have ended a step, before their events
  /// are forgotten.
  void run(const std::function<Program(Machine&)>& program, const std::function<void()>& on_step);

  std::vector<std::unique_ptr<Machine>> machines;
  std::vector<Group> groups;

  /// A copy of the text that lives as long as the engine.
  std::string_view text(const std::string& text) { return *texts_.insert(text).first; }

 private:
  friend class Machine;
  struct Rendezvous {
    std::vector<std::pair<Machine*, TaskId>> members;
    std::int64_t ready = 0, duration = 0;
  };
  void arrive(Machine& machine, TaskId task, std::int64_t ready);
  void settle();

  std::unordered_map<std::uint64_t, Rendezvous> rendezvous_;
  std::unordered_set<std::string> texts_;
  std::deque<Machine*> work_;
};

}  // namespace paceline::test_support
