#include "paceline/trace/ndtimeline/recording.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <tuple>

#include "paceline/base/error.h"
#include "paceline/trace/decimal.h"
#include "paceline/trace/kineto/kineto_reader.h"

namespace paceline::trace::ndtimeline {
namespace {

constexpr std::int64_t kMostWorkers = 1 << 20;  // of one dimension; more is damage

/// The whole number behind `label` in `text`, e.g. 2 for "PP rank " in "PP rank 2, TP rank 0, compute".
std::optional<std::uint32_t> number_behind(std::string_view text, std::string_view label) {
  const std::size_t at = text.find(label);
  if (at == std::string_view::npos) return std::nullopt;
  const std::string_view rest = text.substr(at + label.size());
  const auto number = parse_integer(rest.substr(0, rest.find_first_not_of("0123456789")));
  if (!number || *number < 0 || *number >= kMostWorkers) return std::nullopt;
  return static_cast<std::uint32_t>(*number);
}

std::optional<Worker> worker_of(const Lane& lane) {
  const auto stage = number_behind(lane.name, "PP rank ");
  auto dp_rank = number_behind(lane.process_name, "DP rank [");
  if (!dp_rank) dp_rank = number_behind(lane.process, "");
  if (!stage || !dp_rank) return std::nullopt;
  return Worker{*stage, *dp_rank, number_behind(lane.name, "TP rank ").value_or(0)};
}

}  // namespace

bool sniff(std::string_view head) {
  const auto has = [&](std::string_view part) { return head.find(part) != std::string_view::npos; };
  return has("\"ph\"") && (has("\"model_chunk\"") || has("\"mb_id\"") || has("\"PP rank "));
}

Recording read(Document& document) {
  RankTrace trace = kineto::read(document);
  Recording recording;
  recording.header = static_cast<const RankHeader&>(trace);
  recording.header.source = document.name;
  recording.header.format = "ndtimeline";

  std::vector<std::optional<Worker>> of_lane;
  for (const Lane& lane : trace.lanes) of_lane.push_back(worker_of(lane));
  for (const auto& worker : of_lane) {
    if (worker) recording.workers.push_back(*worker);
  }
  std::sort(recording.workers.begin(), recording.workers.end());
  recording.workers.erase(std::unique(recording.workers.begin(), recording.workers.end()), recording.workers.end());

  const Slices& slices = trace.slices;
  for (const PipelineArgs& args : trace.pipeline_args) {
    const auto& worker = of_lane[base::index(slices.lane[args.row])];
    if (!worker || args.step < 0) continue;
    const auto at = std::lower_bound(recording.workers.begin(), recording.workers.end(), *worker);
    recording.operations.push_back({.step = args.step,
                                    .worker = static_cast<std::uint32_t>(at - recording.workers.begin()),
                                    .name = slices.name[args.row],
                                    .sequence = args.sequence,
                                    .model_chunk = args.model_chunk,
                                    .begin = slices.start[args.row],
                                    .end = slices.end(args.row)});
  }
  if (recording.operations.empty()) {
    throw Error(
        ErrorKind::kBadInput, document.name,
        "no operation says its step (args: step, seq_id) and its stage (thread name 'PP rank 0, ...'); expected "
        "an ndtimeline of a job");
  }
  const auto left_out = static_cast<std::int64_t>(slices.size() - recording.operations.size());
  if (left_out > 0) {
    recording.header.repairs.add(Repair::kDamagedEvent, "args", "no step, or a thread without 'PP rank'", left_out);
  }
  std::sort(recording.operations.begin(), recording.operations.end(), [](const Operation& a, const Operation& b) {
    return std::tie(a.step, a.worker, a.begin, a.sequence, a.name) <
           std::tie(b.step, b.worker, b.begin, b.sequence, b.name);
  });
  recording.names = std::make_shared<base::InternTable>(std::move(trace.names));
  return recording;
}

std::optional<Recording> load(const std::string& argument) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(argument, ignored)) return std::nullopt;
  std::optional<Recording> recording;
  base::for_each_document(argument, [&](const std::string& name, base::ByteSource& source) {
    const std::string head = read_head(source);
    if (!sniff(head)) return;
    if (recording) throw Error(ErrorKind::kBadInput, argument, "holds several ndtimelines; give one at a time");
    Document document{name, head, source};
    recording = read(document);
  });
  return recording;
}

}  // namespace paceline::trace::ndtimeline
