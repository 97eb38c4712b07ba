// Any bytes as an execution trace: rows that hold together, and what is written of them is read back the same.
#include <cstddef>
#include <cstdint>

#include "paceline/base/error.h"
#include "paceline/base/file.h"
#include "paceline/trace/chakra/chakra.h"

using namespace paceline;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const trace::chakra::ExecutionTrace parsed = trace::chakra::parse(bytes);
  PL_CHECK(trace::chakra::parse(trace::chakra::serialise(parsed)) == parsed);
  trace::chakra::sniff(bytes);
  const auto source = base::memory_source("");
  trace::Document document{"input", bytes, *source};
  const trace::RankTrace rank = trace::chakra::read(document);
  const trace::Slices& slices = rank.slices;
  for (trace::Row row = 0; row < slices.size(); ++row) {
    PL_CHECK(slices.duration[row] >= 0 && base::index(slices.lane[row]) < rank.lanes.size());
  }
  for (const trace::CollectiveArgs& args : rank.collective_args) PL_CHECK(args.row < slices.size());
  const trace::chakra::ExecutionTrace written = trace::chakra::from_rank(rank);
  PL_CHECK(trace::chakra::parse(trace::chakra::serialise(written)) == written);
  PL_CHECK(written.nodes.size() == slices.size());
  return 0;
}
