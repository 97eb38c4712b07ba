// The truth that the robustness program holds the reader against: found in intact text by simple means, sharing no code
// with the reader.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace paceline::robustness {

struct NaiveEvent {
  std::size_t begin = 0, end = 0;  // bytes of the text
  char phase = '?';
  std::string key;  // of slices (X) and instants: name, process, thread, time, duration; empty for other events
};

/// Every element of the list of events of intact JSON. O(length).
std::vector<NaiveEvent> naive_events(std::string_view text);

/// Key of a slice or instant; times in ns relative to the file's base.
std::string event_key(char phase, std::string_view name, std::string_view process, std::string_view thread,
                      std::int64_t time, std::int64_t duration);

}  // namespace paceline::robustness
