#include "paceline/trace/reader.h"

#include <fmt/core.h>

#include <array>
#include <regex>

#include "paceline/base/error.h"
#include "paceline/trace/chakra/chakra.h"
#include "paceline/trace/flight_recorder/flight_recorder.h"
#include "paceline/trace/kineto/kineto_reader.h"
#include "paceline/trace/ndtimeline/recording.h"

namespace paceline::trace {
namespace {

bool has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

bool is_sqlite(std::string_view head) {
  return head.starts_with("SQLite format 3");
}
bool is_memory_timeline(std::string_view head) {
  return head.starts_with("[[") && !has(head, "\"ph\"");  // a flipped bit makes "[[" of "[{"
}
bool is_execution_trace(std::string_view head) {
  return has(head, "\"schema\"") && has(head, "\"nodes\"") && !has(head, "\"ph\"");
}

constexpr std::array<Format, 7> kFormats{{
    {"flight recorder", flight_recorder::sniff, nullptr,
     "a dump of NCCL's flight recorder, one rank of a job that hung; give all dumps, and nothing else, to paceline "
     "diagnose"},
    {"SQLite", is_sqlite, nullptr,
     "an SQLite database (Nsight Systems export?) is not read yet; give the PyTorch profiler's trace of the job"},
    {"memory timeline", is_memory_timeline, nullptr,
     "a raw memory timeline holds no slices; give the PyTorch profiler's trace of the same run"},
    {"execution trace", is_execution_trace, nullptr,
     "a PyTorch execution trace holds no times; give the PyTorch profiler's trace of the same run"},
    {"ndtimeline", ndtimeline::sniff, nullptr,
     "an ndtimeline holds the operations of all workers, not the events of one rank; give this file alone to "
     "paceline replay --without-stragglers"},
    {"Chakra", chakra::sniff, chakra::read, ""},
    {"Kineto", kineto::sniff, kineto::read, ""},
}};

}  // namespace

std::span<const Format> formats() {
  return kFormats;
}

std::string read_head(base::ByteSource& source) {
  std::string head(kSniffBytes, '\0');
  std::size_t size = 0;
  while (size < head.size()) {
    const std::size_t count = source.read({head.data() + size, head.size() - size});
    if (count == 0) break;
    size += count;
  }
  head.resize(size);
  return head;
}

RankTrace read_document(const std::string& name, base::ByteSource& source, const ReadOptions& options) {
  const std::string head = read_head(source);
  for (const Format& format : formats()) {
    if (!format.sniff(head)) continue;
    if (format.read == nullptr) throw Error(ErrorKind::kBadInput, name, std::string(format.advice));
    Document document{name, head, source, options};
    RankTrace trace = format.read(document);
    trace.source = name;
    trace.format = format.name;
    return trace;
  }
  if (head.empty() && source.damage()) throw Error(ErrorKind::kDamagedInput, name, *source.damage());
  if (head.empty()) throw Error(ErrorKind::kBadInput, name, "the file is empty; record the trace again");
  throw Error(ErrorKind::kBadInput, name,
              "not a trace in a known format; expected the JSON of the PyTorch profiler (Chrome trace events)");
}

}  // namespace paceline::trace
