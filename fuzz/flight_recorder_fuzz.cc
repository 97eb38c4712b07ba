// Any bytes as the dumps of a job: a verdict, or kBadInput. The dump is read as that of rank 0, beside itself cut to
// its first half of entries as that of rank 1.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "paceline/base/error.h"
#include "paceline/diagnose/hang.h"
#include "paceline/trace/flight_recorder/flight_recorder.h"

using namespace paceline;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  trace::flight_recorder::sniff(bytes);
  try {
    trace::FlightDumps dumps;
    dumps.dumps.push_back(trace::flight_recorder::read("rank_0", bytes));
    dumps.dumps.push_back(dumps.dumps[0]);
    dumps.dumps[0].rank = 0;
    dumps.dumps[1].rank = 1;
    dumps.dumps[1].entries.resize(dumps.dumps[1].entries.size() / 2);
    for (const trace::FlightEntry& entry : dumps.dumps[0].entries) {
      PL_CHECK(entry.group < dumps.dumps[0].groups.size());
    }
    PL_CHECK(!diagnose::find_hang(dumps).sentence.empty());
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kBadInput) std::abort();
  }
  return 0;
}
