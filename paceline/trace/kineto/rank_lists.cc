#include "paceline/trace/kineto/rank_lists.h"

#include <fmt/core.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace paceline::trace::kineto {
namespace {

constexpr std::size_t kLongest = 30;
constexpr std::int32_t kMostRanks = 1 << 22;

std::string text_of(const std::vector<std::int32_t>& ranks) {
  if (ranks.size() <= kLongest) return fmt::format("[{}]", fmt::join(ranks, ", "));
  const std::int32_t stride = ranks[1] - ranks[0];
  bool even = stride > 0;
  for (std::size_t i = 2; i < ranks.size() && even; ++i) even = ranks[i] - ranks[i - 1] == stride;
  if (!even) return fmt::format("[{}]", fmt::join(ranks, ", "));
  if (stride == 1) return fmt::format("[{}-{}]", ranks.front(), ranks.back());
  return fmt::format("[{}-{} by {}]", ranks.front(), ranks.back(), stride);
}

bool begins_with(const std::vector<std::int32_t>& whole, const std::vector<std::int32_t>& part) {
  return whole.size() >= part.size() && std::equal(part.begin(), part.end(), whole.begin());
}

}  // namespace

std::optional<Entries> parse_rank_list(std::string_view text) {
  Entries entries;
  if (text.empty() || text.front() != '[' || text.back() != ']') return std::nullopt;
  text = text.substr(1, text.size() - 2);
  while (!text.empty()) {
    const char c = text.front();
    if (c == ' ' || c == ',') {
      text.remove_prefix(1);
      continue;
    }
    if (text.starts_with("...")) {
      entries.cut = true;
      text.remove_prefix(3);
      continue;
    }
    std::int32_t rank = 0;
    const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), rank);
    if (code != std::errc{} || rank < 0) return std::nullopt;
    entries.ranks.push_back(rank);
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  }
  return entries;
}

std::string canonical_ranks(const RankList& list) {
  const std::optional<Entries> entries = parse_rank_list(list.text);
  if (entries && !entries->cut && !entries->ranks.empty()) return text_of(entries->ranks);
  const std::vector<std::int32_t> known = entries ? entries->ranks : std::vector<std::int32_t>{};
  if (list.start >= 0 && list.stride > 0 && list.size > 0 && list.size <= kMostRanks) {
    std::vector<std::int32_t> ranks;
    for (std::int64_t i = 0; i < list.size; ++i) {
      ranks.push_back(static_cast<std::int32_t>(list.start + i * list.stride));
    }
    if (begins_with(ranks, known)) return text_of(ranks);
  }
  const bool sized =
      list.listed != nullptr && (list.size < 0 || list.listed->size() == static_cast<std::size_t>(list.size));
  if (sized && !list.listed->empty() && begins_with(*list.listed, known)) return text_of(*list.listed);
  if (known.empty()) return std::string(list.text);
  const std::int64_t more = list.size - static_cast<std::int64_t>(known.size());
  return fmt::format("[{}, and {} more]", fmt::join(known, ", "), more > 0 ? fmt::format("{}", more) : "some");
}

}  // namespace paceline::trace::kineto
