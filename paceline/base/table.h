#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace paceline::base {

/// Aligned text tables for terminals: header, rule, rows; numbers to the right. Width counts UTF-8 code points.
class Table {
 public:
  enum class Align { kLeft, kRight };

  void add_column(std::string title, Align align = Align::kRight);
  /// One cell per column; missing cells stay empty. Control characters become '?'.
  void add_row(std::vector<std::string> cells);
  bool empty() const { return rows_.empty(); }
  std::string to_string(std::string_view indent = "  ") const;

 private:
  struct Column {
    std::string title;
    Align align;
  };
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

std::size_t display_width(std::string_view utf8);
/// At most `width` code points, the cut shown by an ellipsis.
std::string shorten(std::string_view utf8, std::size_t width);

}  // namespace paceline::base
