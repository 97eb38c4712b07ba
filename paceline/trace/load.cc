#include "paceline/trace/load.h"

#include <fmt/core.h>
#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <regex>

#include "paceline/base/error.h"
#include "paceline/base/file.h"
#include "paceline/base/parallel.h"
#include "paceline/base/progress.h"
#include "paceline/trace/decimal.h"
#include "paceline/trace/hosts.h"
#include "paceline/trace/reader.h"
#include "paceline/trace/select.h"

namespace paceline::trace {
namespace {

/// What one file held; `Item` is a RankTrace or what it was reduced to.
template <class Item>
struct FileResult {
  std::vector<Item> items;
  std::vector<std::string> refused;  // messages of documents that are no traces
  bool damaged = false;              // one of them may have been a trace before it was damaged
};

/// Why a trace holds no events: the first loss, with its place, when there is one.
std::string no_events(const std::string& name, const Repairs& repairs) {
  for (std::size_t i = 0; i < static_cast<std::size_t>(Repair::kCount); ++i) {
    const auto repair = static_cast<Repair>(i);
    const Repairs::Row& row = repairs.row(repair);
    if (row.count == 0 || !loses_data(repair)) continue;
    return fmt::format("{}: {}: holds no whole event: {}", name, row.first_place, repair_meaning(repair));
  }
  return name + ": holds no events";
}

/// Notes, scripts and logs that people keep beside their traces are no news.
bool lies_beside(const std::string& message) {
  const std::string_view name = std::string_view(message).substr(0, message.find(": "));
  for (const std::string_view ending :
       {".md", ".txt", ".py", ".sh", ".log", ".yaml", ".yml", ".csv", ".html", "/manifest.json"}) {
    if (name.ends_with(ending)) return true;
  }
  return false;
}

template <class Item, class Convert>
FileResult<Item> read_file(const std::filesystem::path& path, const LoadOptions& options, base::Progress& progress,
                           const Convert& convert) {
  FileResult<Item> result;
  base::for_each_document(
      path,
      [&](const std::string& name, base::ByteSource& source) {
        try {
          RankTrace trace = read_document(name, source);
          if (trace.events.total() == 0) {
            result.refused.push_back(no_events(name, trace.repairs));
            result.damaged = result.damaged || trace.repairs.lost_data();
          } else {
            for (RankTrace& rank : split_ranks(std::move(trace))) {
              keep_steps(rank, options.steps);
              result.items.push_back(convert(std::move(rank)));
            }
          }
        } catch (const Error& error) {
          const bool damaged = error.kind() == ErrorKind::kDamagedInput;
          if (!damaged && error.kind() != ErrorKind::kBadInput) throw;
          result.refused.push_back(error.what());
          result.damaged = result.damaged || damaged;
        }
      },
      [&](std::int64_t bytes) { progress.advance(bytes); });
  return result;
}

/// Gives every trace a rank of its own.
template <class Item>
void assign_ranks(std::vector<Item>& traces, std::vector<std::string>& warnings) {
  std::map<std::uint32_t, std::string> taken;
  std::vector<RankHeader*> open;
  for (RankHeader& trace : traces) {
    if (!trace.rank) {
      trace.rank = rank_from_path(trace.source);
      if (trace.rank && traces.size() > 1) {
        warnings.push_back(fmt::format("{}: names no rank; taken as rank {} by its path", trace.source, *trace.rank));
      }
    }
    if (trace.rank && !taken.emplace(*trace.rank, trace.source).second) {
      warnings.push_back(fmt::format("{}: says rank {}, which {} has already; given the next free rank", trace.source,
                                     *trace.rank, taken[*trace.rank]));
      trace.rank.reset();
    }
    if (!trace.rank) open.push_back(&trace);
  }
  std::uint32_t next = 0;
  for (RankHeader* trace : open) {
    while (taken.contains(next)) ++next;
    trace->rank = next;
    taken.emplace(next, trace->source);
    if (traces.size() > 1) {
      warnings.push_back(fmt::format("{}: no rank in the trace or its path; taken as rank {}", trace->source, next));
    }
  }
}

/// The rank by the user's own expression, else by the words that people use.
class PathRanks {
 public:
  explicit PathRanks(const LoadOptions& options) {
    if (options.rank_regex.empty()) return;
    try {
      regex_.emplace(options.rank_regex);
    } catch (const std::regex_error& error) {
      throw Error(ErrorKind::kUsage, "--rank-regex", fmt::format("'{}': {}", options.rank_regex, error.what()));
    }
    if (regex_->mark_count() < 1) {
      throw Error(ErrorKind::kUsage, "--rank-regex",
                  fmt::format("'{}' has no group; put the rank in brackets, e.g. 'gpu([0-9]+)'", options.rank_regex));
    }
  }

