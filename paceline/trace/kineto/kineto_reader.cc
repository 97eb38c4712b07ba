#include "paceline/trace/kineto/kineto_reader.h"

#include <fmt/core.h>
#include <simdjson.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "paceline/base/error.h"
#include "paceline/trace/decimal.h"
#include "paceline/trace/kineto/json_scan.h"

namespace paceline::trace::kineto {
namespace {

namespace od = simdjson::ondemand;

constexpr std::size_t kBlock = 4u << 20;
constexpr std::size_t kLargestValue = 256u << 20;  // one event or header value; larger is damage
constexpr std::int64_t kAbsurd = std::int64_t{7} * 24 * 3600 * 1'000'000'000;

/// Tokens of one event as they stand in the text; strings without their quotes.
struct Fields {
  std::string_view name, category, phase, process, thread, time, duration, id;
  // from args
  std::string_view label, correlation, shapes, collective, group, group_ranks, dtype;
  std::string_view in_elements, out_elements, sequence, group_size;
  bool name_escaped = false;
};

std::string_view trimmed(std::string_view token) {
  while (!token.empty() && static_cast<unsigned char>(token.back()) <= ' ') token.remove_suffix(1);
  return token;
}

/// A token without its quotes; numbers stay as they are. Numbers come as strings from some exporters.
std::string_view unquoted(std::string_view token) {
  if (token.size() >= 2 && token.front() == '"' && token.back() == '"') return token.substr(1, token.size() - 2);
  return token;
}

std::string_view token_of(od::value& value) {
  return unquoted(trimmed(value.raw_json_token()));
}

std::string_view key_of(od::raw_json_string raw) {
  const char* begin = raw.raw();
  return {begin, static_cast<std::size_t>(static_cast<const char*>(std::strchr(begin, '"')) - begin)};
}

simdjson::error_code read_args(od::value& value, Fields& fields) {
  od::object args;
  if (value.get_object().get(args) != simdjson::SUCCESS) return simdjson::SUCCESS;  // no object: nothing of use
  for (auto item : args) {
    od::field field;
    if (const auto error = std::move(item).get(field)) return error;
    const std::string_view key = key_of(field.key());
    std::string_view* target = nullptr;
    switch (key.size()) {
      case 3:
        if (key == "Seq") target = &fields.sequence;
        break;
      case 4:
        if (key == "name") target = &fields.label;
        break;
      case 5:
        if (key == "dtype") target = &fields.dtype;
        break;
      case 10:
        if (key == "Group size") target = &fields.group_size;
        if (key == "Input Dims") target = &fields.shapes;
        break;
      case 11:
        if (key == "correlation") target = &fields.correlation;
        break;
      case 13:
        if (key == "In msg nelems") target = &fields.in_elements;
        break;
      case 14:
        if (key == "Out msg nelems") target = &fields.out_elements;
        break;
      case 15:
        if (key == "Collective name") target = &fields.collective;
        break;
      case 18:
        if (key == "Process Group Name") target = &fields.group;
        break;
      case 19:
        if (key == "Process Group Ranks") target = &fields.group_ranks;
        break;
      default:
        break;
    }
    if (target == nullptr) continue;
    if (target == &fields.shapes) {
      // The whole nested list as text: raw_json() walks it and checks that it closes.
      od::array list;
      std::string_view text;
      if (const auto error = field.value().get_array().get(list)) return error;
      if (const auto error = list.raw_json().get(text)) return error;
      fields.shapes = trimmed(text);
    } else {
      *target = token_of(field.value());
    }
  }
  return simdjson::SUCCESS;
}

simdjson::error_code read_fields(od::object& event, Fields& fields) {
  for (auto item : event) {
    od::field field;
    if (const auto error = std::move(item).get(field)) return error;
    const std::string_view key = key_of(field.key());
    od::value& value = field.value();
    switch (key.size()) {
      case 2:
        if (key == "ph") fields.phase = token_of(value);
        if (key == "ts") fields.time = token_of(value);
        if (key == "id") fields.id = token_of(value);
        break;
      case 3:
        if (key == "cat") fields.category = token_of(value);
        if (key == "pid") fields.process = token_of(value);
        if (key == "tid") fields.thread = token_of(value);
        if (key == "dur") fields.duration = token_of(value);
        break;
      case 4:
        if (key == "name") {
          fields.name = token_of(value);
          fields.name_escaped = fields.name.find('\\') != std::string_view::npos;
        }
        if (key == "args") {
          if (const auto error = read_args(value, fields)) return error;
        }
        break;
      default:
        break;
    }
  }
  return simdjson::SUCCESS;
}

Category category_of(std::string_view text) {
  static const std::unordered_map<std::string_view, Category> kTable{
      {"cpu_op", Category::kCpuOp},
      {"Operator", Category::kCpuOp},
      {"user_annotation", Category::kUserAnnotation},
      {"gpu_user_annotation", Category::kGpuAnnotation},
      {"python_function", Category::kPython},
      {"cuda_runtime", Category::kRuntime},
      {"cuda_driver", Category::kRuntime},
      {"mtia_runtime", Category::kRuntime},
      {"Runtime", Category::kRuntime},
      {"kernel", Category::kKernel},
      {"Kernel", Category::kKernel},
      {"mtia_ccp_events", Category::kKernel},
      {"gpu_memcpy", Category::kMemcpy},
      {"Memcpy", Category::kMemcpy},
      {"gpu_memset", Category::kMemset},
      {"Memset", Category::kMemset},
      {"cuda_sync", Category::kSync},
      {"", Category::kCpuOp}};  // the legacy exporter writes none
  const auto found = kTable.find(text);
  return found == kTable.end() ? Category::kOther : found->second;
}

bool on_device(Category category) {
  return is_device_work(category) || category == Category::kGpuAnnotation || category == Category::kSync;
}

class Reader {
 public:
  explicit Reader(Document& document) : document_(document) {
    buffer_.resize(std::max(kBlock, document.head.size()) + 1 + simdjson::SIMDJSON_PADDING);
    std::memcpy(buffer_.data() + 1, document.head.data(), document.head.size());
    end_ = 1 + document.head.size();
  }

