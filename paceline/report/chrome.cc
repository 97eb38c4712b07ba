#include "paceline/report/chrome.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "paceline/report/json_file.h"
#include "paceline/trace/understand/launches.h"

namespace paceline::report {
namespace {

using trace::Category;
using trace::RankTrace;
using trace::Row;

/// ns as decimal microseconds, without loss.
void append_us(fmt::appender to, std::int64_t ns) {
  const bool negative = ns < 0;
  const auto size = negative ? 0 - static_cast<std::uint64_t>(ns) : static_cast<std::uint64_t>(ns);
  fmt::format_to(to, "{}{}.{:03}", negative ? "-" : "", size / 1000, size % 1000);
}

class Writer {
 public:
  Writer(std::span<const RankTrace> ranks, std::span<const trace::Clock> clocks, const std::string& path, bool arrows)
      : ranks_(ranks), clocks_(clocks), arrows_(arrows), out_(path) {}

  void run() {
    base_ = first_time();
    fmt::format_to(out_.to(), "{{\"schemaVersion\": 1, \"displayTimeUnit\": \"ns\", \"baseTimeNanoseconds\": {},\n",
                   base_);
    if (ranks_.size() == 1) {
      fmt::format_to(out_.to(), "\"distributedInfo\": {{\"rank\": {}, \"world_size\": {}, \"backend\": \"",
                     *ranks_[0].rank, ranks_[0].world_size);
      append_escaped(out_.to(), ranks_[0].backend);
      fmt::format_to(out_.to(), "\"}},\n");
    }
    fmt::format_to(out_.to(), "\"traceEvents\": [");
    for (std::size_t i = 0; i < ranks_.size(); ++i) write_rank(i);
    fmt::format_to(out_.to(), "\n]}}\n");
    out_.finish();
  }

 private:
  std::int64_t aligned(std::size_t rank, std::int64_t time) const {
    return clocks_.empty() ? time : clocks_[rank].align(time);
  }

  std::int64_t first_time() const {
    std::int64_t first = std::numeric_limits<std::int64_t>::max();
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      for (const trace::Lane& lane : ranks_[i].lanes) {
        if (lane.begin < lane.end) first = std::min(first, aligned(i, ranks_[i].slices.start[lane.begin]));
      }
      for (const trace::Instant& instant : ranks_[i].instants) first = std::min(first, aligned(i, instant.time));
    }
    return first == std::numeric_limits<std::int64_t>::max() ? 0 : first;
  }

  void begin_event(const char* phase) {
    fmt::format_to(out_.to(), "{}\n{{\"ph\": \"{}\"", first_ ? "" : ",", phase);
    first_ = false;
  }

  void write_label(const char* what, std::uint32_t process, std::int64_t thread, std::string_view label) {
    begin_event("M");
    fmt::format_to(out_.to(), ", \"name\": \"{}\", \"pid\": {}, \"tid\": {}, \"args\": {{\"name\": \"", what, process,
                   thread);
    append_escaped(out_.to(), label);
    fmt::format_to(out_.to(), "\"}}}}");
  }

  void write_rank(std::size_t index) {
    const RankTrace& rank = ranks_[index];
    const std::uint32_t process = *rank.rank;
    const std::vector<Row> launcher = link_launches(rank);
    write_label("process_name", process, 0, fmt::format("rank {}", process));
    std::vector<std::int64_t> thread_of(rank.slices.size(), 0);
    std::vector<std::int64_t> first_thread(rank.lanes.size(), 0);
    std::int64_t next_thread = 1;
    for (std::size_t l = 0; l < rank.lanes.size(); ++l) {
      const trace::Lane& lane = rank.lanes[l];
      first_thread[l] = next_thread;
      std::vector<std::vector<std::int64_t>> tracks;
      for (Row row = lane.begin; row < lane.end; ++row) {
        const std::size_t track = track_for(tracks, rank.slices.start[row], rank.slices.end(row));
        thread_of[row] = next_thread + static_cast<std::int64_t>(track);
      }
      const std::string fallback = (lane.device ? "stream " : "thread ") + lane.thread;
      const std::string name = lane.name.empty() ? fallback : lane.name;
      const std::size_t used = std::max<std::size_t>(tracks.size(), 1);
      for (std::size_t track = 0; track < used; ++track) {
        write_label("thread_name", process, next_thread++, track == 0 ? name : fmt::format("{} ({})", name, track + 1));
      }
    }
    std::size_t args = 0;
    for (Row row = 0; row < rank.slices.size(); ++row) {
      while (args < rank.collective_args.size() && rank.collective_args[args].row < row) ++args;
      const bool has_args = args < rank.collective_args.size() && rank.collective_args[args].row == row;
      write_slice(index, row, thread_of[row], has_args ? &rank.collective_args[args] : nullptr);
      if (arrows_ && launcher[row] != trace::kNoRow) {
        write_flow(index, "s", launcher[row], row, thread_of[launcher[row]]);
        write_flow(index, "f", row, row, thread_of[row]);
      }
      out_.flush_if_full();
    }
    for (const trace::Instant& instant : rank.instants) {
      begin_event("i");
      fmt::format_to(out_.to(), ", \"s\": \"t\", \"name\": \"");
      append_escaped(out_.to(), rank.names.text(instant.name));
      fmt::format_to(out_.to(), "\", \"pid\": {}, \"tid\": {}, \"ts\": ", process,
                     first_thread[base::index(instant.lane)]);
      append_us(out_.to(), aligned(index, instant.time) - base_);
      fmt::format_to(out_.to(), "}}");
      out_.flush_if_full();
    }
  }

