#include "cli/output.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "paceline/base/error.h"

namespace paceline::cli {

void print_result(std::string_view text) {
  while (!text.empty()) {
    const ssize_t count = ::write(STDOUT_FILENO, text.data(), text.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EPIPE) std::_Exit(0);
    if (count < 0) {
      throw Error(ErrorKind::kSystem, "standard output",
                  fmt::format("cannot write the result: {}; free some space or write elsewhere", std::strerror(errno)));
    }
    text.remove_prefix(static_cast<std::size_t>(count));
  }
}

int report_damage(const trace::RankHeader& rank) {
  for (std::size_t i = 0; i < static_cast<std::size_t>(trace::Repair::kCount); ++i) {
    const auto repair = static_cast<trace::Repair>(i);
    if (rank.repairs.count(repair) == 0 || !trace::loses_data(repair)) continue;
    const auto& row = rank.repairs.row(repair);
    fmt::print(stderr, "paceline: {}: {}: {} ({}x; {}); record it again or copy it anew\n", rank.source,
               row.first_place, trace::repair_meaning(repair), rank.repairs.count(repair), row.first_detail);
  }
  return rank.repairs.lost_data() ? static_cast<int>(ErrorKind::kDamagedInput) : 0;
}

int report_damage(const trace::Trace& trace) {
  int code = 0;
  for (const trace::RankSummary& rank : trace.ranks) code = std::max(code, report_damage(rank));
  return code;
}

}  // namespace paceline::cli