  RankTrace run() {
    if (has_prefix("\xEF\xBB\xBF")) begin_ += 3;  // a byte order mark
    begin_ = position(skip_space(at(begin_), at(end_)));
    if (begin_ < end_ && *at(begin_) == '[') {
      ++begin_;
      read_events();
    } else {
      read_root();
    }
    if (document_.source.damage()) trace_.repairs.add(Repair::kDamagedCompression, place(), *document_.source.damage());
    finish();
    return std::move(trace_);
  }

 private:
  // --- the buffer: [begin_, end_) is unread; one byte before begin_ is always ours to overwrite
  // -----------------------
  const char* at(std::size_t offset) const { return buffer_.data() + offset; }
  std::size_t position(const char* pointer) const { return static_cast<std::size_t>(pointer - buffer_.data()); }
  std::string_view unread() const { return {at(begin_), end_ - begin_}; }
  bool has_prefix(std::string_view text) const { return unread().starts_with(text); }
  std::int64_t byte_of(std::size_t offset) const { return dropped_ + static_cast<std::int64_t>(offset) - 1; }
  std::string place(std::size_t offset) const { return fmt::format("byte {}", byte_of(offset)); }
  std::string place() const { return place(end_); }

  /// Moves the unread bytes to the front and reads until the buffer is full or the source ends. Doubles the buffer when
  /// it is full already. False when nothing more came.
  bool refill() {
    if (source_ended_) return false;
    const std::size_t keep = end_ - begin_;
    if (begin_ > 1) {
      std::memmove(buffer_.data() + 1, at(begin_), keep);
      dropped_ += static_cast<std::int64_t>(begin_ - 1);
      begin_ = 1;
      end_ = 1 + keep;
    }
    std::size_t capacity = buffer_.size() - simdjson::SIMDJSON_PADDING;
    if (end_ == capacity) {
      buffer_.resize(buffer_.size() * 2);
      capacity = buffer_.size() - simdjson::SIMDJSON_PADDING;
    }
    const std::size_t before = end_;
    while (end_ < capacity) {
      const std::size_t count = document_.source.read({buffer_.data() + end_, capacity - end_});
      if (count == 0) {
        source_ended_ = true;
        break;
      }
      end_ += count;
    }
    return end_ > before;
  }

