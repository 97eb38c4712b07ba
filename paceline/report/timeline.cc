#include "paceline/report/timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "paceline/base/deflate.h"
#include "paceline/base/error.h"
#include "paceline/base/file.h"
#include "paceline/base/json.h"
#include "paceline/trace/select.h"
#include "paceline/trace/understand/host.h"
#include "paceline/trace/understand/launches.h"

namespace paceline::report {
namespace {

using base::Json;
using base::NameId;
using diagnose::Diagnosis;
using trace::Category;
using trace::kNoRow;
using trace::RankTrace;
using trace::Row;
using trace::Trace;

constexpr std::size_t kMostRanks = 8, kMostLate = 4;

/// In the order of the page's colours.
enum class Kind : std::uint8_t { kCompute, kCommunication, kCopy, kHostOperator, kAnnotation, kRuntime, kOther };

const diagnose::StepParts* step_of(const diagnose::RankDiagnosis& rank, std::int64_t number) {
  const auto step =
      std::find_if(rank.steps.begin(), rank.steps.end(), [&](const auto& each) { return each.number == number; });
  return step == rank.steps.end() ? nullptr : &*step;
}

std::int64_t median_step(const Diagnosis& diagnosis) {
  std::map<std::int64_t, std::pair<std::int64_t, std::int64_t>> sums;  // by number: time, ranks
  for (const auto& rank : diagnosis.ranks) {
    for (const auto& step : rank.steps) {
      sums[step.number].first += step.duration;
      ++sums[step.number].second;
    }
  }
  std::vector<std::pair<std::int64_t, std::int64_t>> means;  // and the number
  means.reserve(sums.size());
  for (const auto& [number, sum] : sums) means.emplace_back(sum.first / sum.second, number);
  if (means.empty()) return -1;
  const auto middle = means.begin() + static_cast<std::ptrdiff_t>((means.size() - 1) / 2);
  std::nth_element(means.begin(), middle, means.end());
  return middle->second;
}

/// How long each rank waited for the late ones.
std::vector<std::int64_t> waits_for(const std::vector<std::uint32_t>& late, const Diagnosis& diagnosis) {
  std::unordered_map<std::uint32_t, std::size_t> place;
  for (std::size_t i = 0; i < diagnosis.ranks.size(); ++i) place[diagnosis.ranks[i].rank] = i;
  std::vector<std::int64_t> waits(diagnosis.ranks.size(), 0);
  for (const auto& row : diagnosis.collectives) {
    if (std::find(late.begin(), late.end(), row.last_rank) == late.end()) continue;
    for (std::size_t m = 0; m < row.members.size(); ++m) waits[place.at(row.members[m])] += row.waits[m];
  }
  return waits;
}

std::string base64(std::string_view bytes) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t at = 0; at < bytes.size(); at += 3) {
    std::uint32_t group = 0;
    const std::size_t size = std::min<std::size_t>(3, bytes.size() - at);
    for (std::size_t i = 0; i < 3; ++i) group = group << 8 | (i < size ? static_cast<std::uint8_t>(bytes[at + i]) : 0u);
    for (std::size_t i = 0; i < 4; ++i) text += i <= size ? kDigits[group >> (18 - 6 * i) & 63] : '=';
  }
  return text;
}

void put(std::string& to, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) to += static_cast<char>(value | 0x80);
  to += static_cast<char>(value);
}

/// Numbers in order of first appearance.
template <class Key>
class Numbers {
 public:
  /// The number of `key`; `added` when it is new.
  std::pair<std::uint32_t, bool> of(const Key& key) {
    const auto [at, added] = numbers_.try_emplace(key, static_cast<std::uint32_t>(numbers_.size()));
    return {at->second, added};
  }

 private:
  std::map<Key, std::uint32_t> numbers_;
};

