#include "paceline/gnn/lines.h"

#include <cstring>

namespace paceline::gnn {

bool LineReader::refill() {
  if (ended_) return false;
  std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
  end_ -= begin_;
  begin_ = 0;
  const std::size_t count = source_.read({buffer_.data() + end_, buffer_.size() - end_});
  end_ += count;
  ended_ = count == 0;
  return !ended_;
}

bool LineReader::next(std::string_view& line) {
  std::size_t scanned = begin_;
  bool dropping = false;
  for (;;) {
    const char* const from = buffer_.data() + scanned;
    const auto* const newline = static_cast<const char*>(std::memchr(from, '\n', end_ - scanned));
    if (newline != nullptr) {
      const auto at = static_cast<std::size_t>(newline - buffer_.data());
      line = {buffer_.data() + begin_, at - begin_};
      begin_ = at + 1;
      ++number_;
      if (dropping) {
        ++overlong_;
        dropping = false;
        scanned = begin_;
        continue;
      }
      break;
    }
    if (begin_ == 0 && end_ == buffer_.size()) {  // one line fills the buffer
      dropping = true;
      end_ = 0;
    }
    const std::size_t kept = end_ - begin_;
    if (!refill()) {
      if (dropping) ++overlong_;
      if (begin_ == end_ || dropping) return false;
      line = {buffer_.data() + begin_, end_ - begin_};
      begin_ = end_;
      ++number_;
      break;
    }
    scanned = kept;
  }
  if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
  return true;
}

void split_fields(std::string_view line, char separator, std::vector<std::string_view>& fields) {
  fields.clear();
  const auto blank = [](char c) { return c == ' ' || c == '\t'; };
  std::size_t at = 0;
  while (at <= line.size()) {
    if (separator == ' ') {
      while (at < line.size() && blank(line[at])) ++at;
      if (at == line.size()) break;
      std::size_t end = at;
      while (end < line.size() && !blank(line[end])) ++end;
      fields.push_back(line.substr(at, end - at));
      at = end;
    } else {
      const std::size_t end = std::min(line.find(separator, at), line.size());
      std::size_t first = at;
      std::size_t last = end;
      while (first < last && blank(line[first])) ++first;
      while (last > first && blank(line[last - 1])) --last;
      fields.push_back(line.substr(first, last - first));
      at = end + 1;
    }
  }
}

}  // namespace paceline::gnn
