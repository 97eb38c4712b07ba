// Interning against std::unordered_map, and inflating gzip against zlib, each in the same run. PACELINE_DATA, when set,
// gives the trace that is inflated; else a generated text like one.
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <unordered_map>
#include <vector>

#include "paceline/base/file.h"
#include "paceline/base/inflate.h"
#include "paceline/base/intern.h"
#include "paceline/base/rng.h"
#include "paceline/base/test_files.h"

namespace paceline::base {
namespace {

/// Kernel names as a trace has them: few, long, alike, named over and over, and one behind the other in memory.
struct Names {
  std::string text;
  std::vector<std::string_view> all;
};

Names names() {
  Rng random(1);
  std::vector<std::string> distinct(2000);
  for (std::size_t i = 0; i < distinct.size(); ++i) {
    distinct[i] = "void at::native::vectorized_elementwise_kernel<4, at::native::functor_" + std::to_string(i) + ">";
    distinct[i].resize(8 + random.below(distinct[i].size() - 8));
    distinct[i] += std::to_string(i);
  }
  std::vector<std::size_t> order(200'000);
  Names names;
  for (std::size_t& row : order) names.text += distinct[row = random.below(distinct.size())];
  std::size_t at = 0;
  for (const std::size_t row : order) {
    names.all.push_back(std::string_view(names.text).substr(at, distinct[row].size()));
    at += distinct[row].size();
  }
  return names;
}

void intern_names(benchmark::State& state) {
  const Names given = names();
  for (auto _ : state) {
    InternTable table;
    for (const std::string_view name : given.all) benchmark::DoNotOptimize(table.intern(name));
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(given.all.size()));
}
BENCHMARK(intern_names)->Unit(benchmark::kMillisecond);

void intern_names_unordered_map(benchmark::State& state) {
  const Names given = names();
  for (auto _ : state) {
    std::unordered_map<std::string, std::uint32_t> table;
    for (const std::string_view name : given.all) {
      benchmark::DoNotOptimize(table.try_emplace(std::string(name), static_cast<std::uint32_t>(table.size())));
    }
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(given.all.size()));
}
BENCHMARK(intern_names_unordered_map)->Unit(benchmark::kMillisecond);

std::string packed_trace() {
  if (const char* folder = std::getenv("PACELINE_DATA")) {
    const std::filesystem::path path =
        std::filesystem::path(folder) / "dpro/hta/df_index_resolver/df_index_resolver.json.gz";
    if (std::filesystem::exists(path)) return read_text_file(path);
  }
  Rng random(2);
  std::string text = "[";
  while (text.size() < 20'000'000) {
    text += "{\"ph\": \"X\", \"cat\": \"kernel\", \"name\": \"kernel_" + std::to_string(random.below(300)) +
            "\", \"pid\": 0, \"tid\": 7, \"ts\": " + std::to_string(random.below(1'000'000'000)) +
            ", \"dur\": " + std::to_string(random.below(500)) + "},\n";
  }
  return test::gzip(text);
}

void inflate_gzip(benchmark::State& state) {
  const std::string packed = packed_trace();
  std::string piece(4 << 20, '\0');
  std::int64_t bytes = 0;
  for (auto _ : state) {
    const auto inner = memory_source(packed);
    const auto source = gzip_source(*inner);
    while (const std::size_t count = source->read(piece)) bytes += static_cast<std::int64_t>(count);
  }
  state.SetBytesProcessed(bytes);
}
BENCHMARK(inflate_gzip)->Unit(benchmark::kMillisecond);

void inflate_gzip_zlib(benchmark::State& state) {
  std::string packed = packed_trace();
  std::string piece(4 << 20, '\0');
  std::int64_t bytes = 0;
  for (auto _ : state) {
    z_stream stream{};
    constexpr int kGzip = 16;
    inflateInit2(&stream, MAX_WBITS + kGzip);
    stream.next_in = reinterpret_cast<Bytef*>(packed.data());
    stream.avail_in = static_cast<uInt>(packed.size());
    int code = Z_OK;
    while (code == Z_OK) {
      stream.next_out = reinterpret_cast<Bytef*>(piece.data());
      stream.avail_out = static_cast<uInt>(piece.size());
      code = inflate(&stream, Z_NO_FLUSH);
    }
    bytes += static_cast<std::int64_t>(stream.total_out);
    inflateEnd(&stream);
  }
  state.SetBytesProcessed(bytes);
}
BENCHMARK(inflate_gzip_zlib)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace paceline::base