class Writer {
 public:
  Writer(const Diagnosis& diagnosis, const Trace& trace, const TimelineChoice& choice)
      : diagnosis_(diagnosis), trace_(trace), choice_(choice), shift_(trace.ranks.size(), 0) {
    find_window();
    for (const std::size_t rank : choice.ranks) member_of_.emplace(static_cast<std::uint32_t>(rank), Members{});
    for (std::uint32_t c = 0; c < trace.collectives.size(); ++c) {
      const trace::Collective& collective = trace.collectives[c];
      for (std::uint32_t m = collective.members_begin; m < collective.members_end; ++m) {
        const auto rank = member_of_.find(trace.members[m].rank);
        if (rank == member_of_.end()) continue;
        const trace::CommEvent& event = trace.event(trace.members[m]);
        rank->second.emplace(std::pair{event.begin, event.end}, c);
      }
    }
  }

  /// Drops all rows but those of a window's length around the window: what they launched may run in it.
  void keep_near_window(RankTrace& rows) const {
    const std::size_t rank = place_of(rows);
    const std::int64_t length = end_ - begin_;
    std::vector<bool> keep(rows.slices.size());
    for (Row row = 0; row < rows.slices.size(); ++row) {
      keep[row] =
          time(rank, rows.slices.start[row]) < end_ + length && time(rank, rows.slices.end(row)) > begin_ - length;
    }
    trace::keep_rows(rows, keep);
  }

  std::string write(const std::vector<RankTrace>& rows, std::size_t most_slices) {
    cut_window(rows, most_slices);
    for (const RankTrace& each : rows) write_rank(place_of(each), each);
    std::string packed;
    base::Deflater deflater;
    deflater.add(data_, packed);
    deflater.finish(packed);
    const Json json = {
        {"step", choice_.step},  {"length_ns", end_ - begin_}, {"left_out", left_out_}, {"names", names_},
        {"kinds", kinds_},       {"details", details_},        {"ranks", ranks_},       {"collectives", links_},
        {"data", base64(packed)}};
    return json.dump(-1, ' ', false, Json::error_handler_t::replace);
  }

 private:
  using Members = std::map<std::pair<std::int64_t, std::int64_t>, std::uint32_t>;  // begin and end -> collective

  /// The index of a trace among the ranks of the job. By its source: read alone, it may have got another number.
  std::size_t place_of(const RankTrace& rows) const {
    const auto place = std::find_if(choice_.ranks.begin(), choice_.ranks.end(),
                                    [&](std::size_t rank) { return trace_.ranks[rank].source == rows.source; });
    PL_CHECK(place != choice_.ranks.end());
    return *place;
  }

  /// Ranks whose clocks nothing ties to the others begin the step together with the first.
  void find_window() {
    const auto tied = std::find_if(choice_.ranks.begin(), choice_.ranks.end(),
                                   [&](std::size_t rank) { return trace_.clocks[rank].known; });
    const std::size_t first = tied == choice_.ranks.end() ? choice_.ranks.front() : *tied;
    const std::int64_t together = step_of(diagnosis_.ranks[first], choice_.step)->begin;
    for (const std::size_t rank : choice_.ranks) {
      const diagnose::StepParts& step = *step_of(diagnosis_.ranks[rank], choice_.step);
      if (!trace_.clocks[rank].known && rank != first) shift_[rank] = step.begin - together;
      begin_ = std::min(begin_, step.begin - shift_[rank]);
      end_ = std::max(end_, step.begin - shift_[rank] + step.duration);
    }
  }

  std::int64_t time(std::size_t rank, std::int64_t own) const { return trace_.clocks[rank].align(own) - shift_[rank]; }

  bool shown(std::size_t rank, const RankTrace& rows, Row row) const {
    return rows.slices.category[row] != Category::kPython && time(rank, rows.slices.start[row]) < end_ &&
           time(rank, rows.slices.end(row)) > begin_;
  }

