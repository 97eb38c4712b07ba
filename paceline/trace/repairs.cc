#include "paceline/trace/repairs.h"

#include <algorithm>

namespace paceline::trace {
namespace {
struct Meaning {
  bool loses_data;
  std::string_view name;
  std::string_view meaning;
};

constexpr std::array<Meaning, static_cast<std::size_t>(Repair::kCount)> kMeanings{{
    {true, "truncated_input", "the file ends before its events do; what was whole is kept"},
    {true, "damaged_compression", "compressed data is damaged; what could be inflated is kept"},
    {true, "damaged_event", "an event does not hold together and could not be mended; it is left out"},
    {true, "damaged_header", "the text around the events is damaged; facts such as the rank may be missing"},
    {false, "mended_text", "an event held unescaped quotes, control characters or NaN; it was mended and kept"},
    {false, "invalid_utf8", "an event held bytes that are not UTF-8; they were replaced and the event kept"},
    {true, "missing_time", "an event has no readable start; it is left out"},
    {false, "negative_duration", "a negative duration was set to 0"},
    {false, "absurd_duration", "a duration of more than 7 days was set to 0"},
    {false, "overlapping_slices", "slices on one track overlap without nesting; totals use their union"},
    {false, "unmatched_begin", "a begin without its end, or an end without its begin"},
    {false, "unmatched_flow", "a flow arrow has only one end; links use correlation ids instead"},
    {false, "inferred_time", "no start was recorded; each event starts as early as what it depends on allows"},
}};

const Meaning& meaning_of(Repair repair) {
  return kMeanings[static_cast<std::size_t>(repair)];
}
}  // namespace

bool loses_data(Repair repair) {
  return meaning_of(repair).loses_data;
}
std::string_view repair_name(Repair repair) {
  return meaning_of(repair).name;
}
std::string_view repair_meaning(Repair repair) {
  return meaning_of(repair).meaning;
}

void Repairs::add(Repair repair, std::string_view place, std::string_view detail, std::int64_t count) {
  Row& row = rows_[static_cast<std::size_t>(repair)];
  if (row.count == 0) {
    row.first_place = place;
    row.first_detail = detail;
  }
  row.count += count;
}

bool Repairs::any() const {
  return std::any_of(rows_.begin(), rows_.end(), [](const Row& row) { return row.count > 0; });
}

bool Repairs::lost_data() const {
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    if (rows_[i].count > 0 && loses_data(static_cast<Repair>(i))) return true;
  }
  return false;
}

}  // namespace paceline::trace
