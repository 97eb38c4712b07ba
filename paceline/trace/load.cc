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

struct FileResult {
  std::vector<RankTrace> traces;
  std::vector<std::string> refused;  // messages of documents that are no traces
};

FileResult read_file(const std::filesystem::path& path, base::Progress& progress) {
  FileResult result;
  base::for_each_document(
      path,
      [&](const std::string& name, base::ByteSource& source) {
        try {
          result.traces.push_back(read_document(name, source));
        } catch (const Error& error) {
          if (error.kind() != ErrorKind::kBadInput) throw;
          result.refused.push_back(error.what());
        }
      },
      [&](std::int64_t bytes) { progress.advance(bytes); });
  return result;
}

/// Gives every trace a rank of its own.
void assign_ranks(std::vector<RankTrace>& traces, std::vector<std::string>& warnings) {
  std::map<std::uint32_t, std::string> taken;
  std::vector<RankTrace*> open;
  for (RankTrace& trace : traces) {
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
  for (RankTrace* trace : open) {
    while (taken.contains(next)) ++next;
    trace->rank = next;
    taken.emplace(next, trace->source);
    if (traces.size() > 1) {
      warnings.push_back(fmt::format("{}: no rank in the trace or its path; taken as rank {}", trace->source, next));
    }
  }
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
  const std::vector<std::filesystem::path> files = base::expand_inputs(arguments);
  std::int64_t total = 0;
  for (const auto& file : files) {
    std::error_code ignored;
    total += static_cast<std::int64_t>(std::filesystem::file_size(file, ignored));
  }
  std::vector<FileResult> results(files.size());
  {
    base::Progress progress("reading traces", options.show_progress ? total : 0);
    base::parallel_for(files.size(), [&](std::size_t i) {
      try {
        results[i] = read_file(files[i], progress);
      } catch (const Error& error) {
        if (error.kind() != ErrorKind::kBadInput || files.size() == 1) throw;
        results[i].refused.push_back(error.what());
      }
    });
  }
  Loaded loaded;
  std::vector<std::string> refused;
  for (FileResult& result : results) {
    for (RankTrace& trace : result.traces) {
      if (trace.events.total() == 0) {
        refused.push_back(trace.source + ": holds no events");
      } else {
        loaded.ranks.push_back(std::move(trace));
      }
    }
    for (std::string& message : result.refused) refused.push_back(std::move(message));
  }
  if (loaded.ranks.empty()) {
    const std::string message = refused.empty() ? "no traces found in it" : refused.front();
    const std::string where = refused.empty() ? arguments.front() : "";
    throw Error(ErrorKind::kBadInput, where, message);
  }
  for (const std::string& message : refused) loaded.warnings.push_back(message + " (passed over)");
  assign_ranks(loaded.ranks, loaded.warnings);
  std::sort(loaded.ranks.begin(), loaded.ranks.end(),
            [](const RankTrace& a, const RankTrace& b) { return *a.rank < *b.rank; });
  return loaded;
}

}  // namespace paceline::trace