  /// Ends the window where the limit is reached.
  void cut_window(const std::vector<RankTrace>& rows, std::size_t most) {
    std::vector<std::int64_t> starts;
    for (const RankTrace& each : rows) {
      const std::size_t rank = place_of(each);
      for (Row row = 0; row < each.slices.size(); ++row) {
        if (shown(rank, each, row)) starts.push_back(time(rank, each.slices.start[row]));
      }
    }
    if (starts.size() <= most) return;
    const auto cut = starts.begin() + static_cast<std::ptrdiff_t>(most);
    std::nth_element(starts.begin(), cut, starts.end());
    end_ = std::max(begin_ + 1, *cut);
    left_out_ = std::count_if(starts.begin(), starts.end(), [&](std::int64_t start) { return start >= end_; });
  }

  Kind kind_of(std::size_t rank, Category category, std::string_view name) const {
    const bool device = trace_.ranks[rank].has_device;
    switch (category) {
      case Category::kKernel:
        return trace::kind_of_kernel(name) == trace::CollectiveKind::kNone ? Kind::kCompute : Kind::kCommunication;
      case Category::kMemcpy:
      case Category::kMemset:
        return Kind::kCopy;
      case Category::kCpuOp:
        if (!device && trace::is_host_collective(name)) return Kind::kCommunication;
        // Without a device the operators are the work, but for those that wait for communication.
        return device || name.starts_with("c10d::") || name == "record_param_comms" ? Kind::kHostOperator
                                                                                    : Kind::kCompute;
      case Category::kUserAnnotation:
        return !device && trace::is_host_collective(name) ? Kind::kCommunication : Kind::kAnnotation;
      case Category::kGpuAnnotation:
        return Kind::kAnnotation;
      case Category::kRuntime:
        return Kind::kRuntime;
      case Category::kPython:
      case Category::kSync:
      case Category::kOther:
        break;
    }
    return Kind::kOther;
  }

  std::uint32_t name_of(std::string_view text, Kind kind) {
    const auto [number, added] = name_numbers_.of({std::string(text), kind});
    if (added) {
      names_.push_back(text);
      kinds_.push_back(static_cast<int>(kind));
    }
    return number;
  }

  /// Operator and shapes of a slice: its own, or those of what launched it. 0 = none, else its number + 1.
  std::uint32_t detail_of(const RankTrace& rows, Row row, Row launcher, const std::vector<Row>& parents) {
    Row op = launcher;
    while (op != kNoRow && rows.slices.category[op] != Category::kCpuOp) op = parents[op];
    const NameId shapes = rows.slices.shapes[op == kNoRow ? row : op];
    const bool has_shapes = shapes != base::kNone<NameId>;
    if (op == kNoRow && !has_shapes) return 0;
    const std::pair<std::string, std::string> detail{op == kNoRow ? "" : rows.name(op),
                                                     has_shapes ? rows.names.text(shapes) : ""};
    const auto [number, added] = detail_numbers_.of(detail);
    if (added) details_.push_back({detail.first, detail.second});
    return number + 1;
  }

