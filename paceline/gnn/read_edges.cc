#include "paceline/gnn/read_edges.h"

#include <fmt/core.h>

#include <array>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <string_view>
#include <utility>

#include "paceline/base/error.h"
#include "paceline/gnn/lines.h"

namespace paceline::gnn {
namespace {

enum Role : int { kSource, kTarget, kWeight, kTime, kSkip };

Role role_of(std::string_view name) {
  std::string lower;
  for (const char c : name)
    if (c != '"' && c != ' ' && c != '_') lower += static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  for (const char* known : {"src", "source", "from", "u", "srcid", "sourceid", "user", "userid", "head"})
    if (lower == known) return kSource;
  for (const char* known : {"dst", "target", "to", "v", "dstid", "targetid", "item", "itemid", "destination", "tail"})
    if (lower == known) return kTarget;
  for (const char* known : {"weight", "w", "rating"})
    if (lower == known) return kWeight;
  for (const char* known : {"time", "timestamp", "t", "ts"})
    if (lower == known) return kTime;
  return kSkip;
}

struct Columns {
  std::vector<Role> roles;
  bool plain_pair() const { return roles.size() == 2 && roles[0] == kSource && roles[1] == kTarget; }
  bool has(Role role) const {
    for (const Role each : roles)
      if (each == role) return true;
    return false;
  }
};

int decimals(TimeUnit unit) {
  switch (unit) {
    case TimeUnit::kSeconds:
      return 9;
    case TimeUnit::kMilliseconds:
      return 6;
    case TimeUnit::kMicroseconds:
      return 3;
    case TimeUnit::kNanoseconds:
      return 0;
  }
  return 0;
}

/// Decimal text to an integer with `digits` decimals; further decimals are cut. nullptr or what is wrong.
const char* parse_decimal(std::string_view text, int digits, std::int64_t& value) {
  const bool negative = !text.empty() && text[0] == '-';
  if (negative) text.remove_prefix(1);
  if (text.empty()) return "time missing";
  std::int64_t sum = 0;
  int after = -1;
  for (const char c : text) {
    if (c == '.' && after < 0) {
      after = 0;
      continue;
    }
    if (c < '0' || c > '9') return "time not a decimal number";
    if (after >= digits) continue;
    if (after >= 0) ++after;
    if (__builtin_mul_overflow(sum, 10, &sum) || __builtin_add_overflow(sum, c - '0', &sum))
      return "time too large for nanoseconds; is its unit right?";
  }
  for (int i = std::max(after, 0); i < digits; ++i)
    if (__builtin_mul_overflow(sum, 10, &sum)) return "time too large for nanoseconds; is its unit right?";
  value = negative ? -sum : sum;
  return nullptr;
}

const char* parse_id(std::string_view text, std::uint64_t& value) {
  if (text.size() >= 2 && text.front() == '"' && text.back() == '"') text = text.substr(1, text.size() - 2);
  if (text.empty()) return "node id missing";
  if (text.front() == '-') return "negative node id";
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code == std::errc::result_out_of_range) return "node id too large for 64 bits";
  if (code != std::errc{}) return "node id not a number";
  if (end != text.data() + text.size())
    return text[static_cast<std::size_t>(end - text.data())] == '.' ? "node id with decimals" : "node id not a number";
  return nullptr;
}

const char* parse_weight(std::string_view text, float& value) {
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty()) return "weight missing";
  if (code == std::errc::result_out_of_range) return "weight out of range";
  if (code != std::errc{} || end != text.data() + text.size()) return "weight not a number";
  if (!std::isfinite(value)) return "weight not finite";
  return nullptr;
}

class EdgeReader {
 public:
  EdgeReader(const std::string& name, const TextOptions& options, Defects& defects)
      : name_(name), options_(options), defects_(defects) {
    edges_.where = name;
  }

  EdgeList read(base::ByteSource& bytes) {
    LineReader lines(bytes);
    std::string_view line;
    while (lines.next(line)) {
      // The common case, two plain numbers, decided byte by byte without looking for fields first.
      if (pair_ && read_pair(line)) continue;
      read_line(line, lines.number());
    }
    if (bytes.damage()) defects_.lose(*bytes.damage(), fmt::format("{}, after line {}", name_, lines.number()));
    if (lines.overlong() > 0) defects_.lose("line longer than 1 MiB", name_, lines.overlong());
    if (edges_.size() == 0 && defects_.damaged())
      throw Error(ErrorKind::kBadInput, name_,
                  "has no readable edge:\n" + defects_.to_string() + "expected lines `source target [weight [time]]`");
    return std::move(edges_);
  }

 private:
  bool read_pair(std::string_view line) {
    const char* at = line.data();
    const char* const end = at + line.size();
    std::uint64_t from = 0;
    std::uint64_t to = 0;
    const auto number = [&](std::uint64_t& value) {
      const char* const begin = at;
      while (at < end && static_cast<unsigned char>(*at - '0') < 10)
        value = value * 10 + static_cast<std::uint64_t>(*at++ - '0');
      return at != begin && at - begin <= 18;
    };
    if (!number(from) || at == end || *at++ != separator_ || !number(to) || at != end) return false;
    if (options_.one_based && (from == 0 || to == 0)) return false;
    const std::uint64_t base = options_.one_based ? 1 : 0;
    edges_.add(from - base, to - base);
    return true;
  }

