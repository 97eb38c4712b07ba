#pragma once
#include <span>
#include <string>

#include "paceline/trace/memory/memory.h"

namespace paceline::report {

/// For a terminal: of each rank and device the peak, when it was, its bytes by class, its `rows` largest owners.
std::string memory_text(std::span<const trace::RankMemory> ranks, std::size_t rows);

/// The same for machines (paceline/memory/1), all owners, and a timeline of at most 1,000 points that keeps the peak.
std::string memory_json(std::span<const trace::RankMemory> ranks);

}  // namespace paceline::report
