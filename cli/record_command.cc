#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>

#include "cli/command.h"
#include "cli/recording.h"
#include "cli/run_command.h"
#include "paceline/base/error.h"
#include "paceline/base/file.h"

namespace paceline::cli {
namespace {

namespace fs = std::filesystem;

struct Options {
  std::vector<std::string> command;
  std::string out = "recording";
  // Five whole steps are the least that tell a habit from a single event (diagnose), and the last one is often cut
  // short. In simulated jobs whose rank is late by a seventh of the usual faults, 5 recorded steps found 4 of 8, 8
  // found all.
  std::string steps = "8";
  int wait = 5;
  bool wait_given = false;
  std::string stacks = "no";
  bool join = false;
  bool measure_overhead = false;
};

std::optional<int> to_integer(std::string_view text) {
  int number = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), number);
  return code == std::errc{} && end == text.data() + text.size() ? std::optional(number) : std::nullopt;
}

/// "--steps A-B", or "--wait N --steps M".
void set_steps(const Options& options, Recording& recording) {
  const std::string_view text = options.steps;
  const std::size_t dash = text.find('-', 1);
  const auto begin = to_integer(text.substr(0, dash));
  const auto end = dash == std::string_view::npos ? begin : to_integer(text.substr(dash + 1));
  if (!begin || !end || *begin < 1 || *end < *begin) {
    throw Error(ErrorKind::kUsage, "--steps",
                fmt::format("got '{}', expected a count such as 8 or a range such as 10-17; steps are numbered from 0, "
                            "and the first that can be recorded is 1",
                            text));
  }
  recording.first_step = dash == std::string_view::npos ? options.wait : *begin;
  recording.steps = dash == std::string_view::npos ? *begin : *end - *begin + 1;
  if (dash != std::string_view::npos && options.wait_given) {
    throw Error(ErrorKind::kUsage, "--wait", "given beside a range of --steps; leave one of them out");
  }
}

/// share/paceline/record of the installed command, else the source that this build was made from.
fs::path hook_folder() {
  std::error_code ignored;
  const fs::path self = fs::read_symlink("/proc/self/exe", ignored);
  const fs::path installed = self.parent_path().parent_path() / PACELINE_RECORD_INSTALLED;
  for (const fs::path& folder : {installed, fs::path(PACELINE_RECORD_SOURCE)}) {
    if (fs::exists(folder / "hook" / "sitecustomize.py", ignored)) return folder / "hook";
  }
  throw Error(ErrorKind::kSystem, "record",
              fmt::format("its hook for Python is neither in {} nor in {}; install Paceline again", installed.string(),
                          PACELINE_RECORD_SOURCE));
}

/// The folder, made; absolute, because the job may change its directory.
fs::path prepare_folder(const Options& options) {
  const fs::path folder = fs::absolute(options.out).lexically_normal();
  std::error_code fault;
  if (fs::exists(folder, fault) && !fs::is_directory(folder, fault)) {
    throw Error(ErrorKind::kBadInput, options.out, "is no folder; give another with --out");
  }
  if (!options.join && fs::exists(folder, fault) && !fs::is_empty(folder, fault)) {
    throw Error(ErrorKind::kBadInput, options.out,
                "is not empty; give another folder with --out, remove it, or add --join when another host of the same "
                "job records into it");
  }
  fs::create_directories(folder / kNotes, fault);
  if (fault) throw Error(ErrorKind::kSystem, options.out, fmt::format("cannot make it: {}", fault.message()));
  return folder;
}

/// Leaves nothing behind where nothing was recorded.
void remove_empty(const Recording& recording) {
  std::error_code ignored;
  if (recording.join) return;
  fs::remove_all(recording.folder / kNotes, ignored);
  fs::remove(recording.folder, ignored);
}

