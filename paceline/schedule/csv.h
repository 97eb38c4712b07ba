#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "paceline/base/units.h"

namespace paceline::schedule {

/// One thing that could not be used: `where` is file:line. What was good is kept.
struct Problem {
  std::string where;
  std::string what;
};

/// The text of a file, decompressed when it is.
std::string read_document_text(const std::filesystem::path& path);

/// A table with a header line and cells without quotes, held in memory. Cells are views into the text.
class Csv {
 public:
  struct Row {
    int line = 0;
    std::vector<std::string_view> cells;
  };

  Csv(std::string text, std::string name, char separator = ',', bool header = true);
  static Csv from_file(const std::filesystem::path& path, char separator = ',', bool header = true);
  Csv(const Csv&) = delete;
  Csv& operator=(const Csv&) = delete;

  const std::string& name() const { return name_; }
  const std::vector<Row>& rows() const { return rows_; }
  std::optional<std::size_t> find_column(std::string_view title) const;
  /// Throws Error(kBadInput) that names the missing column and those there are.
  std::size_t column(std::string_view title) const;
  std::string where(const Row& row) const;

 private:
  std::string name_;
  std::string text_;
  std::vector<std::string_view> header_;
  std::vector<Row> rows_;
};

/// The whole cell must be a number.
std::optional<std::int64_t> parse_integer(std::string_view cell);
std::optional<double> parse_number(std::string_view cell);
/// Decimal seconds ("12", "0.25") to nanoseconds without passing through a double; further digits are cut.
std::optional<base::Nanos> parse_seconds(std::string_view cell);

/// Cuts `text` at every `separator`.
std::vector<std::string_view> split(std::string_view text, char separator);
std::string_view trim(std::string_view text);

}  // namespace paceline::schedule
