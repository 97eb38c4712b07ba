#include "paceline/schedule/csv.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>

#include "paceline/base/error.h"
#include "paceline/base/file.h"

namespace paceline::schedule {

std::string read_document_text(const std::filesystem::path& path) {
  std::string text;
  base::for_each_document(path, [&](const std::string&, base::ByteSource& bytes) { text += base::read_all(bytes); });
  return text;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  std::size_t from = 0;
  while (true) {
    const std::size_t to = text.find(separator, from);
    parts.push_back(text.substr(from, to == std::string_view::npos ? to : to - from));
    if (to == std::string_view::npos) return parts;
    from = to + 1;
  }
}

std::string_view trim(std::string_view text) {
  const auto first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1);
}

Csv::Csv(std::string text, std::string name, char separator, bool header)
    : name_(std::move(name)), text_(std::move(text)) {
  int line = 0;
  std::size_t from = 0;
  while (from < text_.size()) {
    std::size_t to = text_.find('\n', from);
    if (to == std::string::npos) to = text_.size();
    std::string_view content = std::string_view(text_).substr(from, to - from);
    from = to + 1;
    ++line;
    if (!content.empty() && content.back() == '\r') content.remove_suffix(1);
    if (content.empty()) continue;
    if (header && header_.empty())
      header_ = split(content, separator);
    else
      rows_.push_back({line, split(content, separator)});
  }
  if (header && header_.empty()) throw Error(ErrorKind::kBadInput, name_, "is empty, expected a header line");
}

Csv Csv::from_file(const std::filesystem::path& path, char separator, bool header) {
  return Csv(read_document_text(path), path.string(), separator, header);
}

std::optional<std::size_t> Csv::find_column(std::string_view title) const {
  const auto at = std::find(header_.begin(), header_.end(), title);
  if (at == header_.end()) return std::nullopt;
  return static_cast<std::size_t>(at - header_.begin());
}

std::size_t Csv::column(std::string_view title) const {
  if (const auto found = find_column(title)) return *found;
  throw Error(ErrorKind::kBadInput, name_ + ":1",
              fmt::format("has no column '{}'; its columns are {}", title, fmt::join(header_, ", ")));
}

std::string Csv::where(const Row& row) const {
  return fmt::format("{}:{}", name_, row.line);
}

std::optional<std::int64_t> parse_integer(std::string_view cell) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
  if (error != std::errc{} || end != cell.data() + cell.size()) return std::nullopt;
  return value;
}

std::optional<double> parse_number(std::string_view cell) {
  double value = 0;
  const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
  if (error != std::errc{} || end != cell.data() + cell.size()) return std::nullopt;
  return value;
}

std::optional<base::Nanos> parse_seconds(std::string_view cell) {
  const bool negative = !cell.empty() && cell.front() == '-';
  if (negative) cell.remove_prefix(1);
  const std::size_t point = cell.find('.');
  const auto whole = parse_integer(cell.substr(0, point));
  if (!whole || *whole < 0 || *whole > 9'000'000'000) return std::nullopt;
  std::int64_t fraction = 0;
  if (point != std::string_view::npos) {
    std::string digits(cell.substr(point + 1, 9));
    if (std::any_of(cell.begin() + static_cast<std::ptrdiff_t>(point) + 1, cell.end(),
                    [](char c) { return c < '0' || c > '9'; }))
      return std::nullopt;
    digits.resize(9, '0');
    fraction = *parse_integer(digits);
  }
  const std::int64_t nanos = *whole * 1'000'000'000 + fraction;
  return base::Nanos(negative ? -nanos : nanos);
}

}  // namespace paceline::schedule