  /// Skips white space, reading on when needed; '\0' at the end of the document.
  char peek() {
    while (true) {
      begin_ = position(skip_space(at(begin_), at(end_)));
      if (begin_ < end_) return *at(begin_);
      if (!refill()) return '\0';
    }
  }

  /// The whole value at begin_, or an empty view when it is broken or the document ends in it.
  std::string_view whole_value() {
    while (true) {
      const Walk walk = walk_value(at(begin_), at(end_));
      if (walk.state == Walk::State::kWhole) return {at(begin_), position(walk.at) - begin_};
      if (walk.state == Walk::State::kBroken || end_ - begin_ > kLargestValue || !refill()) return {};
    }
  }

  // --- the object around the events -------------------------------------------------------------------------------
  void read_root() {
    if (peek() == '{') {
      ++begin_;
    } else {
      recover_in_root();
    }
    while (true) {
      const char c = peek();
      if (c == '\0') {
        // Text of the file ended without the closing brace.
        trace_.repairs.add(Repair::kTruncatedInput, place(), "the JSON object is not closed");
        return;
      }
      if (c == '}') return;
      if (c == ',') {
        ++begin_;
      } else if (c != '"' || !read_root_member()) {
        recover_in_root();
      }
    }
  }

  bool read_root_member() {
    const std::string_view key_text = whole_value();
    if (key_text.empty()) return false;
    const std::string key(unquoted(key_text));
    const std::size_t key_size = key_text.size();
    begin_ += key_size;
    if (peek() != ':') return false;
    ++begin_;
    const char c = peek();
    if (key == "traceEvents" && c == '[') {
      ++begin_;
      read_events();
      return true;
    }
    const std::string_view value = whole_value();
    if (value.empty()) return false;
    read_metadata(key, value);
    begin_ += value.size();
    return true;
  }

  void read_metadata(const std::string& key, std::string_view value) {
    if (key == "baseTimeNanoseconds") {
      base_time_ = parse_integer(unquoted(value)).value_or(0);
      return;
    }
    if (key != "distributedInfo" && key != "deviceProperties") return;
    const auto json = nlohmann::json::parse(value, nullptr, false);
    if (json.is_discarded()) {
      trace_.repairs.add(Repair::kDamagedHeader, place(begin_), key + " is not valid JSON");
    } else if (key == "distributedInfo" && json.is_object()) {
      const auto number = [&](const char* name) -> std::optional<std::uint32_t> {
        const auto found = json.find(name);
        if (found == json.end() || !found->is_number_integer()) return std::nullopt;
        const auto whole = found->get<std::int64_t>();
        if (whole < 0 || whole > 0xFFFFFFFE) return std::nullopt;
        return static_cast<std::uint32_t>(whole);
      };
      trace_.rank = number("rank");
      trace_.world_size = number("world_size").value_or(0);
      const auto backend = json.find("backend");
      if (backend != json.end() && backend->is_string()) trace_.backend = backend->get<std::string>();
    } else if (key == "deviceProperties" && json.is_array()) {
      for (const auto& device : json) {
        if (!device.is_object()) continue;
        Device row;
        if (const auto id = device.find("id"); id != device.end() && id->is_number_integer()) row.id = id->get<int>();
        if (const auto name = device.find("name"); name != device.end() && name->is_string()) {
          row.name = name->get<std::string>();
        }
        trace_.devices.push_back(row);
      }
    }
  }

  /// After damage outside the list of events: goes on at the next known key, or, when events come first, with them.
  void recover_in_root() {
    if (begin_ < end_) trace_.repairs.add(Repair::kDamagedHeader, place(begin_), excerpt(begin_));
    while (true) {
      const char* key = find_known_key(at(begin_) + 1, at(end_));
      const Candidate event = find_event(at(begin_), key == nullptr ? at(end_) : key);
      if (event.state == Candidate::State::kFound) {
        begin_ = position(event.at);
        read_events();
        return;
      }
      if (key != nullptr) {
        begin_ = position(key);
        return;
      }
      // Keep a tail that may hold the start of a key or an event.
      constexpr std::size_t kKeyTail = 32;
      std::size_t keep = end_ - std::min(end_ - begin_, kKeyTail);
      if (event.state == Candidate::State::kNeedMore) keep = std::min(keep, position(event.at));
      if (end_ - keep > kLargestValue) keep = end_;
      begin_ = keep;
      if (!refill()) {
        begin_ = end_;
        return;
      }
    }
  }