  /// The rank's lanes: the device's first, then the thread that drives the steps, then the others.
  static std::vector<std::size_t> lane_order(const RankTrace& rows) {
    const auto main = trace::main_thread(rows);
    const auto place = [&](std::size_t lane) {
      return rows.lanes[lane].device ? 0 : main && base::index(*main) == lane ? 1 : 2;
    };
    std::vector<std::size_t> order(rows.lanes.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return place(a) < place(b); });
    return order;
  }

  void write_rank(std::size_t rank, const RankTrace& rows) {
    const std::vector<Row> launchers = trace::link_launches(rows), parents = trace::link_parents(rows);
    const diagnose::StepParts& step = *step_of(diagnosis_.ranks[rank], choice_.step);
    Json lanes = Json::array();
    for (const std::size_t l : lane_order(rows)) {
      const trace::Lane& lane = rows.lanes[l];
      std::vector<std::vector<Row>> levels;
      std::vector<std::int64_t> ends;  // of each level's last slice
      for (Row row = lane.begin; row < lane.end; ++row) {
        if (!shown(rank, rows, row)) continue;
        std::size_t level = ends.size();
        while (level > 0 && ends[level - 1] <= rows.slices.start[row]) --level;
        if (level == ends.size()) {
          ends.push_back(0);
          levels.emplace_back();
        }
        ends[level] = rows.slices.end(row);
        levels[level].push_back(row);
      }
      if (levels.empty()) continue;
      Json counts = Json::array();
      for (const std::vector<Row>& level : levels) {
        write_row(rank, rows, level, launchers, parents);
        counts.push_back(level.size());
      }
      const std::string fallback = (lane.device ? "stream " : "thread ") + lane.thread;
      lanes.push_back(
          {{"name", lane.name.empty() ? fallback : lane.name}, {"device", lane.device}, {"rows", std::move(counts)}});
    }
    ranks_.push_back({{"rank", *trace_.ranks[rank].rank},
                      {"begin_ns", step.begin - shift_[rank] - begin_},
                      {"end_ns", step.begin - shift_[rank] + step.duration - begin_},
                      {"clock_known", shift_[rank] == 0},
                      {"lanes", std::move(lanes)}});
  }

  void write_row(std::size_t rank, const RankTrace& rows, const std::vector<Row>& level,
                 const std::vector<Row>& launchers, const std::vector<Row>& parents) {
    const Members& members = member_of_.at(static_cast<std::uint32_t>(rank));
    std::string durations, names, details;
    std::int64_t last = 0;
    for (std::size_t i = 0; i < level.size(); ++i) {
      const Row row = level[i];
      const std::int64_t start = time(rank, rows.slices.start[row]) - begin_;
      const auto distance = static_cast<std::uint64_t>(start - last);
      put(data_, i > 0 ? distance : distance << 1 ^ static_cast<std::uint64_t>(start >> 63));
      last = start;
      put(durations, static_cast<std::uint64_t>(time(rank, rows.slices.end(row)) - begin_ - start));
      const Kind kind = kind_of(rank, rows.slices.category[row], rows.name(row));
      put(names, name_of(rows.name(row), kind));
      put(details, detail_of(rows, row, launchers[row], parents));
      if (kind != Kind::kCommunication) continue;
      const auto member = members.find({rows.slices.start[row], rows.slices.end(row)});
      if (member != members.end()) links_.push_back({rows_written_, i, member->second});
    }
    data_.append(durations).append(names).append(details);
    ++rows_written_;
  }

  const Diagnosis& diagnosis_;
  const Trace& trace_;
  const TimelineChoice& choice_;
  std::vector<std::int64_t> shift_;  // of each rank of the trace
  std::map<std::uint32_t, Members> member_of_;
  std::int64_t begin_ = std::numeric_limits<std::int64_t>::max(), end_ = std::numeric_limits<std::int64_t>::min();
  std::int64_t left_out_ = 0;
  Numbers<std::pair<std::string, Kind>> name_numbers_;
  Numbers<std::pair<std::string, std::string>> detail_numbers_;
  Json names_ = Json::array(), kinds_ = Json::array(), details_ = Json::array(), ranks_ = Json::array(),
       links_ = Json::array();
  std::size_t rows_written_ = 0;
  std::string data_;
};

}  // namespace