std::map<std::string, std::string> environment(const Options& options, const Recording& recording) {
  std::string path = hook_folder().string();
  const char* before = std::getenv("PYTHONPATH");
  if (before != nullptr && *before != '\0') path += fmt::format(":{}", before);
  return {{"PYTHONPATH", path},
          {"PACELINE_RECORD_OUT", recording.folder.string()},
          {"PACELINE_RECORD_FIRST", std::to_string(recording.first_step)},
          {"PACELINE_RECORD_STEPS", std::to_string(recording.steps)},
          {"PACELINE_RECORD_STACKS", options.stacks == "yes" ? "1" : "0"}};
}

int run(const Options& options) {
  Recording recording;
  recording.out = options.out;
  recording.command = options.command;
  recording.join = options.join;
  set_steps(options, recording);
  recording.folder = prepare_folder(options);
  const auto variables = environment(options, recording);
  if (options.measure_overhead) {
    recording.plain = run_command(options.command, {}, true);
    if (recording.plain->by_signal) {
      remove_empty(recording);
      return recording.plain->exit_code;
    }
    if (recording.plain->exit_code != 0 && recording.plain->started) {
      fmt::print(stderr, "paceline: the run without recording ended with {}: no overhead of the whole command\n",
                 recording.plain->exit_code);
      recording.plain.reset();
    }
  }
  const bool can_start = !recording.plain || recording.plain->started;
  recording.outcome = can_start ? run_command(options.command, variables, false) : *recording.plain;
  if (!recording.outcome.started) {
    remove_empty(recording);
    return recording.outcome.exit_code;
  }
  read_notes(recording);
  const int code = recording.outcome.exit_code;
  if (!anything_recorded(recording)) {
    fmt::print(stderr, "paceline: nothing recorded: {}{}\n", why_nothing(recording),
               code == 0 ? "" : fmt::format(" (the command ended with {})", code));
    remove_empty(recording);
    return code != 0 ? code : static_cast<int>(ErrorKind::kBadInput);
  }
  base::write_text_file(recording.folder / "manifest.json", base::to_text(manifest_of(recording)));
  fmt::print(stderr, "{}", summary_text(recording));
  return code;
}

}  // namespace

void add_record(CLI::App& app, Run& chosen) {
  const auto options = std::make_shared<Options>();
  CLI::App* command =
      app.add_subcommand("record", "Records some steps of every rank of a training job into one folder");
  command->footer(
      "Example:\n"
      "  paceline record --out recording -- torchrun --nproc-per-node 4 train.py\n"
      "  paceline diagnose recording\n"
      "For PyTorch jobs started by torchrun, mp.spawn, srun or mpirun. The script stays as it is: Python loads a hook\n"
      "from PYTHONPATH, which counts steps by the optimizer and runs PyTorch's profiler for the chosen ones. Steps "
      "are\n"
      "numbered from 0; step 0 cannot be recorded, its beginning is not seen. What this command has to say goes to\n"
      "standard error. On several hosts, with a shared folder: --join on all but the first to start.\n"
      "Exit codes: the command's own (128 + n when signal n ended it); 2 usage, 3 the folder is not empty, or the\n"
      "command ended well and nothing was recorded, 5 system, 126 the command cannot be run, 127 it was not found.");
  command->add_option("--out", options->out, "Folder to record into, new or empty")->capture_default_str();
  command->add_option("--steps", options->steps, "How many steps (8), or which (10-17)")->capture_default_str();
  CLI::Option* wait = command->add_option("--wait", options->wait, "Steps to leave alone first")
                          ->check(CLI::Range(1, 1'000'000'000))
                          ->capture_default_str();
  command
      ->add_option("--keep-python-stacks", options->stacks,
                   "yes: also the Python stack of each operator, which costs much time")
      ->check(CLI::IsMember({"yes", "no"}))
      ->capture_default_str();
  command->add_flag("--join", options->join, "The folder may hold what other hosts of the same job record");
  command->add_flag("--measure-overhead", options->measure_overhead,
                    "First run the command without recording, its output dropped, and compare the CPU time");
  command->add_option("COMMAND", options->command, "The command as you would type it, behind --")
      ->required()
      ->expected(1, -1);
  command->callback([options, wait, &chosen] {
    options->wait_given = wait->count() > 0;
    chosen = [options] { return run(*options); };
  });
}

}  // namespace paceline::cli