  std::string excerpt(std::size_t offset) const {
    constexpr std::size_t kShown = 40;
    std::string text = replace_invalid_utf8({at(offset), std::min(kShown, end_ - offset)});
    std::replace_if(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20; }, ' ');
    return "near '" + text + "'";
  }

  // --- the list of events -----------------------------------------------------------------------------------------
  /// begin_ is behind the '['. Ends behind the ']', at the end of the document, or at a known key after damage.
  void read_events() {
    while (true) {
      char c = peek();
      while (c == ',') {
        ++begin_;
        c = peek();
      }
      if (c == ']') {
        ++begin_;
        return;
      }
      if (c == '\0') {
        trace_.repairs.add(Repair::kTruncatedInput, place(), "the list of events is not closed");
        return;
      }
      if (end_ - begin_ < kBlock / 2) refill();
      const std::size_t cut = c == '{' ? last_boundary() : 0;
      if (cut > begin_ && read_block(cut)) continue;
      if (!read_one()) return;
    }
  }

  /// Behind the last '}' that "," and "{" follow, so that [begin_, cut) is a list of whole events; 0 when there is
  /// none.
  std::size_t last_boundary() const {
    for (std::size_t brace = end_; brace > begin_ + 1; --brace) {
      if (*at(brace - 1) != '{') continue;
      std::size_t back = brace - 1;
      const auto before = [&] {
        while (back > begin_ && static_cast<unsigned char>(*at(back - 1)) <= ' ') --back;
        return back > begin_ ? *at(back - 1) : '\0';
      };
      if (before() != ',') continue;
      --back;
      if (before() == '}') return back;
    }
    return 0;
  }

  /// The fast path: simdjson over the whole block. False when something in it is damaged; then begin_ is at the first
  /// event that was not taken, and the caller goes on event by event until the damage is behind.
  bool read_block(std::size_t cut) {
    if (cut <= slow_until_) return false;
    const char saved_front = buffer_[begin_ - 1];
    const char saved_back = buffer_[cut];
    buffer_[begin_ - 1] = '[';
    buffer_[cut] = ']';
    const char* last_key = nullptr;  // inside the last event that was taken
    std::size_t taken_end = 0;
    const auto error = [&]() -> simdjson::error_code {
      od::document list;
      od::array events;
      const std::size_t length = cut - begin_ + 2;
      if (const auto code = parser_.iterate(at(begin_ - 1), length, length + simdjson::SIMDJSON_PADDING).get(list)) {
        return code;
      }
      if (const auto code = list.get_array().get(events)) return code;
      for (auto item : events) {
        od::object event;
        if (const auto code = item.get_object().get(event)) return code;
        Fields fields;
        if (const auto code = read_fields(event, fields)) return code;
        if (fields.phase.empty()) return simdjson::NO_SUCH_FIELD;
        take(fields);
        last_key = fields.phase.data();
      }
      const char* location = nullptr;
      if (list.current_location().get(location) == simdjson::SUCCESS) taken_end = position(location);
      return simdjson::SUCCESS;
    }();
    buffer_[begin_ - 1] = saved_front;
    buffer_[cut] = saved_back;
    if (error == simdjson::SUCCESS) {
      // The list may have ended inside the block: then its ']' is just before what simdjson did not look at.
      begin_ = taken_end == 0 ? cut : taken_end;
      if (taken_end != 0) {
        while (*at(begin_ - 1) != ']') --begin_;
        --begin_;
      }
      return true;
    }
    slow_until_ = cut;
    if (last_key != nullptr) skip_taken(last_key);
    return begin_ >= cut;
  }

  /// Moves begin_ behind the event that holds `inside`.
  void skip_taken(const char* inside) {
    const char* brace = at(begin_);
    while (true) {
      const Walk walk = walk_value(brace, at(end_));
      PL_CHECK(walk.state == Walk::State::kWhole);
      brace = walk.at;
      if (brace > inside) break;
      brace = skip_space(brace, at(end_)) + 1;  // the comma
    }
    begin_ = position(brace);
  }

