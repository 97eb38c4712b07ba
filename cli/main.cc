#include <fmt/core.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <exception>

#include "cli/command.h"
#include "paceline/base/error.h"
#include "paceline/base/parallel.h"

namespace {

void on_interrupt(int) {
  // Nothing is half-written: files are renamed into place when complete.
  constexpr char kMessage[] = "\npaceline: interrupted\n";
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, kMessage, sizeof kMessage - 1);
  std::_Exit(static_cast<int>(paceline::ErrorKind::kInterrupted));
}

int run(int argc, char** argv) {
  CLI::App app{"Where did the time of a training job go, and what to do about it.", "paceline"};
  app.set_version_flag("--version", "paceline " PACELINE_VERSION);
  int threads = 0;
  app.add_option("--threads", threads, "Threads to use (default: all cores)")->check(CLI::NonNegativeNumber);
  app.require_subcommand(1);
  app.fallthrough();  // --threads may stand behind the subcommand too
  paceline::cli::Run command;
  paceline::cli::add_diagnose(app, command);
  paceline::cli::add_compare(app, command);
  paceline::cli::add_replay(app, command);
  paceline::cli::add_tune(app, command);
  paceline::cli::add_convert(app, command);
  paceline::cli::add_record(app, command);
  paceline::cli::add_memory(app, command);
  paceline::cli::add_schedule(app, command);
  paceline::cli::add_gnn(app, command);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    fmt::print(stderr, "paceline: {}; see paceline --help\n", error.what());
    return static_cast<int>(paceline::ErrorKind::kUsage);
  }
  paceline::base::set_threads(threads);
  return command();
}

}  // namespace

int main(int argc, char** argv) {
  std::signal(SIGINT, on_interrupt);
  std::signal(SIGPIPE, SIG_IGN);
  try {
    return run(argc, argv);
  } catch (const paceline::Error& error) {
    fmt::print(stderr, "paceline: {}\n", error.what());
    return error.exit_code();
  } catch (const std::bad_alloc&) {
    fmt::print(stderr, "paceline: out of memory; give fewer traces at a time\n");
    return static_cast<int>(paceline::ErrorKind::kSystem);
  } catch (const std::exception& error) {
    fmt::print(stderr, "paceline: internal error: {}; this is a bug in Paceline, please report it\n", error.what());
    return static_cast<int>(paceline::ErrorKind::kBug);
  }
}
