#include "paceline/trace/captures.h"

#include <fmt/core.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <map>
#include <numeric>
#include <set>

#include "paceline/base/error.h"

namespace paceline::trace {
namespace {

constexpr std::string_view kNone{};

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

struct Number {
  std::size_t begin, end;  // in the text searched
  std::uint32_t value;
};

/// The number behind `word` in `text`, with at most one of - _ [ . = between; the last such place wins.
std::optional<Number> number_behind(std::string_view text, std::string_view word) {
  for (std::size_t at = text.rfind(word); at != std::string_view::npos;
       at = at == 0 ? std::string_view::npos : text.rfind(word, at - 1)) {
    std::size_t begin = at + word.size();
    if (begin < text.size() && std::string_view("-_[.=").find(text[begin]) != std::string_view::npos) ++begin;
    std::uint32_t number = 0;
    const auto [end, code] = std::from_chars(text.data() + begin, text.data() + text.size(), number);
    if (code == std::errc{} && end > text.data() + begin) {
      return Number{begin, static_cast<std::size_t>(end - text.data()), number};
    }
  }
  return std::nullopt;
}

/// Where in the path its rank stands: in the file's name first, then in the folders from the innermost.
std::optional<Number> rank_in(std::string_view path) {
  std::string_view left = path;
  while (!left.empty()) {
    const std::size_t slash = left.rfind('/');
    const std::size_t offset = slash == std::string_view::npos ? 0 : slash + 1;
    for (const std::string_view word : {"rank", "worker"}) {
      if (auto rank = number_behind(left.substr(offset), word)) {
        rank->begin += offset;
        rank->end += offset;
        return rank;
      }
    }
    left = slash == std::string_view::npos ? kNone : left.substr(0, slash);
  }
  return std::nullopt;
}

/// "iteration_9" before "iteration_10".
bool natural_less(std::string_view a, std::string_view b) {
  std::size_t i = 0, j = 0;
  while (i < a.size() && j < b.size()) {
    if (is_digit(a[i]) && is_digit(b[j])) {
      const auto run = [](std::string_view text, std::size_t& at) {
        while (at < text.size() && text[at] == '0') ++at;
        const std::size_t begin = at;
        while (at < text.size() && is_digit(text[at])) ++at;
        return text.substr(begin, at - begin);
      };
      const std::string_view x = run(a, i), y = run(b, j);
      if (x.size() != y.size()) return x.size() < y.size();
      if (x != y) return x < y;
      continue;
    }
    if (a[i] != b[j]) return a[i] < b[j];
    ++i, ++j;
  }
  return a.size() - i < b.size() - j;
}

/// What of the keys differs, from one slash to another.
std::vector<std::string> short_names(const std::vector<std::string>& keys) {
  std::size_t front = keys.front().size(), back = keys.front().size();
  for (const std::string& key : keys) {
    const auto [a, b] = std::mismatch(key.begin(), key.end(), keys.front().begin(), keys.front().end());
    front = std::min(front, static_cast<std::size_t>(a - key.begin()));
    const auto [c, d] = std::mismatch(key.rbegin(), key.rend(), keys.front().rbegin(), keys.front().rend());
    back = std::min(back, static_cast<std::size_t>(c - key.rbegin()));
  }
  const std::size_t slash = front == 0 ? std::string::npos : keys.front().rfind('/', front - 1);
  front = slash == std::string::npos ? 0 : slash + 1;
  const std::string_view tail = std::string_view(keys.front()).substr(keys.front().size() - back);
  const std::size_t next = tail.find('/');
  back = next == std::string_view::npos ? 0 : tail.size() - next;
  std::vector<std::string> names;
  for (const std::string& key : keys) {
    const bool fits = front + back < key.size();
    names.push_back(fits ? key.substr(front, key.size() - back - front) : key);
  }
  return names;
}

/// Files of the TensorBoard handler: a capture is over when a worker writes again.
std::optional<Captures> by_worker(const std::vector<std::string>& paths) {
  std::vector<std::optional<WorkerName>> names;
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < paths.size(); ++i) {
    names.push_back(worker_from_path(paths[i]));
    if (names.back()) order.push_back(i);
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return names[a]->milliseconds < names[b]->milliseconds; });
  Captures captures;
  captures.of_path.assign(paths.size(), std::numeric_limits<std::size_t>::max());
  std::set<std::string> present;
  for (const std::size_t i : order) {
    if (captures.names.empty() || !present.insert(names[i]->worker).second) {
      captures.names.push_back(fmt::format("{}", names[i]->milliseconds));
      present = {names[i]->worker};
    }
    captures.of_path[i] = captures.names.size() - 1;
  }
  if (captures.names.size() < 2) return std::nullopt;
  for (std::size_t& capture : captures.of_path) capture = std::min(capture, captures.names.size() - 1);
  return captures;
}

/// Whether the files that name one rank hold different ones: ranks of hosts rather than of the job.
bool differ_inside(const std::vector<std::size_t>& files,
                   const std::function<std::optional<std::uint32_t>(std::size_t)>& recorded_rank) {
  std::set<std::uint32_t> recorded;
  for (const std::size_t file : files) {
    const auto rank = recorded_rank(file);
    if (!rank || !recorded.insert(*rank).second) return false;
  }
  return true;
}

}  // namespace

