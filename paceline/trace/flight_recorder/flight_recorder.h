#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace paceline::trace {

enum class FlightState : std::uint8_t { kScheduled, kStarted, kCompleted };
std::string_view flight_state_name(FlightState state);

/// One collective or transfer as one rank recorded it.
struct FlightEntry {
  std::int64_t record = 0;     // n-th of the rank's recorder; the ring has lost those before the first
  std::uint32_t group = 0;     // index into FlightDump::groups
  std::int64_t sequence = -1;  // n-th collective of its group; of a transfer, n-th transfer
  bool point_to_point = false;
  std::string operation;                  // "all_reduce", without the backend; of transfers with the peers
  std::string input_sizes, output_sizes;  // "[[1024, 3]]", empty = not recorded
  std::string dtypes;                     // of the inputs
  FlightState state = FlightState::kScheduled;
  std::int64_t created = 0;  // ns since 1970; 0 = not recorded
  std::string where;         // the innermost frame outside of PyTorch, "train.py:42 step"; empty = not recorded
};

struct FlightGroup {
  std::string name, description;
  std::vector<std::uint32_t> ranks;  // ascending; empty = not recorded
  /// What the rank said of its own progress; -1 = not recorded. May be ahead of the entries when these were cut.
  std::int64_t last_enqueued = -1, last_started = -1, last_completed = -1;
};

/// What one rank's flight recorder (the ring buffer of ProcessGroupNCCL) held when it was dumped.
struct FlightDump {
  std::string source, version;
  std::optional<std::uint32_t> rank;  // the dump's own word, else its file name's
  std::string host;                   // from the dump or its file name; empty = unknown
  std::vector<FlightGroup> groups;
  std::vector<FlightEntry> entries;  // in the order in which the rank issued them
};

namespace flight_recorder {

/// A dump by its first bytes: JSON or pickle with "entries" and the groups or the version of a flight recorder.
bool sniff(std::string_view head);

/// Reads the text of a dump. Throws Error(kBadInput) naming `source` when it is no dump.
FlightDump read(const std::string& source, std::string_view bytes);

}  // namespace flight_recorder

/// Whether the first of the inputs' files that is not empty is a dump.
bool are_flight_dumps(const std::vector<std::string>& arguments);

/// Every dump under the arguments, ordered by rank, ranks unique. A file that is empty or damaged is in `unreadable`:
/// the rank that wrote it may have died over it.
struct FlightDumps {
  std::vector<FlightDump> dumps;
  std::vector<std::string> unreadable;  // messages with the file's name
  std::vector<std::string> warnings;
};
FlightDumps load_flight_dumps(const std::vector<std::string>& arguments);

}  // namespace paceline::trace