  bool own() const { return regex_.has_value(); }
  std::optional<std::uint32_t> operator()(const std::string& path) const {
    if (!regex_) return rank_from_path(path);
    std::smatch match;
    if (!std::regex_search(path, match, *regex_)) return std::nullopt;
    const auto number = parse_integer(match[1].str());
    if (!number || *number < 0 || *number > 0xFFFFFFFE) return std::nullopt;
    return static_cast<std::uint32_t>(*number);
  }

 private:
  std::optional<std::regex> regex_;
};

/// The rank that the first bytes of a trace tell; nothing for archives and where it comes later.
std::optional<std::uint32_t> peek_rank(const std::filesystem::path& path) {
  constexpr std::size_t kHead = 64u << 10;
  std::string head(kHead, '\0');
  bool first = true;
  base::for_each_document(path, [&](const std::string&, base::ByteSource& source) {
    if (!first) return head.clear();
    first = false;
    head.resize(source.read(head));
  });
  const std::size_t info = head.find("\"distributedInfo\"");
  if (info == std::string::npos) return std::nullopt;
  static const std::regex kRank("\"rank\"\\s*:\\s*\"?([0-9]{1,9})");
  std::smatch match;
  if (!std::regex_search(head.cbegin() + static_cast<std::ptrdiff_t>(info), head.cend(), match, kRank)) {
    return std::nullopt;
  }
  return static_cast<std::uint32_t>(std::stoul(match[1].str()));
}

/// Keeps one capture of several; says which.
template <class Thing>
std::vector<Thing> one_capture(std::vector<Thing> things, const Captures& captures, const LoadOptions& options,
                               std::vector<std::string>& warnings) {
  if (captures.names.size() < 2) return things;
  const std::size_t chosen = choose_capture(captures, options.capture);
  if (options.capture.empty()) {
    constexpr std::size_t kShown = 8;
    const std::size_t from = captures.names.size() > kShown ? captures.names.size() - kShown : 0;
    const auto begin = captures.names.begin() + static_cast<std::ptrdiff_t>(from);
    warnings.push_back(fmt::format("{} captures are here ({}{}); this is the last, {} (--capture chooses)",
                                   captures.names.size(), from > 0 ? "..., " : "",
                                   fmt::join(begin, captures.names.end(), ", "), captures.names[chosen]));
  }
  std::vector<Thing> kept;
  for (std::size_t i = 0; i < things.size(); ++i) {
    if (captures.of_path[i] == chosen) kept.push_back(std::move(things[i]));
  }
  return kept;
}

std::vector<std::filesystem::path> choose_files(std::vector<std::filesystem::path> files, const LoadOptions& options,
                                                std::vector<std::string>& warnings) {
  if (!options.glob.empty()) {
    std::erase_if(files, [&](const std::filesystem::path& file) {
      return fnmatch(options.glob.c_str(), file.filename().c_str(), 0) != 0 &&
             fnmatch(options.glob.c_str(), file.c_str(), 0) != 0;
    });
    if (files.empty())
      throw Error(ErrorKind::kUsage, "--trace-glob", fmt::format("no file matches '{}'", options.glob));
  }
  const PathRanks rank_of(options);
  std::vector<std::string> paths;
  for (const auto& file : files) paths.push_back(file.string());
  if (!rank_of.own()) {
    const Captures captures = find_captures(paths, [&](std::size_t i) -> std::optional<std::uint32_t> {
      return lies_beside(paths[i]) ? std::nullopt : peek_rank(files[i]);
    });
    files = one_capture(std::move(files), captures, options, warnings);
  }
  if (options.ranks.all()) return files;
  // Where every path names another rank, the others need not be read.
  std::map<std::uint32_t, int> named;
  for (const auto& file : files) {
    const auto rank = rank_of(file.string());
    if (!rank || ++named[*rank] > 1) return files;
  }
  std::erase_if(files, [&](const auto& file) { return !options.ranks.contains(*rank_of(file.string())); });
  return files;
}

/// Members of archives are known only once they are read.
template <class Item>
std::vector<Item> choose_items(std::vector<Item> items, const LoadOptions& options,
                               std::vector<std::string>& warnings) {
  const PathRanks rank_of(options);
  std::vector<std::string> sources;
  for (const RankHeader& item : items) sources.push_back(item.source);
  if (rank_of.own()) {
    for (RankHeader& item : items) {
      if (const auto rank = rank_of(item.source)) item.rank = rank;
    }
    return items;
  }
  const Captures captures = find_captures(sources, [&](std::size_t i) -> std::optional<std::uint32_t> {
    return static_cast<const RankHeader&>(items[i]).rank;
  });
  return one_capture(std::move(items), captures, options, warnings);
}

/// By the user's list, else by the names that the TensorBoard handler gives files.
template <class Item>
void assign_hosts(std::vector<Item>& items, const LoadOptions& options) {
  std::vector<std::string> hosts;
  if (!options.hosts.empty()) {
    std::size_t ranks = 0;
    for (const RankHeader& item : items) ranks = std::max<std::size_t>({ranks, *item.rank + 1u, item.world_size});
    std::error_code ignored;
    const bool file = std::filesystem::is_regular_file(options.hosts, ignored);
    hosts = hosts_of_ranks(file ? base::read_text_file(options.hosts) : options.hosts, ranks,
                           file ? options.hosts : "--hosts");
  }
  for (RankHeader& item : items) {
    if (*item.rank < hosts.size() && !hosts[*item.rank].empty()) {
      item.host = hosts[*item.rank];
    } else if (const auto worker = worker_from_path(item.source); worker && item.host.empty()) {
      item.host = worker->host;
    }
  }
}

/// Lends the ranks of the first `files` results; not where it takes all of them to tell the ranks.
void lend(std::vector<FileResult<RankSummary>>& results, std::size_t files, const LoadOptions& options,
          const LookBetween& look) {
  std::map<std::uint32_t, RankSummary*> places;
  for (std::size_t i = 0; i < files; ++i) {
    for (RankSummary& item : results[i].items) {
      if (!options.rank_regex.empty() || !item.rank) return;
      if (options.ranks.contains(*item.rank) && !places.emplace(*item.rank, &item).second) return;
    }
  }
  std::vector<RankSummary> ranks;
  for (const auto& [number, place] : places) ranks.push_back(std::move(*place));
  assign_hosts(ranks, options);
  if (!ranks.empty()) look(ranks, files, results.size());
  std::size_t next = 0;
  for (const auto& [number, place] : places) *place = std::move(ranks[next++]);
}

/// `Result` is Loaded or LoadedSummaries.
template <class Result, class Convert>
Result load_all(const std::vector<std::string>& arguments, const LoadOptions& options, const Convert& convert,
                const LookBetween& look = {}) {
  using Item = typename decltype(Result::ranks)::value_type;
  Result loaded;
  const std::vector<std::filesystem::path> files =
      choose_files(base::expand_inputs(arguments), options, loaded.warnings);
  std::int64_t total = 0;
  for (const auto& file : files) {
    std::error_code ignored;
    total += static_cast<std::int64_t>(std::filesystem::file_size(file, ignored));
  }
  std::vector<FileResult<Item>> results(files.size());
  {
    base::Progress progress("reading traces", options.show_progress ? total : 0);
    const auto read = [&](std::size_t i) {
      try {
        results[i] = read_file<Item>(files[i], options, progress, convert);
      } catch (const Error& error) {
        if (error.kind() != ErrorKind::kBadInput || files.size() == 1) throw;
        results[i].refused.push_back(error.what());
      }
    };
    // Threads wait for each other before each look: eight files each keep that short beside the reading.
    const std::size_t at_once = look ? 8 * static_cast<std::size_t>(base::threads()) : files.size();
    for (std::size_t done = 0; done < files.size();) {
      const std::size_t count = std::min(at_once, files.size() - done);
      base::parallel_for(count, [&](std::size_t i) { read(done + i); });
      done += count;
      if constexpr (std::is_same_v<Item, RankSummary>) {
        if (look && done < files.size()) lend(results, done, options, look);
      }
    }
  }
  std::vector<std::string> refused;
  for (FileResult<Item>& result : results) {
    std::move(result.items.begin(), result.items.end(), std::back_inserter(loaded.ranks));
    std::move(result.refused.begin(), result.refused.end(), std::back_inserter(refused));
    loaded.damaged = loaded.damaged || result.damaged;
  }
  if (loaded.ranks.empty()) {
    throw Error(ErrorKind::kBadInput, refused.empty() ? arguments.front() : "",
                refused.empty() ? "no traces found in it" : refused.front());
  }
  for (const std::string& message : refused) {
    if (!lies_beside(message)) loaded.warnings.push_back(message + " (passed over)");
  }
  loaded.ranks = choose_items(std::move(loaded.ranks), options, loaded.warnings);
  assign_ranks(loaded.ranks, loaded.warnings);
  std::erase_if(loaded.ranks, [&](const RankHeader& trace) { return !options.ranks.contains(*trace.rank); });
  if (loaded.ranks.empty()) {
    throw Error(ErrorKind::kUsage, "--ranks", "none of the traces is of one of these ranks");
  }
  std::sort(loaded.ranks.begin(), loaded.ranks.end(),
            [](const RankHeader& a, const RankHeader& b) { return *a.rank < *b.rank; });
  assign_hosts(loaded.ranks, options);
  return loaded;
}

}  // namespace

Loaded load(const std::vector<std::string>& arguments, const LoadOptions& options) {
  return load_all<Loaded>(arguments, options, [](RankTrace&& trace) { return std::move(trace); });
}

LoadedSummaries load_summaries(const std::vector<std::string>& arguments, const LoadOptions& options,
                               const ReduceOptions& reduce_options, const LookBetween& look) {
  return load_all<LoadedSummaries>(
      arguments, options, [&](RankTrace&& trace) { return reduce(std::move(trace), reduce_options); }, look);
}

}  // namespace paceline::trace
