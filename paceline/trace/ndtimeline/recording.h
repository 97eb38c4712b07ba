#pragma once
#include <compare>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "paceline/trace/reader.h"

namespace paceline::trace::ndtimeline {

/// A place in the layout of a job with pipeline and data parallelism. Of a tensor-parallel group mostly one rank is
/// recorded.
struct Worker {
  std::uint32_t stage = 0, dp_rank = 0, tp_rank = 0;
  auto operator<=>(const Worker&) const = default;
};

/// One operation of one worker in one step.
struct Operation {
  std::int32_t step = 0;
  std::uint32_t worker = 0;  // index into Recording::workers
  NameId name = base::kNone<NameId>;
  std::int32_t sequence = -1;  // n-th of its name; -1 = not recorded
  std::int32_t model_chunk = -1;
  std::int64_t begin = 0, end = 0;  // ns
};

/// All workers of a job, as veScale's ndtimeline and StragglerAnalysis (OSDI 2025) write them: Chrome trace events in
/// one file, a process per data-parallel rank, threads called "PP rank 2, TP rank 0, compute".
struct Recording {
  RankHeader header;
  std::shared_ptr<base::InternTable> names;
  std::vector<Worker> workers;        // ascending
  std::vector<Operation> operations;  // by step, worker, begin, sequence, name
};

/// Whether a document looks like one; also when it is damaged.
bool sniff(std::string_view head);

/// Throws Error(kBadInput) when no event says its step and stage; an event that does not is counted in the repairs.
Recording read(Document& document);

/// The recording in the file that the argument names. Nothing when it is something else, a folder or a pattern of
/// several files.
std::optional<Recording> load(const std::string& argument);

}  // namespace paceline::trace::ndtimeline
