#include "paceline/base/table.h"

#include <algorithm>

#include "paceline/base/error.h"

namespace paceline::base {
namespace {
bool starts_code_point(char byte) {
  return (static_cast<unsigned char>(byte) & 0xC0u) != 0x80u;
}

bool is_control(char byte) {
  return static_cast<unsigned char>(byte) < 0x20 || byte == 0x7F;
}

std::string pad(const std::string& cell, std::size_t width, Table::Align align) {
  const std::string blanks(width - std::min(width, display_width(cell)), ' ');
  return align == Table::Align::kLeft ? cell + blanks : blanks + cell;
}
}  // namespace

std::size_t display_width(std::string_view utf8) {
  return static_cast<std::size_t>(std::count_if(utf8.begin(), utf8.end(), starts_code_point));
}

std::string shorten(std::string_view utf8, std::size_t width) {
  if (display_width(utf8) <= width) return std::string(utf8);
  if (width == 0) return "";
  std::size_t points = 0, end = 0;
  for (; end < utf8.size(); ++end) {
    if (!starts_code_point(utf8[end])) continue;
    if (points == width - 1) break;
    ++points;
  }
  return std::string(utf8.substr(0, end)) + "…";
}

void Table::add_column(std::string title, Align align) {
  columns_.push_back({std::move(title), align});
}

void Table::add_row(std::vector<std::string> cells) {
  PL_CHECK(cells.size() <= columns_.size());
  cells.resize(columns_.size());
  // Names come from files: a control character could break the line or steer the terminal.
  for (std::string& cell : cells) std::replace_if(cell.begin(), cell.end(), is_control, '?');
  rows_.push_back(std::move(cells));
}

std::string Table::to_string(std::string_view indent) const {
  std::vector<std::size_t> widths;
  widths.reserve(columns_.size());
  for (const Column& column : columns_) widths.push_back(display_width(column.title));
  for (const auto& row : rows_) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], display_width(row[i]));
  }
  std::string text;
  const auto write_line = [&](auto cell_of) {
    std::string line(indent);
    for (std::size_t i = 0; i < columns_.size(); ++i) line += (i ? "  " : "") + cell_of(i);
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  };
  write_line([&](std::size_t i) { return pad(columns_[i].title, widths[i], columns_[i].align); });
  write_line([&](std::size_t i) {
    std::string rule;
    for (std::size_t n = 0; n < widths[i]; ++n) rule += "─";
    return rule;
  });
  for (const auto& row : rows_) write_line([&](std::size_t i) { return pad(row[i], widths[i], columns_[i].align); });
  return text;
}

}  // namespace paceline::base
