#include "paceline/trace/flight_recorder/pickle.h"

#include <fmt/core.h>

#include <bit>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "paceline/base/error.h"

namespace paceline::trace::flight_recorder {
namespace {

using base::Json;

// Python's Lib/pickletools.py describes the opcodes.
enum Opcode : std::uint8_t {
  kMark = '(',
  kStop = '.',
  kNone = 'N',
  kBinInt = 'J',
  kBinInt1 = 'K',
  kBinInt2 = 'M',
  kBinFloat = 'G',
  kBinUnicode = 'X',
  kBinBytes = 'B',
  kShortBinBytes = 'C',
  kEmptyList = ']',
  kAppend = 'a',
  kAppends = 'e',
  kEmptyDict = '}',
  kSetItem = 's',
  kSetItems = 'u',
  kEmptyTuple = ')',
  kTuple = 't',
  kBinGet = 'h',
  kLongBinGet = 'j',
  kBinPut = 'q',
  kLongBinPut = 'r',
  kProto = 0x80,
  kTuple1 = 0x85,
  kTuple2 = 0x86,
  kTuple3 = 0x87,
  kNewTrue = 0x88,
  kNewFalse = 0x89,
  kLong1 = 0x8A,
  kLong4 = 0x8B,
  kShortBinUnicode = 0x8C,
  kBinUnicode8 = 0x8D,
  kBinBytes8 = 0x8E,
  kMemoize = 0x94,
  kFrame = 0x95
};

/// Index into the machine's values. A list is filled after it was put into the memo, so that values are shared by
/// index and not by copy.
using Ref = std::uint32_t;
struct List {
  std::vector<Ref> items;
};
struct Dict {
  std::vector<std::pair<Ref, Ref>> items;
};
using Value = std::variant<std::nullptr_t, bool, std::int64_t, double, std::string_view, List, Dict>;

class Machine {
 public:
  Machine(std::string_view bytes, const std::string& where) : bytes_(bytes), where_(where) {}

  Json run() {
    while (true) {
      const std::size_t start = at_;
      const auto opcode = static_cast<std::uint8_t>(take(1)[0]);
      if (opcode == kStop) break;
      step(opcode, start);
    }
    if (stack_.size() != 1 || !marks_.empty()) fail(at_, "the pickle ends with more or less than one value");
    return to_json(stack_[0], 0);
  }

 private:
  [[noreturn]] void fail(std::size_t at, const std::string& what) const {
    throw Error(ErrorKind::kBadInput, fmt::format("{}: byte {}", where_, at), what);
  }

  std::string_view take(std::uint64_t count) {
    if (count > bytes_.size() - at_) fail(bytes_.size(), "the pickle is cut short; copy the dump again");
    const std::string_view taken = bytes_.substr(at_, count);
    at_ += count;
    return taken;
  }
  /// Little-endian, as all numbers but floats are.
  std::uint64_t number(std::size_t size) {
    std::uint64_t value = 0;
    const std::string_view text = take(size);
    for (std::size_t i = 0; i < size; ++i) {
      value |= static_cast<std::uint64_t>(static_cast<unsigned char>(text[i])) << (8 * i);
    }
    return value;
  }

  void push(Value value) {
    values_.push_back(std::move(value));
    stack_.push_back(static_cast<Ref>(values_.size() - 1));
  }
  std::size_t bottom() const { return marks_.empty() ? 0 : marks_.back(); }
  Ref pop() {
    if (stack_.size() <= bottom()) fail(at_, "the pickle takes a value that it did not put; it is damaged");
    const Ref top = stack_.back();
    stack_.pop_back();
    return top;
  }
  std::vector<Ref> pop_to_mark() {
    if (marks_.empty()) fail(at_, "the pickle goes back to a mark that it did not set; it is damaged");
    const auto first = stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back());
    std::vector<Ref> items(first, stack_.end());
    stack_.erase(first, stack_.end());
    marks_.pop_back();
    return items;
  }
  template <class Container>
  Container& top() {
    Container* container = stack_.size() > bottom() ? std::get_if<Container>(&values_[stack_.back()]) : nullptr;
    if (container == nullptr) fail(at_, "the pickle adds to what is no list or dict; it is damaged");
    return *container;
  }
  void tuple(std::size_t size) {
    List list;
    list.items.resize(size);
    for (std::size_t i = size; i > 0; --i) list.items[i - 1] = pop();
    push(std::move(list));
  }
  void append(const std::vector<Ref>& items) {
    List& list = top<List>();
    list.items.insert(list.items.end(), items.begin(), items.end());
  }
  void set_items(const std::vector<Ref>& items) {
    if (items.size() % 2 != 0) fail(at_, "the pickle sets a key without a value; it is damaged");
    Dict& dict = top<Dict>();
    for (std::size_t i = 0; i < items.size(); i += 2) dict.items.emplace_back(items[i], items[i + 1]);
  }
  void put(std::uint64_t slot) {
    if (stack_.size() <= bottom()) fail(at_, "the pickle remembers a value that is not there; it is damaged");
    memo_[slot] = stack_.back();
  }
  void get(std::uint64_t slot) {
    const auto found = memo_.find(slot);
    if (found == memo_.end()) fail(at_, fmt::format("the pickle asks for memo {}, which it did not set", slot));
    stack_.push_back(found->second);
  }
  void integer(std::uint64_t size, std::size_t start) {
    if (size > sizeof(std::int64_t)) fail(start, "a whole number of more than 64 bits; expected none in a dump");
    std::uint64_t value = number(size);
    const bool negative = size > 0 && size < 8 && (value >> (8 * size - 1)) != 0;
    if (negative) value |= ~std::uint64_t{0} << (8 * size);
    push(static_cast<std::int64_t>(value));
  }

