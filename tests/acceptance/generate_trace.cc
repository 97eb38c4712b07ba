// generate_trace BYTES [SEED] [compact]: writes at least BYTES of a trace in PyTorch's newest form to standard output,
// one event after the other, and the number of events to standard error.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/support/kineto_writer.h"

int main(int count, char** arguments) {
  using namespace paceline;
  if (count < 2) {
    std::fprintf(stderr, "usage: generate_trace BYTES [SEED] [compact]\n");
    return 2;
  }
  const long long wanted = std::atoll(arguments[1]);
  base::Rng rng(count > 2 ? std::strtoull(arguments[2], nullptr, 10) : 1);
  test_support::Style style;
  style.pretty = count <= 3 || std::strcmp(arguments[3], "compact") != 0;
  long long bytes = 0, events = 0;
  const auto write = [&](std::string_view text) {
    if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size()) std::exit(5);
    bytes += static_cast<long long>(text.size());
  };
  test_support::KinetoWriter writer(write, style);
  // The same pieces over and over, each moved on in time, so that writing is much faster than reading.
  constexpr std::size_t kPiece = 20'000;
  std::vector<test_support::TrueSlice> piece = test_support::random_slices(rng, kPiece);
  std::int64_t end = 0;
  for (const test_support::TrueSlice& slice : piece) end = std::max(end, slice.start + slice.duration);
  const std::int64_t length = end - piece.front().start + 1'000'000;
  while (bytes < wanted) {
    for (test_support::TrueSlice& slice : piece) {
      writer.slice(slice);
      slice.start += length;
      ++events;
    }
  }
  writer.finish();
  std::fprintf(stderr, "%lld events, %lld bytes\n", events, bytes);
  return 0;
}
