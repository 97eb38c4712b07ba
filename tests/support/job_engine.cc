#include "tests/support/job_engine.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace paceline::test_support {
namespace {

constexpr std::int64_t kLaunchLatency = 3'000;  // from the end of the runtime call to the start on an idle device
constexpr std::int64_t kKernelGap = 1'200;      // between two kernels of a stream
constexpr std::int64_t kWakeUp = 4'000;         // of a host that waited for the device

}  // namespace

// ---------------------------------------------------------------- host

std::size_t Machine::open(std::string_view name, std::string_view category, std::string_view args) {
  Event event;
  event.start = now;
  event.name = name;
  event.category = category;
  event.args = args;
  event.external = external_;
  event.lane = thread;
  events.push_back(event);
  return events.size() - 1;
}

void Machine::spend(double us) {
  const double noisy = us * std::max(0.3, host_noise.normal(1.0, 0.12)) + (host_noise.chance(0.0005) ? 60.0 : 0.0);
  now += std::max<std::int64_t>(static_cast<std::int64_t>(noisy * 1000), 1);
}

void Machine::block(std::coroutine_handle<> handle, TaskId task) {
  resume_ = handle;
  blocked_on_ = task;
  engine_.work_.push_back(this);
}

void Machine::block_at_step_end(std::coroutine_handle<> handle) {
  resume_ = handle;
  at_step_end_ = true;
}

Machine::Until Machine::until_idle() {
  // The task that ends last is not known yet: an empty task behind all streams stands for it.
  Task marker;
  marker.launched = now;
  for (const TaskId last : last_task_) {
    if (last != kNoTask) marker.waits.push_back(last);
  }
  marker.event = events.size();  // none: see advance_head
  const TaskId id = first_task_ + static_cast<TaskId>(tasks_.size());
  tasks_.push_back(std::move(marker));
  streams_[static_cast<std::size_t>(LaneKind::kMain)].queue.push_back(id);
  return {*this, id};
}

// ---------------------------------------------------------------- device

std::int64_t Machine::call_runtime(std::string_view call, double us) {
  const std::size_t runtime = open(call, "cuda_runtime", {});
  events[runtime].correlation = ++correlation_;
  spend(us);
  close(runtime);
  return correlation_;
}

Machine::Graph::Graph(Machine& machine, bool launched) : machine_(machine) {
  if (launched) machine.graph_ = machine.call_runtime("cudaGraphLaunch", 14.0);
}

TaskId Machine::add_task(LaneKind stream, std::string_view call, Task task, Event event) {
  const std::size_t lane = static_cast<std::size_t>(stream);
  event.lane = stream;
  event.correlation = in_graph() ? graph_ : call_runtime(call, 4.0);
  event.external = in_graph() ? 0 : external_;
  task.launched = now;
  task.event = events.size();
  events.push_back(event);
  task.waits = std::exchange(streams_[lane].pending_waits, {});
  const TaskId id = first_task_ + static_cast<TaskId>(tasks_.size());
  tasks_.push_back(std::move(task));
  streams_[lane].queue.push_back(id);
  last_task_[lane] = id;
  return id;
}

TaskId Machine::launch(LaneKind stream, std::string_view call, std::string_view name, std::string_view category,
                       std::int64_t duration, std::string_view args) {
  Task task;
  task.duration = duration;
  Event event;
  event.name = name;
  event.category = category;
  event.args = args;
  return add_task(stream, call, std::move(task), event);
}

TaskId Machine::launch_collective(LaneKind stream, std::string_view name, const CommFacts& about, std::int64_t duration,
                                  std::uint64_t rendezvous, int members, std::string_view args) {
  Task task;
  task.duration = duration;
  task.rendezvous = rendezvous;
  task.members = members;
  Event event;
  event.name = name;
  event.category = "kernel";
  event.args = args;
  event.facts = static_cast<std::int32_t>(facts.size());
  facts.push_back(about);
  return add_task(stream, "cudaLaunchKernelExC", std::move(task), event);
}

void Machine::wait(LaneKind stream, TaskId task) {
  if (task == kNoTask) return;
  {
    const Scope record(*this, "cudaEventRecord", "cuda_runtime");
    spend(1.0);
  }
  {
    const Scope waiting(*this, "cudaStreamWaitEvent", "cuda_runtime");
    spend(0.8);
  }
  streams_[static_cast<std::size_t>(stream)].pending_waits.push_back(task);
}

