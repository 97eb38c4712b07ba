#include "paceline/trace/kineto/kineto_reader.h"

#include <fmt/core.h>
#include <simdjson.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>
#include <unordered_map>

#include "paceline/base/error.h"
#include "paceline/trace/decimal.h"
#include "paceline/trace/kineto/json_scan.h"
#include "paceline/trace/kineto/rank_lists.h"

namespace paceline::trace::kineto {
namespace {

namespace od = simdjson::ondemand;

constexpr std::size_t kBlock = 4u << 20;
static_assert(kBlock >= kSniffBytes);
constexpr std::size_t kLargestValue = 256u << 20;  // one event or header value; larger is damage
constexpr std::size_t kSmallestPiece = 2u << 10;
constexpr int kEnd = -1;
constexpr std::int64_t kMostMemory = std::int64_t{1} << 50;  // bytes; more is damage
constexpr std::int64_t kAbsurd = std::int64_t{7} * 24 * 3600 * 1'000'000'000;

/// Times of either sign up to the year 2096; beyond is damage. Differences of two such times, and their sum with a
/// duration, fit 64 bits.
constexpr bool in_range(std::int64_t time) {
  constexpr std::int64_t kLatest = 4'000'000'000'000'000'000;
  return time >= -kLatest && time <= kLatest;
}

std::optional<std::int64_t> parse_time(std::string_view text) {
  const auto time = parse_us(text);
  return time && in_range(*time) ? time : std::nullopt;
}

/// Tokens of one event as they stand in the text; strings without their quotes.
struct Fields {
  std::string_view name, category, phase, process, thread, time, duration, id;
  // from args
  std::string_view label, correlation, shapes, collective, group, group_ranks, dtype;
  std::string_view in_elements, out_elements, sequence, group_size;
  std::string_view rank_start, rank_stride, source, destination;
  std::string_view step, model_chunk, operation;
  std::string_view address, bytes, allocated, reserved, device, device_type;
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

std::string_view key_of(od::raw_json_string raw) {
  const char* begin = raw.raw();
  return {begin, static_cast<std::size_t>(static_cast<const char*>(std::strchr(begin, '"')) - begin)};
}

/// Whether the structure inside the events was checked before (walk_value), or is checked by simdjson alone.
enum class Structure { kChecked, kUnchecked };

/// Walks over a list or an object whose members are of no interest; `text` is the whole of it. simdjson does nothing
/// there but count brackets, and a lost quote that another lost quote sets right again may have hidden whole events in
/// it: then it is an error.
simdjson::error_code pass_over(od::value& value, std::string_view token, Structure structure, std::string_view& text) {
  if (token.starts_with('[')) {
    od::array list;
    if (const auto error = value.get_array().get(list)) return error;
    if (const auto error = list.raw_json().get(text)) return error;
  } else {
    od::object object;
    if (const auto error = value.get_object().get(object)) return error;
    if (const auto error = object.raw_json().get(text)) return error;
  }
  constexpr std::size_t kShortestEvent = 64;
  constexpr std::string_view kPhase = "\"ph\"";
  if (structure == Structure::kChecked || text.size() < kShortestEvent) return simdjson::SUCCESS;
  const bool holds_event = ::memmem(text.data(), text.size(), kPhase.data(), kPhase.size()) != nullptr;
  return holds_event ? simdjson::TAPE_ERROR : simdjson::SUCCESS;
}

bool is_container(std::string_view token) {
  return token.starts_with('[') || token.starts_with('{');
}

/// Whether a value can start with this token: the parser skips whatever stands there, and loses count of brackets when
/// it is none.
bool is_value(std::string_view token) {
  return std::string_view(",:]}").find(token[0]) == std::string_view::npos;
}

simdjson::error_code read_args(od::value& value, Structure structure, Fields& fields) {
  od::object args;
  if (const auto error = value.get_object().get(args)) return error;
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
        if (key == "step") target = &fields.step;
        if (key == "Addr") target = &fields.address;
        break;
      case 5:
        if (key == "dtype") target = &fields.dtype;
        if (key == "Bytes") target = &fields.bytes;
        break;
      case 6:
        if (key == "seq_id") target = &fields.operation;
        break;
      case 8:
        if (key == "Src Rank") target = &fields.source;
        if (key == "Dst Rank") target = &fields.destination;
        break;
      case 9:
        if (key == "Device Id") target = &fields.device;
        break;
      case 10:
        if (key == "Group size") target = &fields.group_size;
        if (key == "Input Dims") target = &fields.shapes;
        break;
      case 11:
        if (key == "correlation") target = &fields.correlation;
        if (key == "model_chunk") target = &fields.model_chunk;
        if (key == "Device Type") target = &fields.device_type;
        break;
      case 13:
        if (key == "In msg nelems") target = &fields.in_elements;
        break;
      case 14:
        if (key == "Out msg nelems") target = &fields.out_elements;
        if (key == "Total Reserved") target = &fields.reserved;
        break;
      case 15:
        if (key == "Collective name") target = &fields.collective;
        if (key == "Total Allocated") target = &fields.allocated;
        break;
      case 17:
        if (key == "Global rank start") target = &fields.rank_start;
        break;
      case 18:
        if (key == "Process Group Name") target = &fields.group;
        if (key == "Global rank stride") target = &fields.rank_stride;
        break;
      case 19:
        if (key == "Process Group Ranks") target = &fields.group_ranks;
        break;
      default:
        break;
    }
    std::string_view token = field.value().raw_json_token();
    if (!is_value(token)) return simdjson::TAPE_ERROR;
    if (is_container(token)) {
      if (const auto error = pass_over(field.value(), token, structure, token)) return error;
    }
    if (target != nullptr) *target = unquoted(trimmed(token));
  }
  return simdjson::SUCCESS;
}

simdjson::error_code read_fields(od::object& event, Structure structure, Fields& fields) {
  for (auto item : event) {
    od::field field;
    if (const auto error = std::move(item).get(field)) return error;
    const std::string_view key = key_of(field.key());
    od::value& value = field.value();
    std::string_view token = value.raw_json_token();
    if (!is_value(token)) return simdjson::TAPE_ERROR;
    if (key == "args" && token[0] == '{') {
      if (const auto error = read_args(value, structure, fields)) return error;
      continue;
    }
    if (is_container(token)) {
      if (const auto error = pass_over(value, token, structure, token)) return error;
      continue;
    }
    std::string_view* target = nullptr;
    switch (key.size()) {
      case 2:
        if (key == "ph") target = &fields.phase;
        if (key == "ts") target = &fields.time;
        if (key == "id") target = &fields.id;
        break;
      case 3:
        if (key == "cat") target = &fields.category;
        if (key == "pid") target = &fields.process;
        if (key == "tid") target = &fields.thread;
        if (key == "dur") target = &fields.duration;
        break;
      case 4:
        if (key == "name") target = &fields.name;
        break;
      default:
        break;
    }
    if (target != nullptr) *target = unquoted(trimmed(token));
  }
  fields.name_escaped = fields.name.find('\\') != std::string_view::npos;
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
    // A document that ends in its head needs no more room than that.
    const std::size_t room = document.head.size() < kSniffBytes ? document.head.size() : kBlock;
    buffer_.resize(1 + room + simdjson::SIMDJSON_PADDING);
    std::memcpy(buffer_.data() + 1, document.head.data(), document.head.size());
    end_ = 1 + document.head.size();
  }

