#include "tests/robustness/naive_events.h"

#include <fmt/core.h>

#include <cmath>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>

namespace paceline::robustness {
namespace {

constexpr std::int64_t kWeek = std::int64_t{7} * 24 * 3600 * 1'000'000'000;

/// Start of the list of events: of the whole text, or behind the key "traceEvents" of the outermost object.
std::size_t list_begin(std::string_view text) {
  int depth = 0;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (c == '[' && depth == 0) return at + 1;
    if (c == '{' || c == '[') ++depth;
    if (c == '}' || c == ']') --depth;
    if (c != '"') continue;
    const std::size_t begin = at;
    for (++at; at < text.size() && text[at] != '"'; ++at) {
      if (text[at] == '\\') ++at;
    }
    if (depth == 1 && text.substr(begin, at + 1 - begin) == "\"traceEvents\"") return text.find('[', at) + 1;
  }
  return text.size();
}

/// Scalars of the outermost object of one event, numbers as they are written.
class Members final : public nlohmann::json_sax<nlohmann::json> {
 public:
  std::map<std::string, std::string> values;

  bool null() override { return put("null"); }
  bool boolean(bool value) override { return put(value ? "true" : "false"); }
  bool number_integer(number_integer_t value) override { return put(std::to_string(value)); }
  bool number_unsigned(number_unsigned_t value) override { return put(std::to_string(value)); }
  bool number_float(number_float_t, const string_t& text) override { return put(text); }
  bool string(string_t& value) override { return put(value); }
  bool binary(binary_t&) override { return true; }
  bool start_object(std::size_t) override { return ++depth_, true; }
  bool start_array(std::size_t) override { return ++depth_, true; }
  bool end_object() override { return --depth_, true; }
  bool end_array() override { return --depth_, true; }
  bool key(string_t& value) override {
    if (depth_ == 1) key_ = value;
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception&) override { return false; }

 private:
  bool put(const std::string& value) {
    if (depth_ == 1) values[key_] = value;
    return true;
  }
  int depth_ = 0;
  std::string key_;
};

/// Microseconds as text to nanoseconds, by moving the point.
std::int64_t nanoseconds(const std::string& text) {
  if (text.find_first_of("eE") != std::string::npos) {
    return static_cast<std::int64_t>(std::llroundl(std::strtold(text.c_str(), nullptr) * 1000.0L));
  }
  const std::size_t point = std::min(text.find('.'), text.size());
  std::string fraction = point < text.size() ? text.substr(point + 1) : "";
  fraction.append(4, '0');
  const std::int64_t whole = std::atoll((text.substr(0, point) + fraction.substr(0, 3)).c_str());
  const std::int64_t up = fraction[3] >= '5' ? 1 : 0;
  return text.starts_with('-') ? whole - up : whole + up;
}

void decode(std::string_view text, NaiveEvent& event) {
  Members members;
  if (!nlohmann::json::sax_parse(text, &members)) return;
  auto& values = members.values;
  if (values["ph"].size() != 1) return;
  event.phase = values["ph"][0];
  const bool instant = event.phase == 'i' || event.phase == 'I' || event.phase == 'R';
  if (event.phase != 'X' && !instant) return;
  std::int64_t duration = instant || values["dur"].empty() ? 0 : nanoseconds(values["dur"]);
  if (duration < 0 || duration > kWeek) duration = 0;
  event.key =
      event_key(instant ? 'i' : 'X', values["name"], values["pid"], values["tid"], nanoseconds(values["ts"]), duration);
}

}  // namespace

std::string event_key(char phase, std::string_view name, std::string_view process, std::string_view thread,
                      std::int64_t time, std::int64_t duration) {
  return fmt::format("{}|{}|{}|{}|{}|{}", phase, name, process, thread, time, duration);
}

std::vector<NaiveEvent> naive_events(std::string_view text) {
  std::vector<NaiveEvent> events;
  int depth = 0;
  for (std::size_t at = list_begin(text); at < text.size(); ++at) {
    const char c = text[at];
    if (c == '"') {
      for (++at; at < text.size() && text[at] != '"'; ++at) {
        if (text[at] == '\\') ++at;
      }
    } else if (c == '{' || c == '[') {
      if (depth++ == 0) events.emplace_back().begin = at;
    } else if (c == '}' || c == ']') {
      if (depth == 0) break;  // the end of the list
      if (--depth == 0) {
        events.back().end = at + 1;
        decode(text.substr(events.back().begin, at + 1 - events.back().begin), events.back());
      }
    }
  }
  return events;
}

}  // namespace paceline::robustness
