#pragma once
#include <span>

#include "paceline/trace/rank_trace.h"

namespace paceline::diagnose {

/// Replaces every name in the traces, so that they can be shown to others and still be diagnosed. A name becomes its
/// role, the class that the rules know it by, and a hash: "kernel-gemm-1c9e5f2a77b0", the same on all ranks and in all
/// excerpts, so that those compare with one another; who already knows a name can recognise it. What stays: calls of
/// the device runtime, kinds of collectives, numbers of steps, ranks and process groups, shapes, types, durations.
/// Times begin at 0; hosts, threads, process groups with names of their own are hashed or numbered; instants go.
void anonymise(std::span<trace::RankTrace> ranks);

}  // namespace paceline::diagnose