  RankTrace run() {
    if (unread().starts_with("\xEF\xBB\xBF")) begin_ += 3;  // a byte order mark
    read_root();
    if (document_.source.damage()) trace_.repairs.add(Repair::kDamagedCompression, place(), *document_.source.damage());
    finish();
    return std::move(trace_);
  }

 private:
  // --- the buffer: [begin_, end_) is unread; one byte before begin_ is always ours to overwrite

  const char* at(std::size_t offset) const { return buffer_.data() + offset; }
  std::size_t position(const char* pointer) const { return static_cast<std::size_t>(pointer - buffer_.data()); }
  std::string_view unread() const { return {at(begin_), end_ - begin_}; }
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

  /// The first byte that is no white space, at least `offset` behind begin_; moves `offset` to it and reads on when
  /// needed. kEnd at the end of the document.
  int peek(std::size_t& offset) {
    while (true) {
      offset = position(skip_space(at(begin_ + offset), at(end_))) - begin_;
      if (begin_ + offset < end_) return static_cast<unsigned char>(*at(begin_ + offset));
      if (!refill()) return kEnd;
    }
  }
  /// The same at begin_, which skips the white space.
  int peek() {
    std::size_t offset = 0;
    const int c = peek(offset);
    begin_ += offset;
    return c;
  }

