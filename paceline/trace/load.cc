#include "paceline/trace/load.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <map>

#include "paceline/base/error.h"
#include "paceline/base/file.h"
#include "paceline/base/parallel.h"
#include "paceline/base/progress.h"
#include "paceline/trace/reader.h"

namespace paceline::trace {
namespace {

/// The number behind `word` in `text`, with at most one of - _ [ . = between; the last such place wins.
std::optional<std::uint32_t> number_behind(std::string_view text, std::string_view word) {
  for (std::size_t at = text.rfind(word); at != std::string_view::npos;
       at = at == 0 ? std::string_view::npos : text.rfind(word, at - 1)) {
    std::size_t begin = at + word.size();
    if (begin < text.size() && std::string_view("-_[.=").find(text[begin]) != std::string_view::npos) ++begin;
    std::uint32_t number = 0;
    const auto [end, code] = std::from_chars(text.data() + begin, text.data() + text.size(), number);
    if (code == std::errc{} && end > text.data() + begin) return number;
  }
  return std::nullopt;
}

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
  for (const std::string_view ending : {".md", ".txt", ".py", ".sh", ".log", ".yaml", ".yml", ".csv", ".html", "/manifest.json"}) {
    if (name.ends_with(ending)) return true;
  }
  return false;
}

template <class Item, class Convert>
FileResult<Item> read_file(const std::filesystem::path& path, base::Progress& progress, const Convert& convert) {
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
            result.items.push_back(convert(std::move(trace)));
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

/// `Result` is Loaded or LoadedSummaries.
template <class Result, class Convert>
Result load_all(const std::vector<std::string>& arguments, const LoadOptions& options, const Convert& convert) {
  using Item = typename decltype(Result::ranks)::value_type;
  const std::vector<std::filesystem::path> files = base::expand_inputs(arguments);
  std::int64_t total = 0;
  for (const auto& file : files) {
    std::error_code ignored;
    total += static_cast<std::int64_t>(std::filesystem::file_size(file, ignored));
  }
  std::vector<FileResult<Item>> results(files.size());
  {
    base::Progress progress("reading traces", options.show_progress ? total : 0);
    base::parallel_for(files.size(), [&](std::size_t i) {
      try {
        results[i] = read_file<Item>(files[i], progress, convert);
      } catch (const Error& error) {
        if (error.kind() != ErrorKind::kBadInput || files.size() == 1) throw;
        results[i].refused.push_back(error.what());
      }
    });
  }
  Result loaded;
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
  assign_ranks(loaded.ranks, loaded.warnings);
  std::sort(loaded.ranks.begin(), loaded.ranks.end(),
            [](const RankHeader& a, const RankHeader& b) { return *a.rank < *b.rank; });
  return loaded;
}

}  // namespace

std::optional<std::uint32_t> rank_from_path(std::string_view path) {
  while (!path.empty()) {
    const std::size_t slash = path.rfind('/');
    const std::string_view part = slash == std::string_view::npos ? path : path.substr(slash + 1);
    for (const std::string_view word : {"rank", "worker"}) {
      if (const auto rank = number_behind(part, word)) return rank;
    }
    path = slash == std::string_view::npos ? std::string_view{} : path.substr(0, slash);
  }
  return std::nullopt;
}

Loaded load(const std::vector<std::string>& arguments, const LoadOptions& options) {
  return load_all<Loaded>(arguments, options, [](RankTrace&& trace) { return std::move(trace); });
}

LoadedSummaries load_summaries(const std::vector<std::string>& arguments, const LoadOptions& options,
                               const ReduceOptions& reduce_options) {
  return load_all<LoadedSummaries>(arguments, options,
                                   [&](RankTrace&& trace) { return reduce(std::move(trace), reduce_options); });
}

}  // namespace paceline::trace