  void choose_columns(std::string_view line) {
    separator_ = ' ';
    for (const char c : {',', ';', '\t'})
      if (line.find(c) != std::string_view::npos) {
        separator_ = c;
        break;
      }
    split_fields(line, separator_, fields_);
    const bool header =
        !line.empty() &&
        std::string_view("0123456789-+.").find(line.front() == '"' && line.size() > 1 ? line[1] : line.front()) ==
            std::string_view::npos;
    if (header) {
      for (const std::string_view field : fields_) columns_.roles.push_back(role_of(field));
      if (!columns_.has(kSource) || !columns_.has(kTarget)) {
        defects_.note("header without source and target names, columns taken in order", name_ + ":1");
        columns_.roles.clear();
      }
    }
    if (columns_.roles.empty()) {
      const std::array<Role, 4> in_order{kSource, kTarget, options_.third_is_time ? kTime : kWeight, kTime};
      for (std::size_t i = 0; i < fields_.size(); ++i)
        columns_.roles.push_back(i < 4 && !(i == 3 && options_.third_is_time) ? in_order[i] : kSkip);
    }
    pair_ = columns_.plain_pair();
    known_ = true;
    skip_ = header;
  }

  void read_line(std::string_view line, std::uint64_t number) {
    if (line.empty() || line.front() == '#' || line.front() == '%') return;
    if (!known_) {
      choose_columns(line);
      if (std::exchange(skip_, false)) return;
    }
    split_fields(line, separator_, fields_);
    const char* wrong = nullptr;
    std::uint64_t from = 0;
    std::uint64_t to = 0;
    float weight = 0;
    std::int64_t time = 0;
    const auto where = [&] { return fmt::format("{}:{}", name_, number); };
    if (line.find('\0') != std::string_view::npos)
      wrong = "zero byte in a text line";
    else if (fields_.size() < columns_.roles.size())
      wrong = "too few columns";
    else if (fields_.size() > columns_.roles.size())
      defects_.note("more columns than the first line, ignored", where());
    for (std::size_t i = 0; i < columns_.roles.size() && wrong == nullptr; ++i) {
      switch (columns_.roles[i]) {
        case kSource:
          wrong = parse_id(fields_[i], from);
          break;
        case kTarget:
          wrong = parse_id(fields_[i], to);
          break;
        case kWeight:
          wrong = parse_weight(fields_[i], weight);
          break;
        case kTime:
          wrong = parse_decimal(fields_[i], decimals(options_.time_unit), time);
          break;
        case kSkip:
          break;
      }
    }
    if (wrong == nullptr && options_.one_based && (from == 0 || to == 0)) wrong = "node id 0 in a 1-based file";
    if (wrong != nullptr) return defects_.lose(wrong, where());
    const std::uint64_t base = options_.one_based ? 1 : 0;
    edges_.add(from - base, to - base);
    if (columns_.has(kWeight)) edges_.weight.push_back(weight);
    if (columns_.has(kTime)) edges_.time.push_back(time);
  }

  std::string name_;
  TextOptions options_;
  Defects& defects_;
  EdgeList edges_;
  Columns columns_;
  std::vector<std::string_view> fields_;
  char separator_ = ',';
  bool known_ = false;
  bool pair_ = false;
  bool skip_ = false;
};

std::optional<std::int64_t> node_value(std::string_view text) {
  if (text == "train" || text == "t") return 0;
  if (text == "val" || text == "valid" || text == "v") return 1;
  if (text == "test" || text == "e") return 2;
  if (text == "-") return -1;
  std::int64_t value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc{}) return std::nullopt;
  const std::string_view rest(end, static_cast<std::size_t>(text.data() + text.size() - end));
  if (!rest.empty() && rest.find_first_not_of(".0") != std::string_view::npos) return std::nullopt;
  return value;
}

}  // namespace

EdgeList read_edge_text(base::ByteSource& bytes, const std::string& name, const TextOptions& options,
                        Defects& defects) {
  return EdgeReader(name, options, defects).read(bytes);
}

EdgeList read_edge_text(const std::filesystem::path& path, const TextOptions& options, Defects& defects) {
  EdgeList edges;
  bool seen = false;
  base::for_each_document(path, [&](const std::string& name, base::ByteSource& bytes) {
    if (std::exchange(seen, true))
      throw Error(ErrorKind::kBadInput, path.string(), "is an archive of several files, expected one edge list");
    edges = read_edge_text(bytes, name, options, defects);
  });
  return edges;
}

std::vector<std::int64_t> read_node_values(const std::filesystem::path& path, std::int64_t missing, Defects& defects) {
  std::vector<std::int64_t> values;
  base::for_each_document(path, [&](const std::string& name, base::ByteSource& bytes) {
    LineReader lines(bytes);
    std::string_view line;
    std::vector<std::string_view> fields;
    bool first = true;
    while (lines.next(line)) {
      if (line.empty()) continue;
      split_fields(line, line.find('\t') != std::string_view::npos ? '\t' : ',', fields);
      const bool header = std::exchange(first, false) && !node_value(fields.back());
      if (header) continue;
      const std::string where = fmt::format("{}:{}", name, lines.number());
      std::uint64_t node = values.size();
      const char* wrong = fields.size() > 1 ? parse_id(fields[0], node) : nullptr;
      const std::optional<std::int64_t> value = node_value(fields.back());
      if (wrong != nullptr) {
        defects.lose(wrong, where);
      } else if (!value) {
        defects.lose("node value not a number", where);
      } else if (node > (std::uint64_t{1} << 40)) {
        defects.lose("node id too large", where);
      } else {
        if (node >= values.size()) values.resize(node + 1, missing);
        values[node] = *value;
      }
    }
    if (bytes.damage()) defects.lose(*bytes.damage(), name);
  });
  return values;
}

}  // namespace paceline::gnn