  /// The whole value `offset` behind begin_, or an empty view when it is broken or the document ends in it.
  std::string_view whole_value(std::size_t offset = 0) {
    while (true) {
      const Walk walk = walk_value(at(begin_ + offset), at(end_));
      if (walk.state == Walk::State::kWhole) return {at(begin_ + offset), position(walk.at) - begin_ - offset};
      const bool more = walk.state == Walk::State::kNeedMore && end_ - begin_ <= kLargestValue;
      if (!more || !refill()) return {};
    }
  }

  void note(Repair repair, std::size_t offset) {
    if (trace_.repairs.count(repair) > 0) return trace_.repairs.add(repair, {}, {});  // only the first is described
    trace_.repairs.add(repair, place(offset), excerpt(offset));
  }

  /// Which ranks each process group has, by its name; PyTorch lists none where all take part.
  void list_groups(const nlohmann::json& groups) {
    for (const auto& group : groups) {
      if (!group.is_object()) continue;
      const auto name = group.find("pg_name"), ranks = group.find("ranks"), size = group.find("pg_size");
      if (name == group.end() || !name->is_string() || ranks == group.end()) continue;
      std::vector<std::int32_t> list;
      if (ranks->is_string()) {
        const auto entries = parse_rank_list(ranks->get<std::string>());
        if (entries && !entries->cut) list = entries->ranks;
      } else if (ranks->is_array()) {
        for (const auto& rank : *ranks) {
          if (rank.is_number_unsigned()) list.push_back(rank.get<std::int32_t>());
        }
      }
      constexpr std::uint32_t kMostRanks = 1u << 22;
      const bool all = list.empty() && size != group.end() && size->is_number_unsigned() &&
                       size->get<std::uint64_t>() == trace_.world_size && trace_.world_size <= kMostRanks;
      for (std::uint32_t rank = 0; all && rank < trace_.world_size; ++rank) {
        list.push_back(static_cast<std::int32_t>(rank));
      }
      if (!list.empty()) group_lists_[name->get<std::string>()] = std::move(list);
    }
  }

  // --- the object around the events

  /// The whole document: an object with the events in it, or a bare list of events.
  void read_root() {
    const int opening = peek();
    bool closed = false;
    if (opening == '{' || opening == '[') ++begin_;
    if (opening == '[') {
      read_events();
      closed = true;
    }
    for (int c = peek(); c != kEnd; c = peek()) {
      if (!closed && (c == ',' || c == '}')) {
        ++begin_;
        closed = c == '}';
      } else if (closed || c != '"' || !read_root_member()) {
        recover_in_root();
        closed = false;
      }
    }
    if (!closed && opening != '[' && trace_.repairs.count(Repair::kTruncatedInput) == 0) {
      trace_.repairs.add(Repair::kTruncatedInput, place(), "the JSON object is not closed");
    }
  }