  /// One event, or the damage at its place. False when the list is over (a known top-level key follows).
  bool read_one() {
    const std::string_view text = *at(begin_) == '{' ? whole_value() : std::string_view{};
    if (!text.empty()) {
      if (!take_text(text)) {
        if (!take_mended(text)) lose_event(begin_, text);
      }
      advance(begin_ + text.size());
      return true;
    }
    return recover_in_events();
  }

  void advance(std::size_t to) {
    begin_ = to;
    if (begin_ >= slow_until_) slow_until_ = 0;
  }

  void lose_event(std::size_t offset, std::string_view text) {
    const Repair repair =
        source_ended_ && offset + text.size() >= end_ ? Repair::kTruncatedInput : Repair::kDamagedEvent;
    trace_.repairs.add(repair, place(offset), excerpt(offset));
  }

  /// begin_ is at something that is no whole event. Finds the next event or known key, mends what lies before if it
  /// can.
  bool recover_in_events() {
    std::size_t search = begin_ + (*at(begin_) == '{' ? 1 : 0);
    while (true) {
      const Candidate event = find_event(at(search), at(end_));
      const char* key = find_known_key(at(begin_), event.at);
      if (key != nullptr) {
        // Also when the key stands inside a string of a damaged event: then the root goes on and finds the rest.
        trace_.repairs.add(Repair::kDamagedEvent, place(begin_), excerpt(begin_));
        advance(position(key));
        return false;
      }
      if (event.state == Candidate::State::kNeedMore && end_ - position(event.at) <= kLargestValue) {
        const std::size_t offset = position(event.at) - begin_;
        if (refill()) {
          slow_until_ = 0;
          search = begin_ + offset;
          continue;
        }
        search = position(event.at) + 1;  // no more comes: that one is cut; look inside it
        continue;
      }
      const bool found = event.state == Candidate::State::kFound;
      const std::size_t next = found ? position(event.at) : end_;
      settle(next);
      if (found) {
        advance(next);
        return true;
      }
      begin_ = next;
      slow_until_ = 0;
      return refill();
    }
  }

  /// [begin_, next) is damaged: one event that can be mended, several run into each other, or only separators.
  void settle(std::size_t next) {
    std::size_t stop = next;
    while (stop > begin_ && std::strchr(", \n\r\t]", *at(stop - 1)) != nullptr) --stop;
    const std::string_view text(at(begin_), stop - begin_);
    if (text.empty()) return;
    if (*at(begin_) == '{' && text.back() == '}' && take_mended(text)) return;
    lose_event(begin_, text);
  }

  bool take_text(std::string_view text) {
    od::document document;
    od::object event;
    Fields fields;
    // The bytes behind `text` in the buffer, or its padding, serve as simdjson's padding.
    if (parser_.iterate(text.data(), text.size(), text.size() + simdjson::SIMDJSON_PADDING).get(document)) return false;
    if (document.get_object().get(event)) return false;
    if (read_fields(event, fields) || fields.phase.empty()) return false;
    take(fields);
    return true;
  }

  /// The event with its text put right, when that makes it one whole event.
  bool take_mended(std::string_view text) {
    const auto take_copy = [&](std::string copy, Repair repair) {
      const std::size_t size = copy.size();
      copy.append(simdjson::SIMDJSON_PADDING, ' ');
      const Walk walk = walk_value(copy.data(), copy.data() + size);
      const bool whole = walk.state == Walk::State::kWhole && walk.has_phase && walk.at == copy.data() + size;
      if (!whole || !take_text({copy.data(), size})) return false;
      trace_.repairs.add(repair, place(begin_), excerpt(begin_));
      return true;
    };
    std::string valid = replace_invalid_utf8(text);
    if (valid != text && take_copy(std::move(valid), Repair::kInvalidUtf8)) return true;
    return take_copy(mend(text), Repair::kMendedText);
  }

