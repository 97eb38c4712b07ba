#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace paceline::gnn {

/// One kind of fault found while reading: how often, where first, and whether a row was lost by it.
struct Defect {
  std::string kind;
  std::uint64_t count = 0;
  std::string first;
  bool lost = false;
};

/// What was wrong with an input that could still be used. Shown in every report; the command exits with 6 when rows
/// were lost. What cannot be used at all is an Error instead.
class Defects {
 public:
  /// A row that had to be left out.
  void lose(std::string_view kind, std::string where, std::uint64_t count = 1) {
    add(kind, std::move(where), count, true);
  }
  /// Something odd that changed nothing that counts, or was put right.
  void note(std::string_view kind, std::string where, std::uint64_t count = 1) {
    add(kind, std::move(where), count, false);
  }

  const std::vector<Defect>& rows() const { return rows_; }
  bool damaged() const;
  /// "3 x not a number (first: edges.csv:17)", one line per kind; empty when nothing was wrong.
  std::string to_string() const;
  const Defect* find(std::string_view kind) const;

 private:
  void add(std::string_view kind, std::string where, std::uint64_t count, bool lost);
  std::vector<Defect> rows_;  // in order of first appearance
};

}  // namespace paceline::gnn