bool Machine::ended(TaskId task, std::int64_t* end) const {
  if (task < first_task_) return true;  // of an earlier step
  const Task& known = tasks_[static_cast<std::size_t>(task - first_task_)];
  if (known.end < 0) return false;
  if (end != nullptr) *end = std::max(*end, known.end);
  return true;
}

bool Machine::advance_head(Stream& stream) {
  const TaskId id = stream.queue.front();
  Task& task = tasks_[static_cast<std::size_t>(id - first_task_)];
  if (task.registered) return false;  // waits for other ranks
  const bool marker = task.event >= events.size() || &stream == &streams_[0];
  std::int64_t start = marker ? task.launched : std::max(task.launched + kLaunchLatency, stream.free + kKernelGap);
  for (const TaskId waited : task.waits) {
    if (!ended(waited, &start)) return false;
  }
  task.start = start;
  if (task.members > 0) {
    task.registered = true;
    engine_.arrive(*this, id, start);
    return true;
  }
  task.end = start + task.duration;
  if (!marker) {
    events[task.event].start = start;
    events[task.event].duration = task.duration;
    stream.free = task.end;
  }
  stream.queue.pop_front();
  return true;
}

bool Machine::advance_streams() {
  bool any = false;
  for (bool moved = true; moved;) {
    moved = false;
    for (Stream& stream : streams_) {
      while (!stream.queue.empty() && advance_head(stream)) moved = true;
    }
    any = any || moved;
  }
  return any;
}

void Machine::forget_step() {
  first_task_ += static_cast<TaskId>(tasks_.size());
  tasks_.clear();
  events.clear();
  facts.clear();
}

// ---------------------------------------------------------------- all ranks

Engine::Engine(int ranks) {
  for (int rank = 0; rank < ranks; ++rank) machines.push_back(std::make_unique<Machine>(*this, rank));
}

/// A collective starts when its last member is ready; all members' kernels end together, within what notice takes.
void Engine::arrive(Machine& machine, TaskId id, std::int64_t ready) {
  Machine::Task& task = machine.tasks_[static_cast<std::size_t>(id - machine.first_task_)];
  const std::uint64_t key = task.rendezvous;
  Rendezvous& meeting = rendezvous_[key];
  meeting.members.emplace_back(&machine, id);
  meeting.ready = std::max(meeting.ready, ready);
  meeting.duration = std::max(meeting.duration, task.duration);
  if (meeting.members.size() < static_cast<std::size_t>(task.members)) return;
  const std::int64_t end = meeting.ready + meeting.duration;
  for (const auto& [member, member_id] : meeting.members) {
    Machine::Task& part = member->tasks_[static_cast<std::size_t>(member_id - member->first_task_)];
    part.end = end + static_cast<std::int64_t>(member->device_noise.below(2'000));
    Event& event = member->events[part.event];
    event.start = part.start;
    event.duration = part.end - part.start;
    Machine::Stream& stream = member->streams_[static_cast<std::size_t>(event.lane)];
    stream.free = part.end;
    stream.queue.pop_front();
    work_.push_back(member);
  }
  rendezvous_.erase(key);
}

void Engine::settle() {
  while (!work_.empty()) {
    Machine& machine = *work_.front();
    work_.pop_front();
    while (true) {
      machine.advance_streams();
      if (!machine.resume_ || machine.at_step_end_) break;
      if (machine.blocked_on_ != kNoTask) {
        std::int64_t end = 0;
        if (!machine.ended(machine.blocked_on_, &end)) break;
        if (end > machine.now) machine.now = end + kWakeUp;
        machine.blocked_on_ = kNoTask;
      }
      std::exchange(machine.resume_, {}).resume();
    }
  }
}

void Engine::run(const std::function<Program(Machine&)>& program, const std::function<void()>& on_step) {
  std::vector<Program> programs;
  programs.reserve(machines.size());
  for (const auto& machine : machines) {
    programs.push_back(program(*machine));
    machine->resume_ = programs.back().handle();
    work_.push_back(machine.get());
  }
  while (true) {
    settle();
    std::size_t done = 0, waiting = 0;
    for (std::size_t i = 0; i < programs.size(); ++i) {
      if (programs[i].done()) programs[i].rethrow();
      done += programs[i].done();
      waiting += machines[i]->at_step_end_;
    }
    if (done == programs.size()) return;
    if (waiting != programs.size()) throw std::logic_error("the simulated job hangs");
    on_step();
    for (const auto& machine : machines) {
      machine->forget_step();
      machine->at_step_end_ = false;
      work_.push_back(machine.get());
    }
  }
}

}  // namespace paceline::test_support
