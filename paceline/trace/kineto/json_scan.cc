#include "paceline/trace/kineto/json_scan.h"

#include <array>
#include <cstring>
#include <vector>

namespace paceline::trace::kineto {
namespace {

bool is_space(char c) {
  return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

bool is_one_of(char c, std::string_view set) {
  return set.find(c) != std::string_view::npos;
}

/// What numbers, literals and the words that stand for them (NaN, undefined) are made of.
constexpr auto kWordBytes = [] {
  std::array<bool, 256> table{};
  for (unsigned c = 0; c < 256; ++c) {
    table[c] = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '+' || c == '-' ||
               c == '.' || c == '_';
  }
  return table;
}();

/// What goes on inside a string without a closer look.
constexpr auto kPlainBytes = [] {
  std::array<bool, 256> table{};
  for (unsigned c = 0x20; c < 256; ++c) table[c] = c != '"' && c != '\\';
  return table;
}();

Walk broken(const char* at) {
  return {Walk::State::kBroken, at};
}
Walk need_more(const char* at) {
  return {Walk::State::kNeedMore, at};
}

/// `at` is behind the opening quote; the result is behind the closing one.
Walk walk_string(const char* at, const char* end) {
  while (true) {
    while (at < end && kPlainBytes[static_cast<unsigned char>(*at)]) ++at;
    if (at == end) return need_more(end);
    if (*at == '"') return {Walk::State::kWhole, at + 1};
    if (*at != '\\') return broken(at);
    if (++at == end) return need_more(end);
    if (!is_one_of(*at, "\"\\/bfnrtu")) return broken(at);
    ++at;
  }
}

Walk walk_word(const char* at, const char* end) {
  const char* begin = at;
  while (at < end && kWordBytes[static_cast<unsigned char>(*at)]) ++at;
  if (at == end) return need_more(end);
  return at == begin ? broken(at) : Walk{Walk::State::kWhole, at};
}

}  // namespace

const char* skip_space(const char* at, const char* end) {
  while (at < end && is_space(*at)) ++at;
  return at;
}

Walk walk_value(const char* begin, const char* end) {
  constexpr std::size_t kDeepest = 64;
  std::array<char, kDeepest> open;  // closing bracket of each open container
  std::size_t depth = 0;
  bool has_phase = false;
  bool want_key = false;       // the next token is a key or the end of an object
  const char* middle = begin;  // the innermost container that was opened at half of the depth
  bool first = false;          // just behind an opening bracket: the container may be empty
  const char* at = begin;
  while (true) {
    at = skip_space(at, end);
    if (at == end) return need_more(end);
    const char c = *at;
    if (first && c == open[depth - 1]) {
      --depth;
      ++at;
    } else if (want_key) {
      if (c != '"') return broken(at);
      const Walk key = walk_string(at + 1, end);
      if (key.state != Walk::State::kWhole) return key;
      if (std::string_view(at, static_cast<std::size_t>(key.at - at)) == "\"ph\"") {
        if (depth == 1) has_phase = true;
        const bool listed = (depth == 2 || depth == 3) && open[depth - 2] == ']';
        if (listed) return {Walk::State::kHoldsEvents, at};
      }
      at = skip_space(key.at, end);
      if (at == end) return need_more(end);
      if (*at != ':') return broken(at);
      ++at;
      want_key = false;
      first = false;
      continue;
    } else if (c == '{' || c == '[') {
      if (depth == kDeepest) return {Walk::State::kBroken, at, false, middle};
      if (depth == kDeepest / 2) middle = at;
      open[depth++] = c == '{' ? '}' : ']';
      want_key = c == '{';
      first = true;
      ++at;
      continue;
    } else {
      const Walk scalar = c == '"' ? walk_string(at + 1, end) : walk_word(at, end);
      if (scalar.state != Walk::State::kWhole) return scalar;
      at = scalar.at;
    }
    // A value ended: close containers until one goes on.
    while (true) {
      first = false;
      if (depth == 0) return {Walk::State::kWhole, at, has_phase};
      at = skip_space(at, end);
      if (at == end) return need_more(end);
      if (*at == open[depth - 1]) {
        --depth;
        ++at;
      } else if (*at == ',') {
        ++at;
        want_key = open[depth - 1] == '}';
        break;
      } else {
        return broken(at);
      }
    }
  }
}

Candidate find_event(const char* begin, const char* last, const char* end) {
  for (const char* at = begin; at < last; ++at) {
    at = static_cast<const char*>(std::memchr(at, '{', static_cast<std::size_t>(last - at)));
    if (at == nullptr) break;
    const Walk walk = walk_value(at, end);
    if (walk.state == Walk::State::kNeedMore) return {Candidate::State::kNeedMore, at, end};
    if (walk.state == Walk::State::kWhole && walk.has_phase) return {Candidate::State::kFound, at, walk.at};
    if (walk.go_on_from > at) at = walk.go_on_from - 1;
  }
  return {Candidate::State::kNone, end, end};
}

const char* find_known_key(const char* begin, const char* end) {
  static constexpr std::array<std::string_view, 6> kKeys{"\"traceEvents\"",      "\"distributedInfo\"",
                                                         "\"deviceProperties\"", "\"baseTimeNanoseconds\"",
                                                         "\"displayTimeUnit\"",  "\"traceName\""};
  for (const char* at = begin; at < end; ++at) {
    at = static_cast<const char*>(std::memchr(at, '"', static_cast<std::size_t>(end - at)));
    if (at == nullptr) break;
    const std::string_view text(at, static_cast<std::size_t>(end - at));
    for (const std::string_view key : kKeys) {
      if (text.starts_with(key)) return at;
    }
  }
  return nullptr;
}

namespace {

/// Length of the valid UTF-8 sequence at `at`, 0 when there is none (RFC 3629: no overlong forms, no surrogates).
std::size_t utf8_length(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) {
    return at + i < text.size() ? static_cast<unsigned char>(text[at + i]) : static_cast<unsigned char>(0);
  };
  const auto tail = [&](std::size_t i, unsigned low = 0x80, unsigned high = 0xBF) {
    return byte(i) >= low && byte(i) <= high;
  };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return 1;
  if (lead >= 0xC2 && lead <= 0xDF) return tail(1) ? 2 : 0;
  if (lead >= 0xE0 && lead <= 0xEF) {
    return tail(1, lead == 0xE0 ? 0xA0 : 0x80, lead == 0xED ? 0x9F : 0xBF) && tail(2) ? 3 : 0;
  }
  if (lead >= 0xF0 && lead <= 0xF4) {
    return tail(1, lead == 0xF0 ? 0x90 : 0x80, lead == 0xF4 ? 0x8F : 0xBF) && tail(2) && tail(3) ? 4 : 0;
  }
  return 0;
}

/// Whether a quote at `at` can close a string: what is behind it must go on with the structure. In an object a comma
/// alone does not do, since names like f("a", "b") have it too: the next key must follow.
bool closes_string(std::string_view text, std::size_t at, bool is_key, bool in_object) {
  const auto next_of = [&](std::size_t from) {
    while (from < text.size() && is_space(text[from])) ++from;
    return from;
  };
  const std::size_t next = next_of(at + 1);
  if (next == text.size()) return true;
  if (is_key) return text[next] == ':';
  if (!in_object) return is_one_of(text[next], ",]");
  if (text[next] == '}') return true;
  if (text[next] != ',') return false;
  const std::size_t key = next_of(next + 1);
  if (key == text.size() || text[key] == '}') return true;
  if (text[key] != '"') return false;
  std::size_t key_end = key + 1;
  while (key_end < text.size() && text[key_end] != '"') key_end += text[key_end] == '\\' ? 2 : 1;
  const std::size_t colon = next_of(key_end + 1);
  return colon >= text.size() || text[colon] == ':';
}

}  // namespace

std::string replace_invalid_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size() + 8);
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = utf8_length(text, at);
    if (length == 0) {
      out += "\xEF\xBF\xBD";
      ++at;
    } else {
      out.append(text.substr(at, length));
      at += length;
    }
  }
  return out;
}