Ranges::Ranges(std::string_view text, std::string_view option) {
  const auto refuse = [&] {
    return Error(ErrorKind::kUsage, std::string(option),
                 fmt::format("'{}' is no list of numbers; expected one like 0-7,16", text));
  };
  std::string_view left = text;
  const auto number = [&] {
    std::int64_t value = 0;
    const auto [end, code] = std::from_chars(left.data(), left.data() + left.size(), value);
    if (code != std::errc{} || value < 0) throw refuse();
    left.remove_prefix(static_cast<std::size_t>(end - left.data()));
    return value;
  };
  while (true) {
    const std::int64_t first = number();
    std::int64_t last = first;
    if (left.starts_with('-')) {
      left.remove_prefix(1);
      last = number();
    }
    if (last < first) throw refuse();
    ranges_.emplace_back(first, last);
    if (left.empty()) return;
    if (!left.starts_with(',')) throw refuse();
    left.remove_prefix(1);
  }
}

bool Ranges::contains(std::int64_t number) const {
  return all() || std::any_of(ranges_.begin(), ranges_.end(),
                              [&](const auto& range) { return range.first <= number && number <= range.second; });
}

std::optional<std::uint32_t> rank_from_path(std::string_view path) {
  const auto rank = rank_in(path);
  return rank ? std::optional(rank->value) : std::nullopt;
}

std::optional<WorkerName> worker_from_path(std::string_view path) {
  std::string_view name = path.substr(path.rfind('/') + 1);
  if (name.ends_with(".gz")) name.remove_suffix(3);
  constexpr std::string_view kEnding = ".pt.trace.json";
  if (!name.ends_with(kEnding)) return std::nullopt;
  name.remove_suffix(kEnding.size());
  const auto number_at_end = [&](char before) -> std::optional<std::int64_t> {
    const std::size_t at = name.rfind(before);
    if (at == std::string_view::npos || at + 1 == name.size()) return std::nullopt;
    std::int64_t value = 0;
    const auto [end, code] = std::from_chars(name.data() + at + 1, name.data() + name.size(), value);
    if (code != std::errc{} || end != name.data() + name.size()) return std::nullopt;
    name = name.substr(0, at);
    return value;
  };
  WorkerName found;
  const auto milliseconds = number_at_end('.');
  if (!milliseconds) return std::nullopt;
  found.milliseconds = *milliseconds;
  found.worker = name;
  if (!number_at_end('_') || name.empty()) return std::nullopt;
  found.host = name;
  return found;
}

Captures find_captures(const std::vector<std::string>& paths,
                       const std::function<std::optional<std::uint32_t>(std::size_t)>& recorded_rank) {
  Captures captures;
  captures.names.emplace_back();
  captures.of_path.assign(paths.size(), 0);
  if (auto workers = by_worker(paths)) return *workers;

  std::map<std::uint32_t, std::vector<std::size_t>> of_rank;
  std::vector<std::string> keys(paths.size());
  for (std::size_t i = 0; i < paths.size(); ++i) {
    const auto rank = rank_in(paths[i]);
    if (!rank) continue;
    of_rank[rank->value].push_back(i);
    keys[i] = paths[i].substr(0, rank->begin) + "*" + paths[i].substr(rank->end);
  }
  bool repeated = false;
  for (const auto& [rank, files] : of_rank) {
    repeated = repeated || (files.size() > 1 && !differ_inside(files, recorded_rank));
  }
  if (!repeated) return captures;
  std::vector<std::string> distinct;
  for (const std::string& key : keys) {
    if (!key.empty()) distinct.push_back(key);
  }
  std::sort(distinct.begin(), distinct.end(), natural_less);
  distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
  if (distinct.size() < 2) return captures;
  captures.names = short_names(distinct);
  for (std::size_t i = 0; i < paths.size(); ++i) {
    const auto at = std::find(distinct.begin(), distinct.end(), keys[i]);
    // What names no rank lies beside the captures.
    captures.of_path[i] = at == distinct.end() ? distinct.size() - 1 : static_cast<std::size_t>(at - distinct.begin());
  }
  return captures;
}

std::size_t choose_capture(const Captures& captures, std::string_view wanted) {
  if (wanted.empty()) return captures.names.size() - 1;
  const auto whole = std::find(captures.names.begin(), captures.names.end(), wanted);
  if (whole != captures.names.end()) return static_cast<std::size_t>(whole - captures.names.begin());
  std::vector<std::size_t> holding;
  for (std::size_t i = 0; i < captures.names.size(); ++i) {
    if (captures.names[i].find(wanted) != std::string::npos) holding.push_back(i);
  }
  if (holding.size() == 1) return holding.front();
  throw Error(ErrorKind::kUsage, "--capture",
              captures.names.size() < 2
                  ? fmt::format("there is one capture only, '{}' names none of several", wanted)
                  : fmt::format("'{}' names {} of the captures here, expected one of {}", wanted,
                                holding.empty() ? "none" : "several", fmt::join(captures.names, ", ")));
}

}  // namespace paceline::trace
