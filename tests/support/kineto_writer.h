// Writes traces as PyTorch's profiler and other tools write them, in every variant that the reader must know, beside
// the truth of what was written. For tests, benchmarks and the programs of the acceptance runs.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "paceline/base/rng.h"

namespace paceline::test_support {

/// How times are written; the same truth in nanoseconds under each.
enum class Clock {
  kIntegerUs,   // PyTorch 1.13 to 2.2: whole microseconds since 1970
  kAbsoluteUs,  // 2.3: microseconds since 1970 with three decimals, 19 digits in all
  kRelativeUs,  // 2.4 and later: three decimals, relative to baseTimeNanoseconds
  kTextUs,      // other vendors: like kAbsoluteUs in quotes
};

struct Style {
  Clock clock = Clock::kRelativeUs;
  bool pretty = true;        // one key a line as PyTorch does, or everything on one line without spaces
  bool bare_list = false;    // the legacy exporter: a list of events and nothing around it
  bool header_last = false;  // on-demand traces: distributedInfo and baseTimeNanoseconds behind the events
  bool text_ids = false;     // pid, tid and correlation in quotes
  bool begin_end = false;    // ph B and E in place of X
  bool mark = false;         // starts with a byte order mark
  bool trailing_comma = false;
  bool sequence = true;             // "Seq" of collectives, 2026
  bool windows_lines = false;       // \r\n, when pretty
  std::string process_groups = {};  // JSON list for distributedInfo; empty = the default group alone
};

/// A slice and what the trace says of it, before any reader.
struct TrueSlice {
  std::string name;
  std::string category = "cpu_op";
  std::int64_t process = 0, thread = 0;
  std::int64_t start = 0, duration = 0;  // ns since 1970; whole microseconds when the clock has no decimals
  std::int64_t correlation = 0;          // 0 = none
  std::string args = {};                 // further members of "args" as JSON text: "\"Seq\": 3, \"dtype\": \"Float\""
};

class KinetoWriter {
 public:
  using Sink = std::function<void(std::string_view)>;

  /// Writes the text up to the first event. rank < 0: no distributedInfo.
  KinetoWriter(Sink sink, Style style, std::int64_t rank = 0, std::int64_t world_size = 1);

  void slice(const TrueSlice& slice);
  void thread_name(std::int64_t process, std::int64_t thread, std::string_view name);
  void flow(std::int64_t id, const TrueSlice& from, const TrueSlice& to);
  void instant(std::int64_t process, std::int64_t thread, std::int64_t time, std::string_view name);
  void counter(std::int64_t process, std::int64_t time, std::string_view name, std::int64_t value);
  /// An element of the list as it is.
  void raw(std::string_view event);
  /// The rest of the file.
  void finish();

  /// Added to relative times: a multiple of what PyTorch takes, three months.
  static constexpr std::int64_t kBaseTime = 1'735'689'600'000'000'000;

 private:
  using Members = std::vector<std::pair<std::string_view, std::string>>;
  void event(const Members& members, const std::string& args);
  void header(bool first);
  std::string time(std::int64_t ns) const;
  std::string duration(std::int64_t ns) const;
  std::string id(std::int64_t number) const;

  Sink sink_;
  Style style_;
  std::int64_t rank_, world_size_;
  bool any_ = false;
};

/// JSON text of a string, quotes included.
std::string quoted(std::string_view text);

/// About `count` slices of a training job on one rank: nested operators on two threads, launches, kernels and
/// collectives on two streams, properly nested, in the order in which they ended. Whole microseconds when `whole_us`.
std::vector<TrueSlice> random_slices(base::Rng& rng, std::size_t count, bool whole_us = false);

/// A whole trace of `slices` with thread names, flows between launches and kernels, instants and counters.
std::string trace_text(const std::vector<TrueSlice>& slices, const Style& style, std::int64_t rank = 0,
                       std::int64_t world_size = 1);

}  // namespace paceline::test_support