  // --- one event ----------------------------------------------------------------------------------------------------
  void take(const Fields& fields) {
    const char phase = fields.phase.size() == 1 ? fields.phase[0] : '?';
    switch (phase) {
      case 'X':
        ++trace_.events.complete;
        return take_complete(fields);
      case 'B':
      case 'E':
        ++trace_.events.begin_end;
        return take_begin_end(fields, phase);
      case 'M':
        ++trace_.events.metadata;
        return take_metadata(fields);
      case 'i':
      case 'I':
      case 'R':
        ++trace_.events.instant;
        if (const auto time = parse_us(fields.time)) {
          trace_.instants.push_back({*time, name_of(fields), lane_of(fields, false)});
        }
        return;
      case 's':
      case 't':
      case 'f':
        ++trace_.events.flow;
        return take_flow(fields, phase);
      case 'C':
        ++trace_.events.counter;
        return;
      default:
        ++trace_.events.other;
    }
  }

  NameId name_of(const Fields& fields) {
    if (!fields.name_escaped) return trace_.names.intern(fields.name);
    const auto json = nlohmann::json::parse("\"" + std::string(fields.name) + "\"", nullptr, false);
    return trace_.names.intern(json.is_string() ? json.get<std::string>() : std::string(fields.name));
  }

  NameId optional_name(std::string_view text) { return text.empty() ? base::kNone<NameId> : trace_.names.intern(text); }

  LaneId lane_of(const Fields& fields, bool device) {
    lane_key_.assign(1, device ? 'd' : 'h');
    lane_key_ += fields.process;
    lane_key_ += '\x1F';
    lane_key_ += fields.thread;
    const auto id = base::index(lane_names_.intern(lane_key_));
    if (id == trace_.lanes.size()) {
      Lane lane;
      lane.process = fields.process;
      lane.thread = fields.thread;
      lane.device = device;
      trace_.lanes.push_back(std::move(lane));
    }
    return LaneId{id};
  }

  Row add_slice(const Fields& fields, std::int64_t start, std::int64_t duration) {
    Slices& slices = trace_.slices;
    const Category category = category_of(fields.category);
    const Row row = slices.size();
    slices.start.push_back(start);
    slices.duration.push_back(duration);
    slices.name.push_back(name_of(fields));
    slices.lane.push_back(lane_of(fields, on_device(category)));
    slices.correlation.push_back(static_cast<std::uint32_t>(parse_integer(fields.correlation).value_or(0)));
    slices.shapes.push_back(optional_name(fields.shapes));
    slices.category.push_back(category);
    if (!fields.collective.empty() || !fields.group.empty()) add_collective(fields, row);
    return row;
  }

  void add_collective(const Fields& fields, Row row) {
    CollectiveArgs args;
    args.row = row;
    args.collective = optional_name(fields.collective);
    args.group = optional_name(fields.group);
    args.group_ranks = optional_name(fields.group_ranks);
    args.dtype = optional_name(fields.dtype);
    args.in_elements = parse_integer(fields.in_elements).value_or(-1);
    args.out_elements = parse_integer(fields.out_elements).value_or(-1);
    args.sequence = parse_integer(fields.sequence).value_or(-1);
    args.group_size = static_cast<std::int32_t>(parse_integer(fields.group_size).value_or(-1));
    trace_.collective_args.push_back(args);
  }

  void take_complete(const Fields& fields) {
    const auto start = parse_us(fields.time);
    if (!start) {
      trace_.repairs.add(Repair::kMissingTime, event_place(fields), std::string(fields.name));
      return;
    }
    std::int64_t duration = 0;
    if (!fields.duration.empty()) {
      const auto read = parse_us(fields.duration);
      duration = read.value_or(kAbsurd + 1);
    }
    if (duration < 0 || duration > kAbsurd) {
      trace_.repairs.add(duration < 0 ? Repair::kNegativeDuration : Repair::kAbsurdDuration, event_place(fields),
                         fmt::format("'{}' lasts {} us", fields.name, fields.duration));
      duration = 0;
    }
    add_slice(fields, *start, duration);
  }

  std::string event_place(const Fields& fields) const {
    const char* inside = fields.phase.data();
    const bool in_buffer = inside >= buffer_.data() && inside < buffer_.data() + buffer_.size();
    return in_buffer ? place(position(inside)) : place(begin_);
  }

