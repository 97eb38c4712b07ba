#include "cli/recording.h"

#include <fmt/core.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "cli/inputs.h"
#include "paceline/base/error.h"
#include "paceline/base/file.h"
#include "paceline/base/format.h"

namespace paceline::cli {
namespace {

namespace fs = std::filesystem;
using base::Json;

constexpr int kMissingShown = 8;
constexpr std::chrono::seconds kPatience{10};

bool has_file(const Json& note) {
  return note.at("file").is_string();
}

struct StepRange {
  int first = 0, last = 0;
  auto operator<=>(const StepRange&) const = default;
};

StepRange steps_of(const Json& note) {
  const int first = note.at("first_step").get<int>();
  return {.first = first, .last = first + note.at("steps").get<int>() - 1};
}

std::string text_of(const StepRange& range) {
  return range.first == range.last ? fmt::format("step {}", range.first)
                                   : fmt::format("steps {}-{}", range.first, range.last);
}

std::int64_t world_size(const Recording& recording) {
  std::int64_t world = 0;
  for (const auto& [rank, note] : recording.ranks) world = std::max(world, note.at("world_size").get<std::int64_t>());
  return world;
}

/// CPU time in ns, means over the ranks of what the hook measured: a step's is the median over its kind.
struct Overhead {
  double before = 0, recorded = 0;  // of a step before and of a recorded step
  double fixed = 0;                 // start, stop and writing, once
  int ranks = 0, compared = 0;
};

Overhead overhead_of(const Recording& recording) {
  Overhead mean;
  for (const auto& [rank, note] : recording.ranks) {
    if (!has_file(note)) continue;
    const Json& cost = note.at("overhead");
    ++mean.ranks;
    mean.fixed += cost.at("start_cpu_ns").get<double>() + cost.at("stop_cpu_ns").get<double>();
    if (!cost.at("step_before").is_object() || !cost.at("step_recorded").is_object()) continue;
    ++mean.compared;
    mean.before += cost.at("step_before").at("cpu_ns").get<double>();
    mean.recorded += cost.at("step_recorded").at("cpu_ns").get<double>();
  }
  if (mean.ranks > 0) mean.fixed /= mean.ranks;
  if (mean.compared > 0) {
    mean.before /= mean.compared;
    mean.recorded /= mean.compared;
  }
  return mean;
}

std::string time_text(double nanoseconds) {
  return base::format_time(base::Nanos(static_cast<std::int64_t>(nanoseconds)));
}

std::string why_missing(const Recording& recording, std::int64_t rank) {
  const auto found = recording.ranks.find(rank);
  if (found == recording.ranks.end()) return "made no step where the hook runs";
  const Json& note = found->second;
  if (note.at("state") == "recording") return "was killed while it was recorded";
  if (const auto reason = note.at("reason").get<std::string>(); !reason.empty()) return reason;
  const auto steps = note.at("steps_seen").get<std::int64_t>();
  return fmt::format("ended after {} step{}", steps, steps == 1 ? "" : "s");
}

std::string recorded_lines(const Recording& recording) {
  std::map<StepRange, std::vector<std::int64_t>> ranges;
  std::uintmax_t bytes = 0;
  std::size_t count = 0;
  std::error_code fault;
  for (const auto& [rank, note] : recording.ranks) {
    if (!has_file(note)) continue;
    ++count;
    ranges[steps_of(note)].push_back(rank);
    const std::uintmax_t size = fs::file_size(recording.folder / note.at("file").get<std::string>(), fault);
    if (!fault) bytes += size;
  }
  const auto common = std::max_element(ranges.begin(), ranges.end(),
                                       [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
  const std::int64_t world = world_size(recording);
  std::string text =
      fmt::format("paceline: recorded {} of {} rank{}, {}, in {} ({})\n", count, world, world == 1 ? "" : "s",
                  text_of(common->first), recording.out, base::format_bytes({static_cast<std::int64_t>(bytes)}));
  for (const auto& [range, ranks] : ranges) {
    if (range == common->first) continue;
    for (const std::int64_t rank : ranks) text += fmt::format("paceline: rank {} has {}\n", rank, text_of(range));
  }
  if (const int got = common->first.last - common->first.first + 1; got < recording.steps) {
    text += fmt::format("paceline: {} of the {} steps asked for\n", got, recording.steps);
  }
  return text;
}

std::string missing_lines(const Recording& recording) {
  std::string text;
  int shown = 0;
  for (std::int64_t rank = 0; rank < world_size(recording) && !recording.join; ++rank) {
    const auto note = recording.ranks.find(rank);
    if (note != recording.ranks.end() && has_file(note->second)) continue;
    if (++shown > kMissingShown) return text + "paceline: more ranks are missing; see manifest.json\n";
    text += fmt::format("paceline: rank {} is missing: {}\n", rank, why_missing(recording, rank));
  }
  return text;
}

std::string overhead_lines(const Recording& recording) {
  const Overhead overhead = overhead_of(recording);
  std::string step = "of a recorded step not known, for want of steps before (--wait 3 or more)";
  if (overhead.compared > 0 && overhead.before > 0) {
    step = fmt::format("{:+.0f} % in a recorded step ({} against {} in the steps before{})",
                       100 * (overhead.recorded / overhead.before - 1), time_text(overhead.recorded),
                       time_text(overhead.before), overhead.recorded < overhead.before ? ": within the noise" : "");
  }
  std::string text =
      fmt::format("paceline: overhead in CPU time, mean of {} rank{}: {}; {} once to start, stop, write\n",
                  overhead.ranks, overhead.ranks == 1 ? "" : "s", step, time_text(overhead.fixed));
  if (recording.plain) {
    text +=
        fmt::format("paceline: whole command: {:.2f} s of CPU time against {:.2f} s without recording ({:+.1f} %)\n",
                    recording.outcome.cpu_seconds, recording.plain->cpu_seconds,
                    100 * (recording.outcome.cpu_seconds / recording.plain->cpu_seconds - 1));
  }
  return text;
}

void read_notes_once(Recording& recording) {
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(recording.folder / kNotes, ignored)) {
    const std::string name = entry.path().filename().string();
    recording.python |= name == "python";
    recording.torch |= name == "torch";
    recording.without_rank |= name == "no-rank";
    if (!name.starts_with("rank-") || !name.ends_with(".json")) continue;
    Json note = base::parse_json(base::read_text_file(entry.path()), entry.path().string());
    recording.ranks.emplace(note.at("rank").get<std::int64_t>(), std::move(note));
  }
}

bool someone_writes(const Recording& recording) {
  char host[256] = {};
  ::gethostname(host, sizeof host - 1);
  return std::any_of(recording.ranks.begin(), recording.ranks.end(), [&](const auto& entry) {
    const Json& note = entry.second;
    return note.at("state") == "recording" && note.at("host") == host && ::kill(note.at("pid").get<pid_t>(), 0) == 0;
  });
}

void add_new(Json& list, const Json& value) {
  if (std::find(list.begin(), list.end(), value) == list.end()) list.push_back(value);
}

}  // namespace

void read_notes(Recording& recording) {
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  read_notes_once(recording);
  while (someone_writes(recording) && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    recording.ranks.clear();
    read_notes_once(recording);
  }
}

bool anything_recorded(const Recording& recording) {
  return std::any_of(recording.ranks.begin(), recording.ranks.end(),
                     [](const auto& entry) { return has_file(entry.second); });
}

std::string why_nothing(const Recording& recording) {
  if (!recording.python) {
    return "no Python started with the hook; the command runs none, or with -I, -E or -S, or in a container";
  }
  if (!recording.torch) return "the command never imported torch";
  if (recording.ranks.empty() && recording.without_rank) {
    return "no distributed job: neither init_process_group nor a rank in the environment (RANK, SLURM_PROCID, "
           "OMPI_COMM_WORLD_RANK); to record a single process, put 'env RANK=0 WORLD_SIZE=1' before the command";
  }
  if (recording.ranks.empty()) return "torch was imported, but no optimizer of torch.optim made a step";
  std::int64_t most = 0;
  for (const auto& [rank, note] : recording.ranks) {
    if (note.at("state") == "recording" || note.at("state") == "done") {
      return fmt::format("rank {} {}", rank, why_missing(recording, rank));
    }
    most = std::max(most, note.at("steps_seen").get<std::int64_t>());
  }
  return fmt::format(
      "the job made {} step{} (numbered from 0) and the first to record was step {}; use a smaller --wait "
      "or a longer job",
      most, most == 1 ? "" : "s", recording.first_step);
}

base::Json manifest_of(const Recording& recording) {
  Json manifest = base::make_result("recording", 1);
  manifest["paceline"] = PACELINE_VERSION;
  manifest["command"] = recording.command;
  manifest["exit_code"] = recording.outcome.exit_code;
  manifest["steps_asked"] = {{"first", recording.first_step}, {"last", recording.first_step + recording.steps - 1}};
  Json hosts = Json::array(), versions = Json::array(), ranks = Json::array();
  for (const auto& [rank, note] : recording.ranks) {
    add_new(hosts, note.at("host"));
    add_new(versions, note.at("torch"));
    Json row = note;
    row.erase("world_size");
    row.erase("first_step");
    row["steps"] = nullptr;
    if (has_file(note)) row["steps"] = {{"first", steps_of(note).first}, {"last", steps_of(note).last}};
    ranks.push_back(std::move(row));
  }
  manifest["world_size"] = world_size(recording);
  manifest["hosts"] = std::move(hosts);
  manifest["torch"] = std::move(versions);
  manifest["ranks"] = std::move(ranks);
  const Overhead overhead = overhead_of(recording);
  Json cost = {{"once_cpu_ns", static_cast<std::int64_t>(overhead.fixed)}};
  if (overhead.compared > 0) {
    cost["step_before_cpu_ns"] = static_cast<std::int64_t>(overhead.before);
    cost["step_recorded_cpu_ns"] = static_cast<std::int64_t>(overhead.recorded);
  }
  cost["command_cpu_s"] = recording.outcome.cpu_seconds;
  if (recording.plain) cost["command_without_recording_cpu_s"] = recording.plain->cpu_seconds;
  manifest["overhead"] = std::move(cost);
  return manifest;
}

std::string summary_text(const Recording& recording) {
  return recorded_lines(recording) + missing_lines(recording) + overhead_lines(recording) +
         fmt::format("paceline: next: paceline diagnose {}\n", quoted(recording.out));
}

}  // namespace paceline::cli
