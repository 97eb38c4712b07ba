// measure FILE COMMAND ARG...: runs the command and writes to FILE: seconds of user+system time, seconds of wall time,
// peak bytes of the largest process, exit status (128 + signal when killed).
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>

namespace {
double seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
}
}  // namespace

int main(int count, char** arguments) {
  if (count < 3) {
    std::fprintf(stderr, "usage: measure FILE COMMAND ARG...\n");
    return 2;
  }
  const auto begin = std::chrono::steady_clock::now();
  const pid_t child = fork();
  if (child == 0) {
    execvp(arguments[2], arguments + 2);
    std::fprintf(stderr, "%s: %s\n", arguments[2], std::strerror(errno));
    _exit(127);
  }
  int status = 0;
  rusage usage{};
  if (child < 0 || wait4(child, &status, 0, &usage) != child) {
    std::perror("measure");
    return 5;
  }
  const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - begin;
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  std::FILE* note = std::fopen(arguments[1], "w");
  if (note == nullptr) {
    std::perror(arguments[1]);
    return 5;
  }
  std::fprintf(note, "%.6f %.6f %lld %d\n", seconds(usage.ru_utime) + seconds(usage.ru_stime), wall.count(),
               static_cast<long long>(usage.ru_maxrss) * 1024, code);
  return std::fclose(note) == 0 ? 0 : 5;
}
