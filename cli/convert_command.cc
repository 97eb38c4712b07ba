#include <fmt/core.h>
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>

#include "cli/command.h"
#include "cli/inputs.h"
#include "cli/output.h"
#include "paceline/base/error.h"
#include "paceline/base/file.h"
#include "paceline/base/format.h"
#include "paceline/base/parallel.h"
#include "paceline/diagnose/anonymise.h"
#include "paceline/diagnose/excerpt.h"
#include "paceline/report/chrome.h"
#include "paceline/report/speedscope.h"
#include "paceline/trace/chakra/chakra.h"
#include "paceline/trace/load.h"

namespace paceline::cli {
namespace {

namespace fs = std::filesystem;
using diagnose::Finding;
using diagnose::Selection;

struct Options {
  std::vector<std::string> paths;  // inputs, and last what to write
  std::string finding;
  bool raw_clocks = false, aligned = false, anonymise = false, speedscope = false;
  trace::LoadOptions load;

  std::vector<std::string> inputs() const { return {paths.begin(), paths.end() - 1}; }
  const std::string& output() const { return paths.back(); }
};

/// Of the ranks as they were loaded; from all ranks and steps of the job, because two ranks may share no collective.
std::vector<trace::Clock> clocks_of(const trace::Loaded& loaded, const Options& options) {
  if (options.load.ranks.all() && options.load.steps.all()) {
    std::vector<trace::RankSummary> summaries(loaded.ranks.size());
    base::parallel_for(summaries.size(), [&](std::size_t i) { summaries[i] = trace::reduce(loaded.ranks[i]); });
    return trace::assemble(std::move(summaries)).clocks;
  }
  trace::JobOptions whole;
  whole.load = options.load;
  whole.load.ranks = {};
  whole.load.steps = {};
  const trace::Trace job = trace::load_job(options.inputs(), whole);
  std::map<std::uint32_t, trace::Clock> of_rank;
  for (std::size_t i = 0; i < job.ranks.size(); ++i) of_rank[*job.ranks[i].rank] = job.clocks[i];
  std::vector<trace::Clock> clocks;
  for (const trace::RankTrace& rank : loaded.ranks) clocks.push_back(of_rank[*rank.rank]);
  return clocks;
}

constexpr std::string_view kChakra = ".et";

/// One file a rank: OUT.et, of several ranks OUT.0.et, OUT.1.et, ... as simulators look for them.
void write_chakra(const std::vector<trace::RankTrace>& ranks, const std::string& output) {
  const std::string stem = output.substr(0, output.size() - kChakra.size());
  for (const trace::RankTrace& rank : ranks) {
    const std::string file = ranks.size() == 1 ? output : fmt::format("{}.{}{}", stem, *rank.rank, kChakra);
    base::write_text_file(file, trace::chakra::serialise(trace::chakra::from_rank(rank)));
  }
}

int convert(const Options& options) {
  trace::Loaded loaded = trace::load(options.inputs(), options.load);
  std::vector<trace::Clock> clocks;
  if (!options.raw_clocks && (loaded.ranks.size() > 1 || options.aligned)) clocks = clocks_of(loaded, options);
  for (const std::string& warning : loaded.warnings) fmt::print(stderr, "paceline: {}\n", warning);
  if (options.anonymise) diagnose::anonymise(loaded.ranks);
  const std::string& output = options.output();
  if (output.ends_with(kChakra)) {
    write_chakra(loaded.ranks, output);
  } else if (options.speedscope || output.ends_with(".speedscope.json") || output.ends_with(".speedscope.json.gz")) {
    report::write_speedscope(loaded.ranks, clocks, output);
  } else {
    report::write_chrome(loaded.ranks, clocks, output);
  }
  fmt::print(stderr, "wrote {} ({} rank{})\n", output, loaded.ranks.size(), loaded.ranks.size() == 1 ? "" : "s");
  int code = 0;
  for (const trace::RankTrace& rank : loaded.ranks) code = std::max(code, report_damage(rank));
  return code;
}

// --- the excerpt of a finding ---------------------------------------------------------------------------------------

const Finding& finding_called(const diagnose::Diagnosis& diagnosis, const std::string& id) {
  std::string known;
  for (const Finding& finding : diagnosis.findings) {
    if (finding.id == id) return finding;
    known += (known.empty() ? "" : ", ") + finding.id;
  }
  throw Error(ErrorKind::kUsage, "--finding",
              fmt::format("there is no '{}'; the job has {}", id, known.empty() ? "no findings" : known));
}

trace::LoadOptions part_of(const Options& options, const Selection& selection) {
  trace::LoadOptions part = options.load;
  part.show_progress = false;
  part.ranks = trace::Ranges(fmt::format("{}", fmt::join(selection.ranks, ",")), "--ranks");
  if (selection.steps) {
    part.steps = trace::Ranges(fmt::format("{}-{}", selection.steps->first, selection.steps->second), "--steps");
  }
  return part;
}

diagnose::Diagnosis diagnosis_of(const std::vector<std::string>& inputs, const trace::LoadOptions& load) {
  trace::JobOptions job;
  job.load = load;
  return diagnose::diagnose(trace::load_job(inputs, job));
}

/// One file for each rank. Where hosts are known, files are named as the TensorBoard handler names them, so that they
/// are known again.
void write_ranks(const std::vector<trace::RankTrace>& ranks, const fs::path& folder) {
  for (const trace::RankTrace& rank : ranks) {
    const std::string name = rank.host.empty() ? fmt::format("rank-{}.json.gz", *rank.rank)
                                               : fmt::format("{}_{}.1.pt.trace.json.gz", rank.host, *rank.rank);
    report::write_chrome({&rank, 1}, {}, (folder / name).string(), /*arrows=*/false);
  }
}

/// A folder that goes away unless it is renamed to what it shall be.
class Draft {
 public:
  explicit Draft(const std::string& output) : output_(output), folder_(output + fmt::format(".tmp{}", ::getpid())) {
    std::error_code fault;
    const bool taken =
        fs::exists(output_, fault) && (!fs::is_directory(output_, fault) || !fs::is_empty(output_, fault));
    if (taken) {
      throw Error(ErrorKind::kBadInput, output, "is there already; an excerpt goes to a new or empty folder");
    }
  }
  ~Draft() { clear(); }
  Draft(const Draft&) = delete;
  Draft& operator=(const Draft&) = delete;

