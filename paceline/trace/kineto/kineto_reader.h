#pragma once
#include "paceline/trace/reader.h"

namespace paceline::trace::kineto {

/// Chrome trace events as written by PyTorch's profiler (Kineto) in all its versions, by its legacy exporter (a bare
/// array), and by other tools that write ph X, B/E, M, i, s/f. Recognised also when damaged.
bool sniff(std::string_view head);

/// Reads in blocks of whole events (at most 4 MiB unless one event is larger); a bad event costs that event. Memory:
/// the block and the rows. Never throws for what the file holds; see RankTrace::repairs.
RankTrace read(Document& document);

}  // namespace paceline::trace::kineto
