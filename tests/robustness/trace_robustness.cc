// trace_robustness [--seed N] [--seconds S] [--save FILE] [--generate] [FILE...]
//
// Damages traces and checks that the reader keeps every event that the damage did not touch. Each document (also of
// .gz, .zst, tar) is taken uncompressed and
//   cut         at 10 places,
//   flipped     1,000 random bytes at once, with several seeds,
//   flipped     one byte at a time, 1,000 times; in documents of more than 1 MB as often as S seconds of CPU allow,
//   deflated    and the compressed bytes cut and flipped, 20 times, or as often as S seconds allow.
// After each the reader must return without a throw, with a repair that names a byte when events are missing, and with
// every slice and instant outside the damage: same name, process, thread, time and duration. Events of other kinds are
// counted. Prints one line per document and kind of damage, and a line of JSON at the end; exit status 1 when an event
// was lost. --generate takes small traces in every style from the seed in place of files. --save keeps the first
// damaged text that the reader failed on.
#include <fmt/core.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "paceline/base/error.h"
#include "paceline/base/file.h"
#include "paceline/base/rng.h"
#include "paceline/trace/reader.h"
#include "tests/robustness/naive_events.h"
#include "tests/support/kineto_writer.h"

namespace paceline::robustness {
namespace {

double cpu_seconds() {
  return static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
}

/// What is expected of a document, with keys as numbers so that one comparison is cheap.
struct Truth {
  std::string name;
  std::string text;
  std::vector<NaiveEvent> events;  // in the order of the text
  std::unordered_map<std::string, std::uint32_t> id_of_key;
  std::vector<std::uint32_t> id;       // of each event; kNoKey for kinds without
  std::vector<std::int32_t> id_count;  // in the intact text
  std::array<std::int64_t, 256> phases{};
  double load_seconds = 0;
};
constexpr std::uint32_t kNoKey = 0xFFFFFFFFu;

struct Tally {
  std::int64_t loads = 0, expected = 0, lost = 0, silent = 0, thrown = 0, repaired = 0;
  double slowest = 0;  // against the intact load
  std::string first_fault;

