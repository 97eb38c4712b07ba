#pragma once
#include "paceline/trace/understand/trace.h"

namespace paceline::trace {

/// Fills groups, collectives, members (with unaligned times) and mismatches of `trace`. Within a group the key is
/// NCCL's sequence number where it was recorded, else the order, within steps of one number where ranks recorded
/// different steps; where ranks differ in number or kind, the order is aligned by kind and by the moments at which
/// collectives end, so that a missing one is located. Transfers of a pair of ranks go by their order: each rank numbers
/// all of its transfers in one row. Never by External id, which differs between ranks. O(events log events).
void match_collectives(Trace& trace);

/// Fills clocks from the ends of matched collectives that end together (of transfers between two ranks where no
/// collective ties them), moves all members onto the common clock, splits
/// waiting from transfer and counts causality violations.
void align_clocks(Trace& trace);

}  // namespace paceline::trace
