// How fast traces are read, in bytes of JSON a second: as they are, damaged, packed; beside the bound, which is
// simdjson walking over the same text and keeping nothing.
#include <benchmark/benchmark.h>
#include <simdjson.h>

#include "paceline/base/file.h"
#include "paceline/base/rng.h"
#include "paceline/base/test_files.h"
#include "paceline/trace/reader.h"
#include "tests/support/kineto_writer.h"

namespace paceline::trace {
namespace {

using test_support::Style;

std::string make_text(bool pretty) {
  constexpr std::size_t kSlices = 60'000;
  base::Rng rng(1);
  Style style;
  style.pretty = pretty;
  return test_support::trace_text(test_support::random_slices(rng, kSlices), style);
}

const std::string& text_of(bool pretty) {
  static const std::string pretty_text = make_text(true), compact_text = make_text(false);
  return pretty ? pretty_text : compact_text;
}

/// 20 flips in each megabyte: 1,000 in 50 MB.
std::string damaged(std::string text) {
  base::Rng rng(2);
  const std::size_t flips = text.size() / 50'000;
  for (std::size_t i = 0; i < flips; ++i) text[rng.below(text.size())] = static_cast<char>(rng.below(256));
  return text;
}

void count_bytes(benchmark::State& state, std::size_t size) {
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(size));
}

void read(benchmark::State& state, const std::string& text) {
  for (auto _ : state) {
    const auto source = base::memory_source(text);
    benchmark::DoNotOptimize(read_document("memory", *source));
  }
  count_bytes(state, text.size());
}

void BM_BoundSimdjson(benchmark::State& state) {
  const simdjson::padded_string text(text_of(true));
  simdjson::ondemand::parser parser;
  for (auto _ : state) {
    std::size_t events = 0;
    simdjson::ondemand::document document = parser.iterate(text);
    for (auto event : document["traceEvents"]) {
      benchmark::DoNotOptimize(event["ph"]);
      ++events;
    }
    benchmark::DoNotOptimize(events);
  }
  count_bytes(state, text.size());
}
BENCHMARK(BM_BoundSimdjson)->Unit(benchmark::kMillisecond);

void BM_Read(benchmark::State& state) {
  read(state, text_of(true));
}
BENCHMARK(BM_Read)->Unit(benchmark::kMillisecond);

void BM_ReadOneLine(benchmark::State& state) {
  read(state, text_of(false));
}
BENCHMARK(BM_ReadOneLine)->Unit(benchmark::kMillisecond);

void BM_ReadDamaged(benchmark::State& state) {
  read(state, damaged(text_of(true)));
}
BENCHMARK(BM_ReadDamaged)->Unit(benchmark::kMillisecond);

void BM_ReadDamagedOneLine(benchmark::State& state) {
  read(state, damaged(text_of(false)));
}
BENCHMARK(BM_ReadDamagedOneLine)->Unit(benchmark::kMillisecond);

void BM_ReadGzip(benchmark::State& state) {
  const base::test::TempFolder folder;
  const auto path = folder.write("trace.json.gz", base::test::gzip(text_of(true)));
  for (auto _ : state) {
    base::for_each_document(path, [](const std::string& name, base::ByteSource& source) {
      benchmark::DoNotOptimize(read_document(name, source));
    });
  }
  count_bytes(state, text_of(true).size());
}
BENCHMARK(BM_ReadGzip)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace paceline::trace
