#pragma once
#include <string_view>

#include "paceline/trace/chakra/execution_trace.h"
#include "paceline/trace/reader.h"

namespace paceline::trace::chakra {

/// A Chakra execution trace (.et) by its first bytes, whole or damaged.
bool sniff(std::string_view head);

/// Nodes as slices: of the host by "is_cpu_op", lanes by "tid", collectives by "comm_type", "comm_size", "pg_name".
/// Where no node has a start, every one starts as early as its dependencies and its lane allow (Repair::kInferredTime);
/// dependencies in a circle are broken at the node that stands first in the file. Never throws for what the file holds.
RankTrace read(Document& document);

/// A rank's slices as an execution trace, one node a slice, times in exact nanoseconds as attributes beside the
/// schema's microseconds. Control dependencies: the slice around it, of device work the call that launched it; data
/// dependencies: what ran before on its stream. Acyclic. The schema's duration is without the slices inside, so that
/// children may follow their parent in simulators that let each node wait for the end of those before.
ExecutionTrace from_rank(const RankTrace& trace);

}  // namespace paceline::trace::chakra