  void take_begin_end(const Fields& fields, char phase) {
    const auto time = parse_us(fields.time);
    if (!time) {
      trace_.repairs.add(Repair::kMissingTime, event_place(fields), std::string(fields.name));
      return;
    }
    std::vector<Row>& open = open_begins_[base::index(lane_of(fields, on_device(category_of(fields.category))))];
    if (phase == 'B') {
      open.push_back(add_slice(fields, *time, 0));
    } else if (open.empty()) {
      trace_.repairs.add(Repair::kUnmatchedBegin, event_place(fields), "an end without its begin");
    } else {
      const std::int64_t duration = *time - trace_.slices.start[open.back()];
      trace_.slices.duration[open.back()] = std::max<std::int64_t>(duration, 0);
      open.pop_back();
    }
  }

  void take_metadata(const Fields& fields) {
    if (fields.name != "thread_name" && fields.name != "process_name") return;
    std::string key(fields.process);
    key += '\x1F';
    if (fields.name == "thread_name") key += fields.thread;
    labels_[key] = fields.label;
  }

  void take_flow(const Fields& fields, char phase) {
    if (phase == 't') return;
    const std::uint64_t key = base::hash_bytes(fields.category) ^ base::hash_bytes(fields.id);
    (phase == 's' ? flow_starts_ : flow_ends_).push_back(key);
  }

  // --- the end
  // --------------------------------------------------------------------------------------------------------
  void finish() {
    count_unmatched_flows();
    const Slices& slices = trace_.slices;
    std::int64_t last = 0;
    for (Row row = 0; row < slices.size(); ++row) last = std::max(last, slices.end(row));
    for (auto& [lane, open] : open_begins_) {
      for (const Row row : open) {
        trace_.slices.duration[row] = std::max<std::int64_t>(last - slices.start[row], 0);
        trace_.repairs.add(Repair::kUnmatchedBegin, fmt::format("at {} ns", slices.start[row]),
                           fmt::format("'{}' has no end; it was taken to last until the last event", trace_.name(row)));
      }
    }
    if (base_time_ != 0) {
      for (std::int64_t& start : trace_.slices.start) start += base_time_;
      for (Instant& instant : trace_.instants) instant.time += base_time_;
    }
    for (Lane& lane : trace_.lanes) {
      const std::string prefix = lane.process + '\x1F';
      const auto thread = labels_.find(prefix + lane.thread);
      const auto process = labels_.find(prefix);
      lane.name = thread != labels_.end() ? thread->second : process != labels_.end() ? process->second : "";
    }
    finish_slices(trace_);
  }

  void count_unmatched_flows() {
    std::sort(flow_starts_.begin(), flow_starts_.end());
    std::sort(flow_ends_.begin(), flow_ends_.end());
    flow_starts_.erase(std::unique(flow_starts_.begin(), flow_starts_.end()), flow_starts_.end());
    flow_ends_.erase(std::unique(flow_ends_.begin(), flow_ends_.end()), flow_ends_.end());
    std::vector<std::uint64_t> single;
    std::set_symmetric_difference(flow_starts_.begin(), flow_starts_.end(), flow_ends_.begin(), flow_ends_.end(),
                                  std::back_inserter(single));
    if (!single.empty()) {
      trace_.repairs.add(Repair::kUnmatchedFlow, "", "", static_cast<std::int64_t>(single.size()));
    }
  }

  Document& document_;
  std::vector<char> buffer_;
  std::size_t begin_ = 1, end_ = 1;
  std::size_t slow_until_ = 0;  // blocks that end before this are read event by event
  std::int64_t dropped_ = 0;    // bytes of the document before buffer_[1]
  bool source_ended_ = false;
  od::parser parser_;

  RankTrace trace_;
  std::int64_t base_time_ = 0;
  base::InternTable lane_names_;
  std::string lane_key_;
  std::unordered_map<std::uint32_t, std::vector<Row>> open_begins_;
  std::unordered_map<std::string, std::string> labels_;
  std::vector<std::uint64_t> flow_starts_, flow_ends_;
};

}  // namespace

bool sniff(std::string_view head) {
  for (const std::string_view sign : {"\"traceEvents\"", "\"ph\"", "\"deviceProperties\"", "\"distributedInfo\"",
                                      "\"schemaVersion\"", "\"baseTimeNanoseconds\""}) {
    if (head.find(sign) != std::string_view::npos) return true;
  }
  return false;
}

RankTrace read(Document& document) {
  return Reader(document).run();
}

}  // namespace paceline::trace::kineto