  const fs::path& empty_folder() const {
    clear();
    std::error_code fault;
    fs::create_directories(folder_, fault);
    if (fault) throw Error(ErrorKind::kBadInput, folder_.string(), "cannot make it: " + fault.message());
    return folder_;
  }
  void finish() const {
    std::error_code fault;
    fs::rename(folder_, output_, fault);
    if (fault) throw Error(ErrorKind::kSystem, output_.string(), "cannot write it: " + fault.message());
  }
  std::uintmax_t bytes() const {
    std::uintmax_t sum = 0;
    for (const fs::directory_entry& file : fs::directory_iterator(folder_)) sum += file.file_size();
    return sum;
  }

 private:
  void clear() const {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }
  fs::path output_, folder_;
};

/// Writes the part with ever more of the host's rows until what was written, read again, has the finding.
void write_excerpt(const Options& options, const Finding& finding, bool verdict, const Selection& selection) {
  using diagnose::HostRows;
  const Draft draft(options.output());
  for (const HostRows level :
       {HostRows::kLaunches, HostRows::kOutermost, HostRows::kOperators, HostRows::kEverything}) {
    std::vector<trace::RankTrace> ranks = trace::load(options.inputs(), part_of(options, selection)).ranks;
    Finding expected = finding;
    std::size_t rows = 0;
    const auto on_host = std::find_if(ranks.begin(), ranks.end(),
                                      [&](const trace::RankTrace& rank) { return rank.host == finding.host; });
    const auto host = static_cast<std::size_t>(on_host - ranks.begin());
    for (trace::RankTrace& rank : ranks) {
      diagnose::drop_rows(rank, level);
      rows += rank.slices.size();
    }
    if (options.anonymise) diagnose::anonymise(ranks);
    if (host < ranks.size()) expected.host = ranks[host].host;
    const fs::path& folder = draft.empty_folder();
    write_ranks(ranks, folder);
    trace::LoadOptions quiet;
    quiet.show_progress = false;
    const diagnose::Diagnosis again = diagnosis_of({folder.string()}, quiet);
    const Finding* same = diagnose::same_finding(again, expected, verdict);
    if (same == nullptr) continue;
    const std::string shown = fmt::format(
        "{} rank{}, {} step{}, {} events, {}: {} is {} there\n", ranks.size(), ranks.size() == 1 ? "" : "s",
        again.step_count, again.step_count == 1 ? "" : "s", base::format_count(static_cast<std::int64_t>(rows)),
        base::format_bytes({static_cast<std::int64_t>(draft.bytes())}), finding.id, same->id);
    draft.finish();
    fmt::print(stderr, "wrote {}: {}paceline: next: paceline diagnose {}\n", options.output(), shown,
               quoted(options.output()));
    return;
  }
  throw Error(ErrorKind::kInfeasible, options.output(),
              fmt::format("{} does not show in what can be written of its ranks and steps; share the traces themselves",
                          finding.id));
}

int excerpt(const Options& options) {
  trace::JobOptions job;
  job.load = options.load;
  const std::vector<std::string> inputs = options.inputs();
  const trace::Trace trace = trace::load_job(inputs, job);
  const diagnose::Diagnosis diagnosis = diagnose::diagnose(trace);
  const Finding& finding = finding_called(diagnosis, options.finding);
  const bool verdict = diagnose::main_finding(diagnosis) == &finding;
  const auto shows = [&](const Selection& selection) {
    return diagnose::same_finding(diagnosis_of(inputs, part_of(options, selection)), finding, verdict) != nullptr;
  };
  const auto selection = diagnose::smallest_selection(trace, diagnosis, finding, shows);
  if (!selection) {
    throw Error(ErrorKind::kInfeasible, options.finding,
                "does not show again in its own traces; this is a bug in Paceline, please report it");
  }
  write_excerpt(options, finding, verdict, *selection);
  return report_damage(trace);
}

}  // namespace

void add_convert(CLI::App& app, Run& chosen) {
  const auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "convert",
      "Traces as one clean Chrome/Perfetto or speedscope file on one clock, as Chakra, or the excerpt of a finding");
  command->footer(
      "Example:\n"
      "  paceline convert examples/slow_rank job.json    # then open it at ui.perfetto.dev\n"
      "  paceline convert traces two.json --ranks 26,27 --aligned\n"
      "  paceline convert traces job.speedscope.json     # then open it at speedscope.app\n"
      "  paceline convert traces job.et                  # Chakra, a file for each rank, each on its own clock\n"
      "  paceline convert traces excerpt --finding F1 --anonymise\n"
      "An excerpt is a folder with a small trace for each rank that is needed, and 'paceline diagnose' finds the same "
      "in "
      "it.\n"
      "Anonymised, names are hashes: who already knows a name can recognise it, nobody else can read it.");
  // One list: a greedy list of inputs would leave nothing to OUT.
  command->add_option("IN OUT", options->paths, "Trace files, directories or patterns, and last the file to write")
      ->required()
      ->expected(2, -1)
      ->option_text("IN... OUT");
  add_load_options(*command, options->load);
  CLI::Option* raw = command->add_flag("--raw-clocks", options->raw_clocks, "Keep each rank's own clock");
  command->add_flag("--aligned", options->aligned, "All ranks on the clock of the first (so it is unless --raw-clocks)")
      ->excludes(raw);
  command->add_flag("--speedscope", options->speedscope,
                    "For speedscope.app (so it is when OUT ends in .speedscope.json)");
  command->add_option("--finding", options->finding,
                      "The smallest part that still has this finding of 'paceline diagnose', e.g. F1; OUT is a folder");
  command->add_flag("--anonymise", options->anonymise, "Names as hashes, times from 0");
  command->callback([options, &chosen] {
    chosen = [options] { return options->finding.empty() ? convert(*options) : excerpt(*options); };
  });
}

}  // namespace paceline::cli