std::string mend(std::string_view raw) {
  const std::string text = replace_invalid_utf8(raw);
  std::string out;
  out.reserve(text.size() + 16);
  std::string open;  // brackets
  bool in_string = false, is_key = false, behind_colon = false;
  const auto in_object = [&] { return !open.empty() && open.back() == '{'; };
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (in_string) {
      if (c == '\\' && at + 1 < text.size() && is_one_of(text[at + 1], "\"\\/bfnrtu")) {
        out += c;
        out += text[++at];
      } else if (c == '\\') {
        out += "\\\\";
      } else if (c == '"') {
        in_string = !closes_string(text, at, is_key, in_object());
        out += in_string ? "\\\"" : "\"";
      } else if (static_cast<unsigned char>(c) < 0x20) {
        out += ' ';
      } else {
        out += c;
      }
      continue;
    }
    if (c == '"') {
      in_string = true;
      is_key = in_object() && !behind_colon;
    } else if (c == '{' || c == '[') {
      open += c;
    } else if ((c == '}' || c == ']') && !open.empty()) {
      open.pop_back();
    }
    if (!is_space(c)) behind_colon = c == ':';
    if (c == ',') {
      const char* next = skip_space(text.data() + at + 1, text.data() + text.size());
      const bool last = next < text.data() + text.size() && (*next == '}' || *next == ']');
      if (!last) out += c;
    } else if (c == 'N' || c == 'I' || (c == '-' && text.compare(at, 2, "-I") == 0)) {
      std::size_t size = 0;
      for (const std::string_view word : {"NaN", "Infinity", "-Infinity"}) {
        if (text.compare(at, word.size(), word) == 0) size = word.size();
      }
      if (size > 0) out += "null";
      if (size == 0) out += c;
      if (size > 0) at += size - 1;
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace paceline::trace::kineto