TimelineChoice choose_timeline(const Diagnosis& diagnosis, const Trace& trace, const TimelineOptions& options) {
  TimelineChoice choice;
  choice.step = options.step.value_or(median_step(diagnosis));
  const std::vector<std::int64_t> waits = waits_for(diagnosis.late.ranks, diagnosis);
  std::vector<std::size_t> late, others;
  for (std::size_t i = 0; i < diagnosis.ranks.size(); ++i) {
    const std::uint32_t rank = diagnosis.ranks[i].rank;
    if (step_of(diagnosis.ranks[i], choice.step) == nullptr) continue;
    if (options.ranks) {
      if (options.ranks->contains(rank)) choice.ranks.push_back(i);
      continue;
    }
    const auto& all = diagnosis.late.ranks;
    const bool is_late = std::find(all.begin(), all.end(), rank) != all.end() && late.size() < kMostLate;
    (is_late ? late : others).push_back(i);
  }
  if (!options.ranks) {
    std::stable_sort(others.begin(), others.end(), [&](std::size_t a, std::size_t b) { return waits[a] > waits[b]; });
    choice.ranks = late;
    for (std::size_t i = 0; i < others.size() && choice.ranks.size() < kMostRanks; ++i) {
      choice.ranks.push_back(others[i]);
    }
    std::sort(choice.ranks.begin(), choice.ranks.end());
  }
  if (!choice.ranks.empty()) return choice;
  if (options.step && std::none_of(diagnosis.ranks.begin(), diagnosis.ranks.end(),
                                   [&](const auto& rank) { return step_of(rank, *options.step) != nullptr; })) {
    std::int64_t low = std::numeric_limits<std::int64_t>::max(), high = -1;
    for (const auto& rank : diagnosis.ranks) {
      for (const auto& step : rank.steps) {
        low = std::min(low, step.number);
        high = std::max(high, step.number);
      }
    }
    throw Error(ErrorKind::kUsage, "--timeline-step",
                high < 0 ? fmt::format("{}, but the traces mark no steps; leave the option out", *options.step)
                         : fmt::format("no rank has step {}; the traces have {}-{}", *options.step, low, high));
  }
  if (options.ranks) {
    throw Error(ErrorKind::kUsage, "--timeline",
                fmt::format("none of the {} ranks with this step is among those asked for", trace.ranks.size()));
  }
  return choice;
}

std::string timeline_json(const std::vector<RankTrace>& rows, const TimelineChoice& choice, const Diagnosis& diagnosis,
                          const Trace& trace, const TimelineOptions& options) {
  if (choice.ranks.empty()) return "null";
  return Writer(diagnosis, trace, choice).write(rows, options.most_slices);
}

std::string read_timeline(const std::vector<std::string>& inputs, const trace::LoadOptions& load,
                          const Diagnosis& diagnosis, const Trace& trace, const TimelineOptions& options) {
  const TimelineChoice choice = choose_timeline(diagnosis, trace, options);
  for (const std::filesystem::path& file : base::expand_inputs(inputs)) {
    if (!std::filesystem::is_regular_file(file)) return "null";
  }
  if (choice.ranks.empty()) return "null";
  Writer writer(diagnosis, trace, choice);
  trace::LoadOptions again = load;
  again.show_progress = false;
  std::vector<RankTrace> rows;
  // File by file where each rank has its own: its path need not tell the rank, and one trace is in memory at a time.
  const bool apart = std::all_of(choice.ranks.begin(), choice.ranks.end(), [&](std::size_t rank) {
    std::error_code unknown;
    return std::filesystem::is_regular_file(trace.ranks[rank].source, unknown);
  });
  if (apart) {
    again.ranks = {};
    again.hosts.clear();
    for (const std::size_t rank : choice.ranks) {
      rows.push_back(std::move(trace::load({trace.ranks[rank].source}, again).ranks.front()));
      writer.keep_near_window(rows.back());
    }
  } else {
    std::vector<std::string> numbers;
    numbers.reserve(choice.ranks.size());
    for (const std::size_t rank : choice.ranks) numbers.push_back(fmt::format("{}", *trace.ranks[rank].rank));
    again.ranks = trace::Ranges(fmt::format("{}", fmt::join(numbers, ",")), "--timeline");
    rows = trace::load(inputs, again).ranks;
  }
  return writer.write(rows, options.most_slices);
}

}  // namespace paceline::report