  void write_slice(std::size_t index, Row row, std::int64_t thread, const trace::CollectiveArgs* collective) {
    const RankTrace& rank = ranks_[index];
    begin_event("X");
    fmt::format_to(out_.to(), ", \"cat\": \"{}\", \"name\": \"", category_name(rank.slices.category[row]));
    append_escaped(out_.to(), rank.name(row));
    fmt::format_to(out_.to(), "\", \"pid\": {}, \"tid\": {}, \"ts\": ", *rank.rank, thread);
    append_us(out_.to(), aligned(index, rank.slices.start[row]) - base_);
    fmt::format_to(out_.to(), ", \"dur\": ");
    append_us(out_.to(), aligned(index, rank.slices.end(row)) - aligned(index, rank.slices.start[row]));
    const char* separator = ", \"args\": {";
    const auto argument = [&](std::string_view key, std::string_view value, bool quoted) {
      fmt::format_to(out_.to(), "{}\"{}\": {}", separator, key, quoted ? "\"" : "");
      if (quoted) {
        append_escaped(out_.to(), value);
      } else {
        fmt::format_to(out_.to(), "{}", value);
      }
      if (quoted) fmt::format_to(out_.to(), "\"");
      separator = ", ";
    };
    if (rank.slices.correlation[row] != 0)
      argument("correlation", fmt::format("{}", rank.slices.correlation[row]), false);
    if (rank.slices.shapes[row] != base::kNone<base::NameId>) {
      argument("Input Dims", rank.names.text(rank.slices.shapes[row]), false);
    }
    if (collective != nullptr) write_collective(rank, *collective, argument);
    if (std::string_view(separator) == ", ") fmt::format_to(out_.to(), "}}");
    fmt::format_to(out_.to(), "}}");
  }

  template <class Argument>
  static void write_collective(const RankTrace& rank, const trace::CollectiveArgs& args, const Argument& argument) {
    const auto text = [&](std::string_view key, base::NameId id) {
      if (id != base::kNone<base::NameId>) argument(key, rank.names.text(id), true);
    };
    const auto number = [&](std::string_view key, std::int64_t value) {
      if (value >= 0) argument(key, fmt::format("{}", value), false);
    };
    text("Collective name", args.collective);
    text("Process Group Name", args.group);
    text("Process Group Ranks", args.group_ranks);
    text("dtype", args.dtype);
    number("In msg nelems", args.in_elements);
    number("Out msg nelems", args.out_elements);
    number("Seq", args.sequence);
    number("Group size", args.group_size);
  }

  void write_flow(std::size_t index, const char* phase, Row row, Row kernel, std::int64_t thread) {
    const RankTrace& rank = ranks_[index];
    begin_event(phase);
    fmt::format_to(out_.to(),
                   "{}, \"cat\": \"ac2g\", \"name\": \"ac2g\", \"id\": \"{}.{}\", \"pid\": {}, \"tid\": {}, \"ts\": ",
                   *phase == 'f' ? ", \"bp\": \"e\"" : "", *rank.rank, kernel, *rank.rank, thread);
    append_us(out_.to(), aligned(index, rank.slices.start[row]) - base_);
    fmt::format_to(out_.to(), "}}");
  }

  const std::span<const RankTrace> ranks_;
  const std::span<const trace::Clock> clocks_;
  const bool arrows_;
  JsonFile out_;
  std::int64_t base_ = 0;
  bool first_ = true;
};

}  // namespace

void write_chrome(std::span<const RankTrace> ranks, std::span<const trace::Clock> clocks, const std::string& path,
                  bool arrows) {
  Writer(ranks, clocks, path, arrows).run();
}

}  // namespace paceline::report