  /// `"key": value` at begin_. False, with nothing taken, when it is damaged.
  bool read_root_member() {
    const std::string_view key_text = whole_value();
    if (key_text.empty()) return false;
    const std::string key(unquoted(key_text));
    std::size_t offset = key_text.size();
    if (peek(offset) != ':') return false;
    ++offset;
    const int c = peek(offset);
    if (key == "traceEvents") {
      if (c != '[') return false;
      begin_ += offset + 1;
      read_events();
      return true;
    }
    // A list of events behind a damaged key does not pass for a whole value.
    const std::string_view value = c == kEnd ? std::string_view{} : whole_value(offset);
    if (value.empty()) return false;
    read_metadata(key, value);
    begin_ += offset + value.size();
    return true;
  }

  void read_metadata(const std::string& key, std::string_view value) {
    if (key == "baseTimeNanoseconds") {
      const auto base = parse_integer(unquoted(value));
      trace_.base_time = base && in_range(*base) ? *base : 0;
      if (!base || !in_range(*base)) {
        trace_.repairs.add(Repair::kDamagedHeader, place(begin_), "baseTimeNanoseconds is no time; taken as 0");
      }
      return;
    }
    if (key != "distributedInfo" && key != "deviceProperties") return;
    auto json = nlohmann::json::parse(value, nullptr, false);
    if (json.is_discarded()) json = nlohmann::json::parse(mend(value), nullptr, false);
    if (json.is_discarded()) {
      trace_.repairs.add(Repair::kDamagedHeader, place(begin_), key + " is not valid JSON");
    } else if (key == "distributedInfo" && json.is_object()) {
      const auto number = [&](const char* name) -> std::optional<std::uint32_t> {
        const auto found = json.find(name);
        if (found == json.end()) return std::nullopt;
        const std::string text = found->is_string() ? found->get<std::string>() : found->dump();
        const auto whole = parse_integer(text);
        if (!whole || *whole < 0 || *whole > 0xFFFFFFFE) return std::nullopt;
        return static_cast<std::uint32_t>(*whole);
      };
      trace_.rank = number("rank");
      trace_.world_size = number("world_size").value_or(0);
      const auto backend = json.find("backend");
      if (backend != json.end() && backend->is_string()) trace_.backend = backend->get<std::string>();
      if (const auto groups = json.find("pg_config"); groups != json.end() && groups->is_array()) list_groups(*groups);
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

  /// begin_ is at damage outside the list of events. Goes on at the next event or known key.
  void recover_in_root() {
    note(Repair::kDamagedHeader, begin_);
    if (resync(/*in_list=*/false) == Found::kEvent) read_events();
  }

  std::string excerpt(std::size_t offset) const {
    constexpr std::size_t kShown = 40;
    std::string text = replace_invalid_utf8({at(offset), std::min(kShown, end_ - offset)});
    std::replace_if(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20; }, ' ');
    return "near '" + text + "'";
  }

  // --- the list of events

  /// begin_ is behind the '['. Ends behind the ']', at the end of the document, or at a known key after damage.
  void read_events() {
    while (true) {
      int c = peek();
      while (c == ',') {
        ++begin_;
        c = peek();
      }
      if (c == ']') {
        ++begin_;
        return;
      }
      if (c == kEnd) {
        trace_.repairs.add(Repair::kTruncatedInput, place(), "the list of events is not closed");
        return;
      }
      if (end_ - begin_ < kBlock / 2) refill();
      const std::size_t cut = c == '{' ? last_boundary(std::min(end_, begin_ + piece_)) : 0;
      if (cut != 0 && read_block(cut)) {
        piece_ = std::min(piece_ * 2, kBlock);
      } else if (!read_one()) {
        return;
      }
    }
  }

  /// Behind the last '}' before `limit` that "," and "{" follow, so that [begin_, cut) is a list of whole events; 0
  /// when there is none.
  std::size_t last_boundary(std::size_t limit) const {
    for (std::size_t brace = limit; brace > begin_ + 1; --brace) {
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

  /// The fast path: simdjson over a block of events. False when something in it is damaged; then begin_ is at or before
  /// the first event that was not taken, and the next blocks are smaller, so that damage makes only its neighbourhood
  /// slow.
  bool read_block(std::size_t cut) {
    const char saved_front = buffer_[begin_ - 1];
    const char saved_back = buffer_[cut];
    buffer_[begin_ - 1] = '[';
    buffer_[cut] = ']';
    const char* taken = nullptr;  // behind the last event that was taken
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
        if (const auto code = read_fields(event, Structure::kUnchecked, fields)) return code;
        if (fields.phase.empty()) return simdjson::NO_SUCH_FIELD;
        if (const auto code = list.current_location().get(taken)) return code;
        take(fields);
      }
      return simdjson::SUCCESS;
    }();
    buffer_[begin_ - 1] = saved_front;
    buffer_[cut] = saved_back;
    if (error != simdjson::SUCCESS) piece_ = std::max(piece_ / 4, kSmallestPiece);
    if (taken == nullptr) return false;
    begin_ = position(taken);
    return true;
  }

  /// One event, or the damage at its place. False when the list is over: a known top-level key follows.
  bool read_one() {
    const std::string_view text = *at(begin_) == '{' ? whole_value() : std::string_view{};
    if (text.empty()) return resync(/*in_list=*/true) != Found::kKey;
    if (!take_text(text) && !take_mended(begin_, text)) note(Repair::kDamagedEvent, begin_);
    begin_ += text.size();
    return true;
  }

  enum class Found { kEvent, kKey, kNothing };

  /// begin_ is at damage. Moves it to the next whole event or, when one comes before, to the next known key, and
  /// settles what lies between. Looks behind begin_ for the key when the damage is in the root, where it may start with
  /// one.
  Found resync(bool in_list) {
    std::size_t first = 0;  // events start here or later, counted from begin_
    std::size_t first_key = in_list ? 0 : 1;
    if (in_list && *at(begin_) == '{') first = 1;
    while (true) {
      const char* key = nullptr;
      Candidate event{};
      // In windows that grow, so that a key far behind costs nothing when an event is near, and the reverse.
      for (std::size_t window = 4u << 10;; window *= 4) {
        const std::size_t stop = std::min(end_, begin_ + first + window);
        key = begin_ + first_key < stop ? find_known_key(at(begin_ + first_key), at(stop)) : nullptr;
        event = find_event(at(begin_ + first), key != nullptr ? key : at(stop), at(end_));
        if (key != nullptr || event.state != Candidate::State::kNone || stop == end_) break;
      }
      if (event.state != Candidate::State::kNone) key = nullptr;  // it comes before
      if (key != nullptr) {
        settle(position(key), in_list);
        return Found::kKey;
      }
      if (event.state == Candidate::State::kFound) {
        settle(position(event.at), in_list);
        return Found::kEvent;
      }
      if (event.state == Candidate::State::kNeedMore) {
        first = position(event.at) - begin_;
        const bool too_large = end_ - position(event.at) > kLargestValue;
        if (too_large || !refill()) ++first;  // that one is cut; look inside it
        continue;
      }
      // Nothing up to the end of the buffer but, perhaps, the start of a key.
      constexpr std::size_t kKeyTail = 32;
      const std::size_t tail = std::min(kKeyTail, end_ - begin_);
      settle(end_ - tail, in_list);
      first = first_key = 0;
      if (!refill()) {
        settle(end_, in_list);
        return Found::kNothing;
      }
    }
  }

  /// [begin_, next) holds no whole event: events that can be mended, damaged ones, separators. Moves begin_ to `next`.
  void settle(std::size_t next, bool in_list) {
    std::size_t from = begin_;
    while (true) {
      while (from < next && is_separator(*at(from))) ++from;
      if (from == next) break;
      const std::size_t end = piece_end(from, next);
      const std::string_view text(at(from), end - from);
      const bool mended = text.front() == '{' && text.back() == '}' && take_mended(from, text);
      // What ends with the document was cut off rather than damaged.
      const bool cut = source_ended_ && end == end_;
      if (!mended && in_list) note(cut ? Repair::kTruncatedInput : Repair::kDamagedEvent, from);
      from = end;
    }
    begin_ = next;
  }

  static bool is_separator(char c) { return static_cast<unsigned char>(c) <= ' ' || c == ',' || c == ']'; }

  /// Behind the first '}' at or behind `from` that "," and "{" follow; else `next` less its separators.
  std::size_t piece_end(std::size_t from, std::size_t next) const {
    for (std::size_t brace = from; brace < next; ++brace) {
      const char* found = static_cast<const char*>(std::memchr(at(brace), '}', next - brace));
      if (found == nullptr) break;
      brace = position(found);
      const char* comma = skip_space(at(brace + 1), at(next));
      if (comma == at(next) || *comma != ',') continue;
      const char* opening = skip_space(comma + 1, at(next));
      if (opening < at(next) && *opening == '{') return brace + 1;
    }
    while (next > from + 1 && is_separator(*at(next - 1))) --next;
    return next;
  }

  bool take_text(std::string_view text) {
    od::document document;
    od::object event;
    Fields fields;
    // The bytes behind `text` in the buffer, or its padding, serve as simdjson's padding.
    if (parser_.iterate(text.data(), text.size(), text.size() + simdjson::SIMDJSON_PADDING).get(document)) return false;
    if (document.get_object().get(event)) return false;
    if (read_fields(event, Structure::kChecked, fields) || fields.phase.empty()) return false;
    take(fields);
    return true;
  }

  /// The event with its text put right, when that makes it one whole event.
  bool take_mended(std::size_t offset, std::string_view text) {
    const auto take_copy = [&](std::string copy, Repair repair) {
      const std::size_t size = copy.size();
      copy.append(simdjson::SIMDJSON_PADDING, ' ');
      const Walk walk = walk_value(copy.data(), copy.data() + size);
      const bool whole = walk.state == Walk::State::kWhole && walk.has_phase && walk.at == copy.data() + size;
      if (!whole || !take_text({copy.data(), size})) return false;
      note(repair, offset);
      return true;
    };
    std::string valid = replace_invalid_utf8(text);
    if (valid != text && take_copy(std::move(valid), Repair::kInvalidUtf8)) return true;
    return take_copy(mend(text), Repair::kMendedText);
  }

  // --- one event

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
        if (const auto time = time_of(fields)) {
          trace_.instants.push_back({*time, name_of(fields), lane_of(fields, false)});
          if (document_.options.allocator && fields.name == "[memory]") add_allocator_event(fields, *time);
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

  /// A number from 0 on; -1 for anything else.
  static std::int32_t small(std::string_view text) {
    const std::int64_t number = parse_integer(text).value_or(-1);
    return static_cast<std::int32_t>(number >= 0 && number <= 0x7FFFFFFF ? number : -1);
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
    if (!fields.step.empty() && !fields.operation.empty()) {
      trace_.pipeline_args.push_back({row, small(fields.step), small(fields.model_chunk), small(fields.operation)});
    }
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
    group_facts_.push_back(
        {small(fields.rank_start), small(fields.rank_stride), small(fields.source), small(fields.destination)});
  }

  void add_allocator_event(const Fields& fields, std::int64_t time) {
    const auto bytes = parse_integer(fields.bytes);
    if (!bytes || std::abs(*bytes) > kMostMemory) return;
    const auto total = [](std::string_view text) {
      const std::int64_t number = parse_integer(text).value_or(-1);
      return number >= 0 && number <= kMostMemory ? number : -1;
    };
    AllocatorEvent event{.time = time, .bytes = *bytes, .lane = lane_of(fields, false)};
    event.allocated = total(fields.allocated);
    event.reserved = total(fields.reserved);
    event.address = static_cast<std::uint64_t>(parse_integer(fields.address).value_or(0));
    // c10::DeviceType 0 is the host; its memory has no device index.
    const auto device = parse_integer(fields.device).value_or(0);
    if (fields.device_type != "0" && device >= 0 && device <= 0xFFFF) event.device = static_cast<std::int32_t>(device);
    trace_.allocator.push_back(event);
  }

  std::optional<std::int64_t> time_of(const Fields& fields) {
    const auto time = parse_time(fields.time);
    if (!time) note_event(Repair::kMissingTime, fields);
    return time;
  }

  void take_complete(const Fields& fields) {
    const auto start = time_of(fields);
    if (!start) return;
    std::int64_t duration = 0;
    if (!fields.duration.empty()) duration = parse_us(fields.duration).value_or(kAbsurd + 1);
    if (duration < 0 || duration > kAbsurd) {
      note_event(duration < 0 ? Repair::kNegativeDuration : Repair::kAbsurdDuration, fields);
      duration = 0;
    }
    add_slice(fields, *start, duration);
  }

  void note_event(Repair repair, const Fields& fields) {
    if (trace_.repairs.count(repair) > 0) return trace_.repairs.add(repair, {}, {});
    std::string detail = fmt::format("'{}'", replace_invalid_utf8(fields.name));
    if (repair == Repair::kMissingTime) detail += fmt::format(" starts at '{}'", fields.time);
    if (!fields.duration.empty()) detail += fmt::format(" lasts {} us", fields.duration);
    trace_.repairs.add(repair, event_place(fields), detail);
  }

  std::string event_place(const Fields& fields) const {
    const char* inside = fields.phase.data();
    const bool in_buffer = inside >= buffer_.data() && inside < buffer_.data() + buffer_.size();
    return in_buffer ? place(position(inside)) : place(begin_);
  }

  void take_begin_end(const Fields& fields, char phase) {
    const auto time = time_of(fields);
    if (!time) return;
    const Row row = phase == 'B' ? add_slice(fields, *time, 0) : kNoRow;
    const NameId name = fields.name.empty() ? base::kNone<NameId> : name_of(fields);
    const LaneId lane = lane_of(fields, on_device(category_of(fields.category)));
    begin_ends_.push_back({*time, lane, name, row});
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

  void finish() {
    count_unmatched_flows();
    match_begin_ends();
    add_base_time();
    for (Lane& lane : trace_.lanes) {
      const std::string prefix = lane.process + '\x1F';
      const auto thread = labels_.find(prefix + lane.thread);
      const auto process = labels_.find(prefix);
      lane.name = thread != labels_.end() ? thread->second : process != labels_.end() ? process->second : "";
      if (process != labels_.end()) lane.process_name = process->second;
    }
    name_groups();
    finish_slices(trace_);
  }

  /// Lists of ranks as one text for each group. distributedInfo may come behind the events, so this waits for the end.
  void name_groups() {
    std::map<std::tuple<NameId, NameId, std::int32_t, std::int32_t, std::int32_t>, NameId> known;
    for (std::size_t i = 0; i < trace_.collective_args.size(); ++i) {
      CollectiveArgs& args = trace_.collective_args[i];
      const GroupFacts& facts = group_facts_[i];
      if (facts.source >= 0 && facts.destination >= 0 && facts.source != facts.destination) {
        // Ranks count their transfers to different peers together: the order between the two is what they share.
        const auto [low, high] = std::minmax(facts.source, facts.destination);
        args.group_ranks = trace_.names.intern(fmt::format("[{}, {}]", low, high));
        args.sequence = -1;
        continue;
      }
      const auto [at, added] = known.try_emplace(
          {args.group_ranks, args.group, args.group_size, facts.rank_start, facts.rank_stride}, base::kNone<NameId>);
      if (added) {
        RankList list;
        if (args.group_ranks != base::kNone<NameId>) list.text = trace_.names.text(args.group_ranks);
        list.size = args.group_size;
        list.start = facts.rank_start;
        list.stride = facts.rank_stride;
        if (args.group != base::kNone<NameId>) {
          const auto listed = group_lists_.find(std::string(trace_.names.text(args.group)));
          if (listed != group_lists_.end()) list.listed = &listed->second;
        }
        const std::string text = canonical_ranks(list);
        at->second = text.empty() ? base::kNone<NameId> : trace_.names.intern(text);
      }
      args.group_ranks = at->second;
    }
  }

  /// Durations of slices that came as a begin and an end: events are not sorted, so this waits for all of them. An end
  /// that gives a name closes the innermost slice of that name; what is open inside it has lost its own end.
  void match_begin_ends() {
    std::stable_sort(begin_ends_.begin(), begin_ends_.end(), [](const BeginEnd& a, const BeginEnd& b) {
      return a.lane != b.lane ? a.lane < b.lane : a.time < b.time;
    });
    Slices& slices = trace_.slices;
    std::vector<BeginEnd> open;
    const auto close = [&](const BeginEnd& begin, std::int64_t time) {
      slices.duration[begin.row] = std::min(time - begin.time, kAbsurd);
    };
    const auto unmatched = [&](const BeginEnd& event, std::string_view what) {
      const auto name = event.name == base::kNone<NameId> ? std::string_view{} : trace_.names.text(event.name);
      trace_.repairs.add(Repair::kUnmatchedBegin, fmt::format("at {} ns", event.time),
                         fmt::format("'{}' {}", name, what));
    };
    for (std::size_t i = 0; i < begin_ends_.size(); ++i) {
      const BeginEnd& event = begin_ends_[i];
      if (event.row != kNoRow) {
        open.push_back(event);
      } else {
        auto begin = open.rbegin();
        if (event.name != base::kNone<NameId>) {
          begin = std::find_if(open.rbegin(), open.rend(), [&](const BeginEnd& one) { return one.name == event.name; });
        }
        if (begin == open.rend()) {
          unmatched(event, "has an end and no begin");
        } else {
          const auto matched = static_cast<std::size_t>(open.rend() - begin);  // slices up to the one that is closed
          while (open.size() >= matched) {
            if (open.size() > matched) unmatched(open.back(), "has no end; it was taken to end with what encloses it");
            close(open.back(), event.time);
            open.pop_back();
          }
        }
      }
      const bool last_of_lane = i + 1 == begin_ends_.size() || begin_ends_[i + 1].lane != event.lane;
      if (!last_of_lane) continue;
      for (const BeginEnd& begin : open) {
        unmatched(begin, "has no end; it was taken to end with the last event of its thread");
        close(begin, event.time);
      }
      open.clear();
    }
  }

  /// Waits for the end of the document, since the base may stand behind the events.
  void add_base_time() {
    if (trace_.base_time == 0) return;
    const auto fits = [&](std::int64_t time) { return in_range(time + trace_.base_time); };
    const bool all_fit =
        std::all_of(trace_.slices.start.begin(), trace_.slices.start.end(), fits) &&
        std::all_of(trace_.instants.begin(), trace_.instants.end(), [&](const Instant& one) { return fits(one.time); });
    if (!all_fit) {
      trace_.repairs.add(
          Repair::kDamagedHeader, "baseTimeNanoseconds",
          fmt::format("{} with the times of the events goes beyond the year 2096; ignored", trace_.base_time));
      trace_.base_time = 0;
      return;
    }
    for (std::int64_t& start : trace_.slices.start) start += trace_.base_time;
    for (Instant& instant : trace_.instants) instant.time += trace_.base_time;
    for (AllocatorEvent& event : trace_.allocator) event.time += trace_.base_time;
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
  std::size_t piece_ = kBlock;  // what the fast path takes at once; smaller near damage
  std::int64_t dropped_ = 0;    // bytes of the document before buffer_[1]
  bool source_ended_ = false;
  od::parser parser_;

  RankTrace trace_;
  base::InternTable lane_names_;
  std::string lane_key_;
  struct BeginEnd {
    std::int64_t time;
    LaneId lane;
    NameId name;
    Row row;  // kNoRow of an end
  };
  std::vector<BeginEnd> begin_ends_;
  std::unordered_map<std::string, std::string> labels_;
  struct GroupFacts {
    std::int32_t rank_start, rank_stride, source, destination;
  };
  std::vector<GroupFacts> group_facts_;  // beside trace_.collective_args
  std::unordered_map<std::string, std::vector<std::int32_t>> group_lists_;
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
