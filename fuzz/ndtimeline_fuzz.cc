// Any bytes as an ndtimeline: a graph that replays to the end and whose steps follow each other, or kBadInput.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "paceline/base/error.h"
#include "paceline/replay/replay.h"
#include "paceline/trace/ndtimeline/pipeline_graph.h"

using namespace paceline;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto source = base::memory_source({reinterpret_cast<const char*>(data), size});
  try {
    const std::string head = trace::read_head(*source);
    trace::Document document{"input", head, *source};
    const trace::ndtimeline::PipelineGraph job = trace::ndtimeline::build_graph(trace::ndtimeline::read(document));
    const replay::Timeline timeline = replay::replay(job.graph);
    std::int64_t end = 0;
    for (const auto& step : job.steps) {
      PL_CHECK(timeline.end[base::index(step.begin)] == end);
      PL_CHECK(timeline.end[base::index(step.end)] >= end);
      end = timeline.end[base::index(step.end)];
    }
    PL_CHECK(timeline.makespan == end);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kBadInput) std::abort();
  }
  return 0;
}
