#include "paceline/trace/hosts.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "paceline/base/error.h"

namespace paceline::trace {
namespace {

constexpr std::size_t kMostNodes = 1u << 20;

std::optional<std::size_t> whole_number(std::string_view text) {
  std::size_t value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || code != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && static_cast<unsigned char>(text.front()) <= ' ') text.remove_prefix(1);
  while (!text.empty() && static_cast<unsigned char>(text.back()) <= ' ') text.remove_suffix(1);
  return text;
}

/// Parts between commas that are in no bracket.
std::vector<std::string_view> split_outside(std::string_view list) {
  std::vector<std::string_view> parts;
  int depth = 0;
  std::size_t begin = 0;
  for (std::size_t i = 0; i <= list.size(); ++i) {
    if (i < list.size() && list[i] == '[') ++depth;
    if (i < list.size() && list[i] == ']') --depth;
    if (i < list.size() && (list[i] != ',' || depth > 0)) continue;
    if (const auto part = trimmed(list.substr(begin, i - begin)); !part.empty()) parts.push_back(part);
    begin = i + 1;
  }
  return parts;
}

class NodeList {
 public:
  NodeList(std::string_view list, const std::string& where) : list_(list), where_(where) {}

  std::vector<std::string> expand() {
    for (const std::string_view part : split_outside(list_)) expand_part("", part);
    return std::move(nodes_);
  }

 private:
  [[noreturn]] void refuse() const {
    throw Error(ErrorKind::kBadInput, where_,
                fmt::format("'{}' is no list of nodes; expected one like node[01-08]", list_));
  }

  void expand_part(const std::string& done, std::string_view rest) {
    const std::size_t open = rest.find('[');
    if (open == std::string_view::npos) {
      if (rest.find(']') != std::string_view::npos || nodes_.size() >= kMostNodes) refuse();
      nodes_.push_back(done + std::string(rest));
      return;
    }
    const std::size_t close = rest.find(']', open);
    if (close == std::string_view::npos) refuse();
    const std::string before = done + std::string(rest.substr(0, open));
    for (const std::string_view range : split_outside(rest.substr(open + 1, close - open - 1))) {
      const std::size_t dash = range.find('-');
      const std::string_view low = range.substr(0, dash);
      const std::string_view high = dash == std::string_view::npos ? low : range.substr(dash + 1);
      const auto first = whole_number(low), last = whole_number(high);
      if (!first || !last || *last < *first || *last - *first >= kMostNodes) refuse();
      for (std::size_t number = *first; number <= *last; ++number) {
        expand_part(fmt::format("{}{:0{}}", before, number, low.size()), rest.substr(close + 1));
      }
    }
  }

  std::string_view list_;
  const std::string& where_;
  std::vector<std::string> nodes_;
};

struct Line {
  std::string_view text;
  std::size_t number;
};

std::vector<Line> lines_of(std::string_view text) {
  std::vector<Line> lines;
  for (std::size_t number = 1; !text.empty(); ++number) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    line = trimmed(line.substr(0, std::min(line.find('#'), line.size())));
    if (!line.empty()) lines.push_back({line, number});
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

/// "HOST slots=8", "HOST:8" or "HOST"; 0 ranks where the line does not say.
std::pair<std::string, std::size_t> host_and_slots(const Line& line, const std::string& where) {
  const std::size_t end = line.text.find_first_of(" \t:");
  const std::string host(line.text.substr(0, end));
  if (end == std::string_view::npos) return {host, 0};
  std::string_view rest = trimmed(line.text.substr(end + 1));
  for (const std::string_view word : {"slots=", "slots"}) {
    if (rest.starts_with(word)) rest = trimmed(rest.substr(word.size()));
  }
  if (rest.starts_with('=')) rest = trimmed(rest.substr(1));
  const auto slots = whole_number(rest.substr(0, std::min(rest.find_first_of(" \t"), rest.size())));
  if (!slots || *slots > kMostNodes) {
    throw Error(ErrorKind::kBadInput, fmt::format("{}:{}", where, line.number),
                fmt::format("'{}' is no host; expected 'RANK HOST', 'HOST', 'HOST slots=8' or node[01-08]", line.text));
  }
  return {host, *slots};
}

}  // namespace

std::vector<std::string> expand_node_list(std::string_view list, const std::string& where) {
  return NodeList(list, where).expand();
}

std::vector<std::string> hosts_of_ranks(std::string_view text, std::size_t ranks, const std::string& where) {
  std::vector<std::string> hosts(ranks);
  const std::vector<Line> lines = lines_of(text);
  if (lines.empty()) throw Error(ErrorKind::kBadInput, where, "names no hosts");
  bool numbered = true;
  for (const Line& line : lines) {
    const std::size_t space = line.text.find_first_of(" \t");
    numbered = numbered && space != std::string_view::npos && whole_number(line.text.substr(0, space)).has_value();
  }
  if (numbered) {
    for (const Line& line : lines) {
      const std::size_t space = line.text.find_first_of(" \t");
      const std::size_t rank = *whole_number(line.text.substr(0, space));
      if (rank < ranks) hosts[rank] = trimmed(line.text.substr(space));
    }
    return hosts;
  }
  std::vector<std::pair<std::string, std::size_t>> slots;
  for (const Line& line : lines) {
    const bool list = line.text.find_first_of("[,") != std::string_view::npos;
    if (!list) {
      slots.push_back(host_and_slots(line, where));
      continue;
    }
    for (std::string& node : expand_node_list(line.text, fmt::format("{}:{}", where, line.number))) {
      slots.emplace_back(std::move(node), 0);
    }
  }
  // Hosts that do not say how many ranks they have share what is left evenly.
  std::size_t told = 0, silent = 0;
  for (const auto& [host, count] : slots) {
    told += count;
    silent += count == 0;
  }
  const std::size_t left = ranks > told ? ranks - told : 0;
  if (silent > 0 && left % silent != 0) {
    throw Error(ErrorKind::kBadInput, where,
                fmt::format("{} ranks do not divide among {} hosts; give lines 'RANK HOST'", left, silent));
  }
  std::size_t rank = 0;
  for (const auto& [host, count] : slots) {
    const std::size_t of_host = count > 0 ? count : left / silent;
    for (std::size_t i = 0; i < of_host && rank < ranks; ++i) hosts[rank++] = host;
  }
  return hosts;
}

}  // namespace paceline::trace
