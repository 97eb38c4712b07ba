// load_trace TRACE...: loads traces and nothing more, and prints what was read as one line of JSON. What acceptance
// measures reading with.
#include <cstdio>
#include <exception>
#include <nlohmann/json.hpp>

#include "paceline/base/error.h"
#include "paceline/base/parallel.h"
#include "paceline/trace/load.h"

int main(int count, char** arguments) {
  using namespace paceline;
  base::set_threads(1);
  try {
    const trace::Loaded loaded = trace::load({arguments + 1, arguments + count}, {.show_progress = false});
    nlohmann::json result{{"ranks", loaded.ranks.size()}, {"events", 0}, {"slices", 0}};
    bool lost = false;
    for (const trace::RankTrace& rank : loaded.ranks) {
      result["events"] = result["events"].get<std::int64_t>() + rank.events.total();
      result["slices"] = result["slices"].get<std::int64_t>() + rank.slices.size();
      lost = lost || rank.repairs.lost_data();
      for (std::size_t i = 0; i < static_cast<std::size_t>(trace::Repair::kCount); ++i) {
        const auto repair = static_cast<trace::Repair>(i);
        const trace::Repairs::Row& row = rank.repairs.row(repair);
        if (row.count == 0) continue;
        result["repairs"].push_back({{"file", rank.source},
                                     {"repair", trace::repair_name(repair)},
                                     {"count", row.count},
                                     {"place", row.first_place},
                                     {"detail", row.first_detail}});
      }
    }
    for (const std::string& warning : loaded.warnings) result["warnings"].push_back(warning);
    std::puts(result.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace).c_str());
    return lost ? static_cast<int>(ErrorKind::kDamagedInput) : 0;
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return error.exit_code();
  }
}
