// Any bytes as a trace: the reader returns rows that hold together, or says kBadInput.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "paceline/base/error.h"
#include "paceline/base/file.h"
#include "paceline/trace/memory/memory.h"
#include "paceline/trace/reader.h"

using namespace paceline;

namespace {

/// A reader's promise to what comes after it (rank_trace.h).
void check_rows(const trace::RankTrace& trace) {
  const trace::Slices& slices = trace.slices;
  trace::Row row = 0;
  for (const trace::Lane& lane : trace.lanes) {
    if (lane.begin == lane.end) continue;
    PL_CHECK(lane.begin == row && lane.end <= slices.size());
    for (; row < lane.end; ++row) {
      PL_CHECK(&trace.lanes[base::index(slices.lane[row])] == &lane);
      PL_CHECK(slices.duration[row] >= 0);
      PL_CHECK(base::index(slices.name[row]) < trace.names.size());
      // Differences of any two times fit.
      PL_CHECK(std::llabs(slices.start[row]) <= INT64_MAX / 2 && slices.end(row) <= INT64_MAX / 2);
      const bool ordered =
          row == lane.begin || slices.start[row - 1] < slices.start[row] ||
          (slices.start[row - 1] == slices.start[row] && slices.duration[row - 1] >= slices.duration[row]);
      PL_CHECK(ordered);
    }
  }
  PL_CHECK(row == slices.size());
  for (const trace::CollectiveArgs& args : trace.collective_args) PL_CHECK(args.row < slices.size());
  for (const trace::Instant& instant : trace.instants) PL_CHECK(base::index(instant.lane) < trace.lanes.size());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto source = base::memory_source({reinterpret_cast<const char*>(data), size});
  try {
    const trace::RankTrace trace = trace::read_document("input", *source, {.allocator = true});
    check_rows(trace);
    for (const trace::AllocatorEvent& event : trace.allocator) PL_CHECK(base::index(event.lane) < trace.lanes.size());
    for (const trace::DeviceMemory& memory : trace::memory_of(trace)) PL_CHECK(memory.peak < memory.timeline.size());
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kBadInput) std::abort();
  }
  return 0;
}