  void step(std::uint8_t opcode, std::size_t start) {
    switch (opcode) {
      case kProto:
        if (number(1) > 5) fail(start, "a pickle of a protocol above 5; dump with protocol 2 to 5");
        return;
      case kFrame:
        number(8);
        return;
      case kMark:
        return marks_.push_back(stack_.size());
      case kNone:
        return push(nullptr);
      case kNewTrue:
      case kNewFalse:
        return push(opcode == kNewTrue);
      case kBinInt:
        return push(std::int64_t{static_cast<std::int32_t>(number(4))});
      case kBinInt1:
        return push(static_cast<std::int64_t>(number(1)));
      case kBinInt2:
        return push(static_cast<std::int64_t>(number(2)));
      case kLong1:
        return integer(number(1), start);
      case kLong4:
        return integer(number(4), start);
      case kBinFloat: {
        std::uint64_t bits = 0;
        for (const char c : take(8)) bits = bits << 8 | static_cast<unsigned char>(c);
        return push(std::bit_cast<double>(bits));
      }
      case kShortBinUnicode:
      case kShortBinBytes:
        return push(take(number(1)));
      case kBinUnicode:
      case kBinBytes:
        return push(take(number(4)));
      case kBinUnicode8:
      case kBinBytes8:
        return push(take(number(8)));
      case kEmptyList:
      case kEmptyTuple:
        return push(List{});
      case kEmptyDict:
        return push(Dict{});
      case kTuple1:
      case kTuple2:
      case kTuple3:
        return tuple(opcode - kTuple1 + 1u);
      case kTuple:
        return push(List{pop_to_mark()});
      case kAppend: {
        const Ref item = pop();
        return append({item});
      }
      case kAppends: {
        const std::vector<Ref> items = pop_to_mark();
        return append(items);
      }
      case kSetItem: {
        const Ref value = pop(), key = pop();
        return set_items({key, value});
      }
      case kSetItems: {
        const std::vector<Ref> items = pop_to_mark();
        return set_items(items);
      }
      case kBinPut:
        return put(number(1));
      case kLongBinPut:
        return put(number(4));
      case kMemoize:
        return put(memo_.size());
      case kBinGet:
        return get(number(1));
      case kLongBinGet:
        return get(number(4));
      default:
        fail(start, fmt::format("pickle opcode 0x{:02x} ('{}') is refused: a dump holds plain data, and what could "
                                "name or call code is not read; write the dump as JSON",
                                opcode, opcode >= 0x20 && opcode < 0x7F ? static_cast<char>(opcode) : '?'));
    }
  }

  /// Shared values are written out at each place, so that a small pickle can ask for much; bounded by depth and number.
  Json to_json(Ref ref, int depth) {
    constexpr int kDeepest = 100;
    constexpr std::size_t kMostCopies = 64;  // of a shared value, on average
    if (depth > kDeepest || ++written_ > kMostCopies * bytes_.size() + 1000) {
      fail(at_, "the pickle holds itself, or more than a dump can; it is damaged");
    }
    const Value& value = values_[ref];
    if (std::holds_alternative<std::nullptr_t>(value)) return nullptr;
    if (const auto* flag = std::get_if<bool>(&value)) return *flag;
    if (const auto* whole = std::get_if<std::int64_t>(&value)) return *whole;
    if (const auto* real = std::get_if<double>(&value)) return *real;
    if (const auto* text = std::get_if<std::string_view>(&value)) return std::string(*text);
    if (const auto* list = std::get_if<List>(&value)) {
      Json array = Json::array();
      for (const Ref item : list->items) array.push_back(to_json(item, depth + 1));
      return array;
    }
    // An ordered object looks each key up by walking over all: large dicts go through a plain map of places first.
    std::vector<std::pair<std::string, Json>> members;
    std::unordered_map<std::string, std::size_t> places;
    for (const auto& [key_ref, item] : std::get<Dict>(value).items) {
      Json key = to_json(key_ref, depth + 1);
      std::string name =
          key.is_string() ? key.get<std::string>() : key.dump(-1, ' ', false, Json::error_handler_t::replace);
      const auto [place, added] = places.try_emplace(name, members.size());
      if (added) members.emplace_back(std::move(name), nullptr);
      members[place->second].second = to_json(item, depth + 1);
    }
    Json object = Json::object();
    auto& pairs = object.get_ref<Json::object_t&>();
    for (auto& [name, item] : members) pairs.emplace_back(std::move(name), std::move(item));
    return object;
  }

  std::string_view bytes_;
  const std::string& where_;
  std::size_t at_ = 0;
  std::size_t written_ = 0;
  std::vector<Value> values_;
  std::vector<Ref> stack_;
  std::vector<std::size_t> marks_;  // sizes of the stack
  std::unordered_map<std::uint64_t, Ref> memo_;
};

}  // namespace

Json parse_pickle(std::string_view bytes, const std::string& where) {
  return Machine(bytes, where).run();
}

}  // namespace paceline::trace::flight_recorder