  void add(const Tally& other) {
    loads += other.loads, expected += other.expected, lost += other.lost, silent += other.silent;
    thrown += other.thrown, repaired += other.repaired;
    slowest = std::max(slowest, other.slowest);
    if (first_fault.empty()) first_fault = other.first_fault;
  }
  bool good() const { return lost == 0 && silent == 0 && thrown == 0; }
};

std::int64_t events_of(const trace::EventCounts& counts, char phase) {
  switch (phase) {
    case 'B':
    case 'E':
      return counts.begin_end;
    case 'M':
      return counts.metadata;
    case 's':
    case 't':
    case 'f':
      return counts.flow;
    case 'C':
      return counts.counter;
    default:
      return counts.other;
  }
}

/// Groups of phases that the reader counts together.
constexpr std::array<std::string_view, 5> kPhaseGroups{"BE", "M", "stf", "C", ""};

/// How often each known slice and instant is in `trace`, by id.
std::vector<std::int32_t> found_ids(const Truth& truth, const trace::RankTrace& trace) {
  std::vector<std::int32_t> found(truth.id_count.size());
  const auto count = [&](const std::string& key) {
    const auto known = truth.id_of_key.find(key);
    if (known != truth.id_of_key.end()) ++found[known->second];
  };
  for (trace::Row row = 0; row < trace.slices.size(); ++row) {
    const trace::Lane& lane = trace.lanes[base::index(trace.slices.lane[row])];
    count(event_key('X', trace.name(row), lane.process, lane.thread, trace.slices.start[row] - trace.base_time,
                    trace.slices.duration[row]));
  }
  for (const trace::Instant& instant : trace.instants) {
    const trace::Lane& lane = trace.lanes[base::index(instant.lane)];
    count(event_key('i', trace.names.text(instant.name), lane.process, lane.thread, instant.time - trace.base_time, 0));
  }
  return found;
}

bool names_a_byte(const trace::Repairs& repairs) {
  for (std::size_t i = 0; i < static_cast<std::size_t>(trace::Repair::kCount); ++i) {
    const auto repair = static_cast<trace::Repair>(i);
    const trace::Repairs::Row& row = repairs.row(repair);
    if (row.count > 0 && trace::loses_data(repair) && row.first_place.starts_with("byte ")) return true;
  }
  return false;
}

/// Reads `damaged` and compares; `hit` are the events of the intact text that the damage touched, in order.
Tally check(const Truth& truth, base::ByteSource& damaged, const std::vector<std::size_t>& hit,
            const std::string& what) {
  Tally tally;
  tally.loads = 1;
  tally.expected = static_cast<std::int64_t>(truth.events.size() - hit.size());
  const auto fault = [&](const std::string& text) {
    if (tally.first_fault.empty()) tally.first_fault = fmt::format("{}: {}: {}", truth.name, what, text);
  };
  const double begin = cpu_seconds();
  trace::RankTrace trace;
  try {
    trace = trace::read_document(truth.name, damaged);
  } catch (const Error& error) {
    const bool told = error.kind() == ErrorKind::kBadInput || error.kind() == ErrorKind::kDamagedInput;
    if (tally.expected == 0 && told) return tally;
    tally.thrown = 1;
    tally.lost = tally.expected;
    fault(error.what());
    return tally;
  }
  tally.slowest = (cpu_seconds() - begin) / std::max(truth.load_seconds, 1e-3);
  tally.repaired = trace.repairs.lost_data() ? 1 : 0;

  std::vector<std::int32_t> wanted = truth.id_count;
  std::array<std::int64_t, 256> phases = truth.phases;
  for (const std::size_t event : hit) {
    if (truth.id[event] != kNoKey) --wanted[truth.id[event]];
    --phases[static_cast<unsigned char>(truth.events[event].phase)];
  }
  const std::vector<std::int32_t> found = found_ids(truth, trace);
  for (std::size_t event = 0; event < truth.events.size(); ++event) {
    const std::uint32_t id = truth.id[event];
    if (id == kNoKey || found[id] >= wanted[id]) continue;
    tally.lost += wanted[id] - found[id];
    fault(fmt::format("lost the event at byte {}: {}", truth.events[event].begin, truth.events[event].key));
    wanted[id] = found[id];
  }
  for (const std::string_view group : kPhaseGroups) {
    std::int64_t expected = 0;
    for (const char phase : group) expected += phases[static_cast<unsigned char>(phase)];
    if (group.empty()) {
      for (std::size_t phase = 0; phase < phases.size(); ++phase) {
        if (std::string_view("XiIRBEMstfC").find(static_cast<char>(phase)) == std::string_view::npos) {
          expected += phases[phase];
        }
      }
    }
    const std::int64_t kept = events_of(trace.events, group.empty() ? '?' : group[0]);
    if (kept >= expected) continue;
    tally.lost += expected - kept;
    fault(fmt::format("kept {} of {} events of kind '{}'", kept, expected, group));
  }
  const bool missing = trace.events.total() < static_cast<std::int64_t>(truth.events.size());
  if (missing && !names_a_byte(trace.repairs)) {
    tally.silent = 1;
    fault("events are missing and no repair names a byte");
  }
  return tally;
}

std::string save_to;  // --save

Tally check_text(const Truth& truth, std::string_view damaged, const std::vector<std::size_t>& hit,
                 const std::string& what) {
  const std::unique_ptr<base::ByteSource> source = base::memory_source(damaged);
  const Tally tally = check(truth, *source, hit, what);
  if (!tally.good() && !save_to.empty()) base::write_text_file(std::exchange(save_to, {}), damaged);
  return tally;
}

/// The events that hold one of `places` (in order).
std::vector<std::size_t> events_hit(const Truth& truth, std::vector<std::size_t> places) {
  std::sort(places.begin(), places.end());
  std::vector<std::size_t> hit;
  std::size_t event = 0;
  for (const std::size_t place : places) {
    while (event < truth.events.size() && truth.events[event].end <= place) ++event;
    if (event == truth.events.size()) break;
    if (truth.events[event].begin <= place && (hit.empty() || hit.back() != event)) hit.push_back(event);
  }
  return hit;
}

std::vector<std::size_t> events_behind(const Truth& truth, std::size_t cut) {
  std::vector<std::size_t> hit;
  for (std::size_t event = 0; event < truth.events.size(); ++event) {
    if (truth.events[event].end > cut) hit.push_back(event);
  }
  return hit;
}

Tally cut_checks(const Truth& truth, base::Rng& rng) {
  constexpr std::size_t kCuts = 10;
  Tally tally;
  for (std::size_t i = 0; i < kCuts; ++i) {
    // One cut in each tenth, so that the header, the events and what is behind them have their turn.
    const std::size_t tenth = truth.text.size() / kCuts;
    const std::size_t cut = i * tenth + rng.below(tenth + 1);
    tally.add(check_text(truth, std::string_view(truth.text).substr(0, cut), events_behind(truth, cut),
                         fmt::format("cut at byte {}", cut)));
  }
  return tally;
}

/// Another byte at `place`: one bit or all of it, evenly.
char other_byte(base::Rng& rng, char byte) {
  const auto old = static_cast<unsigned char>(byte);
  const bool one_bit = rng.chance(0.5);
  return static_cast<char>(one_bit ? old ^ (1u << rng.below(8)) : (old + 1 + rng.below(255)) & 0xFF);
}

Tally flip_many(const Truth& truth, base::Rng& rng, std::size_t flips) {
  std::string text = truth.text;
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < flips; ++i) {
    const std::size_t place = rng.below(text.size());
    text[place] = other_byte(rng, truth.text[place]);
    places.push_back(place);
  }
  return check_text(truth, text, events_hit(truth, places), fmt::format("{} bytes flipped at once", flips));
}

Tally flip_one_by_one(const Truth& truth, base::Rng& rng, std::size_t flips, double seconds) {
  // Half of the flips fall outside the events, where there is little text: header, separators, brackets.
  std::vector<std::size_t> outside;
  std::size_t at = 0;
  for (const NaiveEvent& event : truth.events) {
    for (; at < event.begin; ++at) outside.push_back(at);
    at = event.end;
  }
  for (; at < truth.text.size(); ++at) outside.push_back(at);
  std::string text = truth.text;
  Tally tally;
  const double begin = cpu_seconds();
  for (std::size_t i = 0; i < flips && cpu_seconds() - begin < seconds; ++i) {
    const bool between = i % 2 == 1 && !outside.empty();
    const std::size_t place = between ? outside[rng.below(outside.size())] : rng.below(text.size());
    text[place] = other_byte(rng, truth.text[place]);
    tally.add(check_text(truth, text, events_hit(truth, {place}),
                         fmt::format("byte {} flipped to {:#x}", place, static_cast<unsigned char>(text[place]))));
    text[place] = truth.text[place];
  }
  return tally;
}

// ---------------------------------------------------------------- compressed

std::string deflated(std::string_view text) {
  z_stream stream{};
  constexpr int kGzip = 16;
  deflateInit2(&stream, 6, Z_DEFLATED, MAX_WBITS + kGzip, 8, Z_DEFAULT_STRATEGY);
  std::string out(deflateBound(&stream, text.size()) + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

/// How many bytes at the front of `truth` a plain inflate still gets right from damaged data, fed byte by byte.
std::size_t inflated_right(std::string_view data, std::string_view truth) {
  z_stream stream{};
  constexpr int kGzip = 16;
  inflateInit2(&stream, MAX_WBITS + kGzip);
  std::vector<char> piece(1 << 16);
  std::size_t right = 0;
  int code = Z_OK;
  for (std::size_t at = 0; at < data.size() && code == Z_OK;) {
    const std::size_t take = std::min<std::size_t>(64, data.size() - at);
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(data.data() + at));
    stream.avail_in = static_cast<uInt>(take);
    do {
      stream.next_out = reinterpret_cast<Bytef*>(piece.data());
      stream.avail_out = static_cast<uInt>(piece.size());
      code = inflate(&stream, Z_NO_FLUSH);
      const std::size_t got = piece.size() - stream.avail_out;
      for (std::size_t i = 0; i < got; ++i) {
        if (right >= truth.size() || truth[right] != piece[i]) {
          inflateEnd(&stream);
          return right;
        }
        ++right;
      }
    } while (stream.avail_out == 0 && code == Z_OK);
    at += take;
  }
  inflateEnd(&stream);
  return right;
}

Tally compressed_checks(const Truth& truth, base::Rng& rng, double seconds) {
  const std::string data = deflated(truth.text);
  const std::filesystem::path path =
      std::filesystem::temp_directory_path() / fmt::format("paceline_robustness_{}.gz", rng.next());
  Tally tally;
  constexpr int kCases = 20;
  const double begin = cpu_seconds();
  for (int i = 0; i < kCases && cpu_seconds() - begin < seconds; ++i) {
    std::string damaged = data;
    const std::size_t place = 12 + rng.below(data.size() - 12);  // behind the magic number, which says it is gzip
    const bool cut = i % 2 == 0;
    if (cut) damaged.resize(place);
    if (!cut) damaged[place] = other_byte(rng, damaged[place]);
    base::write_text_file(path, damaged);
    const std::size_t right = inflated_right(damaged, truth.text);
    const std::string what = fmt::format(".gz {} at byte {}", cut ? "cut" : "flipped", place);
    base::for_each_document(path, [&](const std::string&, base::ByteSource& source) {
      Tally one = check(truth, source, events_behind(truth, right), what);
      if (right == truth.text.size()) one.silent = 0;  // nothing was lost
      tally.add(one);
    });
  }
  std::filesystem::remove(path);
  return tally;
}

// ---------------------------------------------------------------- running

Truth make_truth(std::string name, std::string text) {
  Truth truth;
  truth.name = std::move(name);
  truth.text = std::move(text);
  truth.events = naive_events(truth.text);
  for (const NaiveEvent& event : truth.events) {
    ++truth.phases[static_cast<unsigned char>(event.phase)];
    std::uint32_t id = kNoKey;
    if (!event.key.empty()) {
      id = truth.id_of_key.emplace(event.key, static_cast<std::uint32_t>(truth.id_count.size())).first->second;
      if (id == truth.id_count.size()) truth.id_count.push_back(0);
      ++truth.id_count[id];
    }
    truth.id.push_back(id);
  }
  return truth;
}

struct Options {
  std::uint64_t seed = 1;
  double seconds = 10;
  bool generate = false;
  std::vector<std::string> files;
};

class Run {
 public:
  explicit Run(const Options& options) : options_(options) {}

  void document(std::string name, std::string text) {
    Truth truth = make_truth(std::move(name), std::move(text));
    if (truth.events.empty()) return;
    ++documents_;
    events_ += static_cast<std::int64_t>(truth.events.size());
    std::uint64_t stream = 0;  // by the file's name alone, so that a fault can be repeated with that file alone
    for (const char c : std::filesystem::path(truth.name).filename().string()) {
      stream = stream * 31 + static_cast<unsigned char>(c);
    }
    base::Rng rng = base::Rng(options_.seed).fork(stream);
    const double begin = cpu_seconds();
    (void)trace::read_document(truth.name, *base::memory_source(truth.text));
    truth.load_seconds = cpu_seconds() - begin;

    report(truth, "intact", check_text(truth, truth.text, {}, "intact"));
    report(truth, "cut at 10 places", cut_checks(truth, rng));
    constexpr std::size_t kFlips = 1000, kLarge = 8u << 20, kSmall = 1'000'000;
    constexpr double kNoLimit = 1e9;
    Tally many;
    for (int i = 0; i < (truth.text.size() > kLarge ? 3 : 10); ++i) many.add(flip_many(truth, rng, kFlips));
    report(truth, "1,000 flips at once", many);
    const double seconds = truth.text.size() < kSmall ? kNoLimit : options_.seconds;
    report(truth, "single flips", flip_one_by_one(truth, rng, kFlips, seconds));
    report(truth, "damaged .gz", compressed_checks(truth, rng, options_.seconds));
  }

  int finish() const {
    nlohmann::json result{{"documents", documents_}, {"events", events_}, {"seed", options_.seed}};
    bool good = documents_ > 0;
    for (const auto& [kind, tally] : kinds_) {
      good = good && tally.good();
      result["kinds"][kind] = {{"loads", tally.loads},
                               {"expected", tally.expected},
                               {"lost", tally.lost},
                               {"silent", tally.silent},
                               {"thrown", tally.thrown},
                               {"slowest", tally.slowest},
                               {"first_fault", tally.first_fault}};
    }
    fmt::print("{}\n", result.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
    return good ? 0 : 1;
  }

 private:
  void report(const Truth& truth, const std::string& kind, const Tally& tally) {
    const std::string file = truth.name.size() > 50 ? "..." + truth.name.substr(truth.name.size() - 47) : truth.name;
    fmt::print("{:<50}  {:<20} {:>5} loads  events expected {:>10}  kept {:>10}  lost {}  slowest {:.1f}x{}\n", file,
               kind, tally.loads, tally.expected, tally.expected - tally.lost, tally.lost, tally.slowest,
               tally.good() ? "" : "  FAULT: " + tally.first_fault);
    std::fflush(stdout);
    const auto known = std::find_if(kinds_.begin(), kinds_.end(), [&](const auto& one) { return one.first == kind; });
    if (known == kinds_.end()) {
      kinds_.emplace_back(kind, tally);
    } else {
      known->second.add(tally);
    }
  }

  Options options_;
  std::int64_t documents_ = 0, events_ = 0;
  std::vector<std::pair<std::string, Tally>> kinds_;
};

void generated(Run& run, std::uint64_t seed) {
  using test_support::Clock;
  base::Rng rng(seed);
  for (const Clock clock : {Clock::kIntegerUs, Clock::kAbsoluteUs, Clock::kRelativeUs, Clock::kTextUs}) {
    for (int variant = 0; variant < 4; ++variant) {
      test_support::Style style;
      style.clock = clock;
      style.pretty = variant % 2 == 0;
      style.bare_list = variant == 3;
      style.header_last = variant == 2;
      style.text_ids = variant == 1;
      style.mark = variant == 1;
      const auto slices = test_support::random_slices(rng, 250, clock == Clock::kIntegerUs);
      run.document(fmt::format("generated, clock {}, variant {}", static_cast<int>(clock), variant),
                   test_support::trace_text(slices, style));
    }
  }
}

}  // namespace
}  // namespace paceline::robustness

int main(int count, char** arguments) {
  using namespace paceline;
  robustness::Options options;
  for (int i = 1; i < count; ++i) {
    const std::string_view argument = arguments[i];
    if (argument == "--seed" && i + 1 < count) {
      options.seed = std::strtoull(arguments[++i], nullptr, 10);
    } else if (argument == "--seconds" && i + 1 < count) {
      options.seconds = std::strtod(arguments[++i], nullptr);
    } else if (argument == "--save" && i + 1 < count) {
      robustness::save_to = arguments[++i];
    } else if (argument == "--generate") {
      options.generate = true;
    } else {
      options.files.emplace_back(argument);
    }
  }
  if (!options.generate && options.files.empty()) {
    std::fprintf(stderr, "usage: trace_robustness [--seed N] [--seconds S] [--save FILE] [--generate] [FILE...]\n");
    return 2;
  }
  fmt::print("seed {}\n", options.seed);
  try {
    robustness::Run run(options);
    if (options.generate) robustness::generated(run, options.seed);
    if (!options.files.empty()) {
      for (const auto& path : base::expand_inputs(options.files)) {
        base::for_each_document(path, [&](const std::string& name, base::ByteSource& source) {
          std::string text = base::read_all(source);
          try {
            (void)trace::read_document(name, *base::memory_source(text));
          } catch (const Error& error) {
            fmt::print("passed over: {}\n", error.what());
            return;
          }
          run.document(name, std::move(text));
        });
      }
    }
    return run.finish();
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return error.exit_code();
  }
}
