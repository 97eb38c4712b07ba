#include "cli/run_command.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <signal.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <string_view>

namespace paceline::cli {
namespace {

std::atomic<pid_t> running_child{0};

/// A signal from a terminal reaches the whole process group, so the job has it already; others are passed on.
void pass_on(int number, siginfo_t* info, void*) {
  const int saved = errno;
  if (const pid_t child = running_child; child > 0 && info->si_code <= 0) ::kill(child, number);
  errno = saved;
}

void wait_through_signals() {
  struct sigaction action = {};
  action.sa_sigaction = pass_on;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  ::sigemptyset(&action.sa_mask);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2}) ::sigaction(number, &action, nullptr);
}

double seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
}

double now_seconds() {
  timespec time{};
  ::clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

}  // namespace

Outcome run_command(const std::vector<std::string>& command, const std::map<std::string, std::string>& variables,
                    bool discard_output) {
  std::vector<std::string> environment;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    if (!variables.contains(std::string(text.substr(0, text.find('='))))) environment.emplace_back(text);
  }
  for (const auto& [name, value] : variables) environment.push_back(name + "=" + value);
  std::vector<char*> arguments, settings;
  for (const std::string& argument : command) arguments.push_back(const_cast<char*>(argument.c_str()));
  for (const std::string& setting : environment) settings.push_back(const_cast<char*>(setting.c_str()));
  arguments.push_back(nullptr);
  settings.push_back(nullptr);

  posix_spawnattr_t attributes;
  ::posix_spawnattr_init(&attributes);
  sigset_t defaults;
  ::sigemptyset(&defaults);
  ::sigaddset(&defaults, SIGPIPE);  // ignored by us, and that would be inherited
  ::posix_spawnattr_setsigdefault(&attributes, &defaults);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
  posix_spawn_file_actions_t files;
  ::posix_spawn_file_actions_init(&files);
  if (discard_output) {
    ::posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    ::posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  }
  wait_through_signals();
  Outcome outcome;
  const double begin = now_seconds();
  pid_t child = 0;
  const int fault = ::posix_spawnp(&child, arguments[0], &files, &attributes, arguments.data(), settings.data());
  ::posix_spawn_file_actions_destroy(&files);
  ::posix_spawnattr_destroy(&attributes);
  if (fault != 0) {
    fmt::print(stderr, "paceline: {}: cannot run it: {}; give a command as you would type it\n", command[0],
               std::strerror(fault));
    outcome.started = false;
    outcome.exit_code = fault == ENOENT ? kNotFound : kNotExecutable;
    return outcome;
  }
  running_child = child;
  int status = 0;
  rusage usage{};
  while (::wait4(child, &status, 0, &usage) < 0 && errno == EINTR) {
  }
  running_child = 0;
  outcome.wall_seconds = now_seconds() - begin;
  outcome.cpu_seconds = seconds(usage.ru_utime) + seconds(usage.ru_stime);
  outcome.by_signal = WIFSIGNALED(status);
  outcome.exit_code = outcome.by_signal ? kSignalBase + WTERMSIG(status) : WEXITSTATUS(status);
  return outcome;
}

}  // namespace paceline::cli
