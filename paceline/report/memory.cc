#include "paceline/report/memory.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "paceline/base/format.h"
#include "paceline/base/json.h"
#include "paceline/base/table.h"

namespace paceline::report {
namespace {

using base::Bytes;
using base::Json;
using base::Table;
using trace::DeviceMemory;
using trace::MemoryOwner;
using trace::MemoryPoint;
using trace::RankMemory;

std::string rank_name(const RankMemory& rank) {
  return rank.header.rank ? fmt::format("rank {}", *rank.header.rank) : rank.header.source;
}

std::string device_name(std::int32_t device) {
  return device == trace::AllocatorEvent::kHostMemory ? "host memory" : fmt::format("device {}", device);
}

std::string when(const DeviceMemory& memory) {
  const std::int64_t since = memory.timeline[memory.peak].time - memory.timeline.front().time;
  std::string text = fmt::format("{} after the first event", base::format_time(base::Nanos(since)));
  if (!memory.peak_step.empty()) text += ", in " + memory.peak_step;
  if (!memory.peak_part.empty()) text += fmt::format(", {}", memory.peak_part);
  return text;
}

std::string share(std::int64_t part, std::int64_t whole) {
  return whole <= 0 ? "" : base::format_percent(static_cast<double>(part) / static_cast<double>(whole));
}

std::string classes_table(const DeviceMemory& memory, std::int64_t peak) {
  Table table;
  table.add_column("bytes at the peak", Table::Align::kLeft);
  table.add_column("bytes");
  table.add_column("share");
  table.add_column("blocks");
  table.add_column("how it is known", Table::Align::kLeft);
  for (const MemoryOwner& owner : memory.classes) {
    table.add_row({owner.name, base::format_count(owner.bytes), share(owner.bytes, peak),
                   base::format_count(owner.blocks), std::string(memory_class_reason(owner.kind))});
  }
  return table.to_string();
}

std::string owners_table(const DeviceMemory& memory, std::int64_t peak, std::size_t rows) {
  constexpr std::size_t kWidth = 70;
  Table table;
  table.add_column("largest owners", Table::Align::kLeft);
  table.add_column("as", Table::Align::kLeft);
  table.add_column("bytes");
  table.add_column("share");
  table.add_column("blocks");
  for (std::size_t i = 0; i < std::min(rows, memory.owners.size()); ++i) {
    const MemoryOwner& owner = memory.owners[i];
    table.add_row({base::shorten(owner.name, kWidth), std::string(memory_class_name(owner.kind)),
                   base::format_count(owner.bytes), share(owner.bytes, peak), base::format_count(owner.blocks)});
  }
  std::string text = table.to_string();
  if (memory.owners.size() > rows) {
    text += fmt::format("  ... {} more; --rows N or --json shows them\n", memory.owners.size() - rows);
  }
  return text;
}

/// The largest of each run of points, so that the peak stays.
Json timeline_json(const std::vector<MemoryPoint>& timeline) {
  constexpr std::size_t kPoints = 1000;
  const std::size_t run = (timeline.size() + kPoints - 1) / kPoints;
  Json points = Json::array();
  for (std::size_t i = 0; i < timeline.size(); i += run) {
    const auto first = timeline.begin() + static_cast<std::ptrdiff_t>(i);
    const auto largest =
        std::max_element(first, first + static_cast<std::ptrdiff_t>(std::min(run, timeline.size() - i)),
                         [](const MemoryPoint& a, const MemoryPoint& b) { return a.allocated < b.allocated; });
    points.push_back({largest->time, largest->allocated});
  }
  return points;
}

Json owners_json(const std::vector<MemoryOwner>& owners, bool named) {
  Json rows = Json::array();
  for (const MemoryOwner& owner : owners) {
    Json row{{"class", memory_class_name(owner.kind)}};
    if (named) row["owner"] = owner.name;
    row["bytes"] = owner.bytes;
    row["blocks"] = owner.blocks;
    if (!named) row["basis"] = memory_class_reason(owner.kind);
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace

std::string memory_text(std::span<const RankMemory> ranks, std::size_t rows) {
  std::string text;
  for (const RankMemory& rank : ranks) {
    for (const DeviceMemory& memory : rank.devices) {
      const std::int64_t peak = memory.timeline[memory.peak].allocated;
      if (!text.empty()) text += '\n';
      text += fmt::format("{}, {}: peak {} ({} bytes), {}\n", rank_name(rank), device_name(memory.device),
                          base::format_bytes(Bytes{peak}), base::format_count(peak), when(memory));
      if (memory.reserved_peak >= 0) {
        text += fmt::format("  reserved at most {}; ", base::format_bytes(Bytes{memory.reserved_peak}));
      } else {
        text += "  ";
      }
      text += fmt::format("{} events, {} of whose totals differ from the sum of bytes\n",
                          base::format_count(static_cast<std::int64_t>(memory.timeline.size())),
                          base::format_count(memory.disagreements));
      text += classes_table(memory, peak);
      text += owners_table(memory, peak, rows);
    }
  }
  return text;
}

std::string memory_json(std::span<const RankMemory> ranks) {
  Json result = base::make_result("memory", 1);
  Json& list = result["ranks"] = Json::array();
  for (const RankMemory& rank : ranks) {
    Json devices = Json::array();
    for (const DeviceMemory& memory : rank.devices) {
      const MemoryPoint& peak = memory.timeline[memory.peak];
      Json row{{"device", memory.device},
               {"events", memory.timeline.size()},
               {"disagreements", memory.disagreements},
               {"peak_bytes", peak.allocated},
               {"peak_ns", peak.time},
               {"peak_step", memory.peak_step},
               {"peak_part", memory.peak_part},
               {"reserved_peak_bytes", memory.reserved_peak < 0 ? Json() : Json(memory.reserved_peak)},
               {"classes", owners_json(memory.classes, false)},
               {"owners", owners_json(memory.owners, true)},
               {"timeline", timeline_json(memory.timeline)}};
      devices.push_back(std::move(row));
    }
    list.push_back({{"rank", rank.header.rank ? Json(*rank.header.rank) : Json()},
                    {"source", rank.header.source},
                    {"devices", std::move(devices)}});
  }
  return base::to_text(result);
}

}  // namespace paceline::report
