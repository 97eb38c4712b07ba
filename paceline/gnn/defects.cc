#include "paceline/gnn/defects.h"

#include <fmt/core.h>

#include <algorithm>

namespace paceline::gnn {

void Defects::add(std::string_view kind, std::string where, std::uint64_t count, bool lost) {
  if (count == 0) return;
  for (Defect& row : rows_) {
    if (row.kind != kind) continue;
    row.count += count;
    return;
  }
  rows_.push_back({std::string(kind), count, std::move(where), lost});
}

bool Defects::damaged() const {
  return std::any_of(rows_.begin(), rows_.end(), [](const Defect& row) { return row.lost; });
}

const Defect* Defects::find(std::string_view kind) const {
  const auto found = std::find_if(rows_.begin(), rows_.end(), [&](const Defect& row) { return row.kind == kind; });
  return found == rows_.end() ? nullptr : &*found;
}

std::string Defects::to_string() const {
  std::string text;
  for (const Defect& row : rows_)
    text += fmt::format("{} x {} (first: {}){}\n", row.count, row.kind, row.first, row.lost ? ", left out" : "");
  return text;
}

}  // namespace paceline::gnn
