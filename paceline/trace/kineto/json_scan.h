#pragma once
#include <optional>
#include <string>
#include <string_view>

namespace paceline::trace::kineto {

/// Result of walking over one JSON value.
struct Walk {
  enum class State {
    kWhole,       // `at` is just behind the value
    kBroken,      // `at` is the first byte that no JSON value can have there
    kNeedMore,    // the text ended inside the value
    kHoldsEvents  // the value is a list of trace events, or an object that has one; `at` is inside the first event
  };
  State state;
  const char* at;
  bool has_phase = false;            // the value is an object with a key "ph": a trace event
  const char* go_on_from = nullptr;  // of a value that nests too deep: no event worth looking for starts before this
};

/// Walks over the value that starts at `begin` (white space before it is allowed). Strict about structure and strings,
/// so that after damage it stops within a few tokens instead of running away with inverted quotes; as lenient about
/// numbers and literals as simdjson's on-demand parser, which takes any word. Values nested deeper than 64 are broken.
/// O(length).
Walk walk_value(const char* begin, const char* end);

const char* skip_space(const char* at, const char* end);

/// First whole trace event that starts in [begin, last) and ends before `end`: the point to go on from after damage.
/// When `state` is kNeedMore, `at` is a candidate that the end of the text cuts, and everything before it is none.
/// O(length) for what occurs in files; at worst 64 times that.
struct Candidate {
  enum class State { kFound, kNone, kNeedMore } state;
  const char* at;   // the event's '{'
  const char* end;  // just behind its '}'
};
Candidate find_event(const char* begin, const char* last, const char* end);

/// First `"key":` of a known top-level key at or after `begin`, or nullptr: header text after damage. O(distance).
const char* find_known_key(const char* begin, const char* end);

/// Rewrites what old exporters got wrong and keeps the rest: quotes inside strings that are not escaped, raw control
/// characters, backslashes that escape nothing, NaN and Infinity, commas before a closing bracket, bytes that are not
/// UTF-8. Valid JSON stays as it is. O(length).
std::string mend(std::string_view text);

/// Replaces every byte that is no valid UTF-8 by U+FFFD.
std::string replace_invalid_utf8(std::string_view text);

}  // namespace paceline::trace::kineto
