#include "paceline/trace/flight_recorder/flight_recorder.h"

#include <fmt/core.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "paceline/base/error.h"
#include "paceline/base/file.h"
#include "paceline/base/json.h"
#include "paceline/trace/captures.h"
#include "paceline/trace/decimal.h"
#include "paceline/trace/flight_recorder/pickle.h"
#include "paceline/trace/kineto/rank_lists.h"
#include "paceline/trace/reader.h"

namespace paceline::trace {
namespace {

using base::Json;

constexpr char kPickle = '\x80';

bool has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

const Json* member(const Json& object, std::string_view key) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

/// Dumps have had their numbers as numbers and as text.
std::int64_t whole(const Json* value, std::int64_t otherwise) {
  if (value == nullptr) return otherwise;
  if (value->is_string()) return parse_integer(value->get_ref<const std::string&>()).value_or(otherwise);
  if (value->is_number_unsigned() && value->get<std::uint64_t>() > INT64_MAX) return otherwise;
  return value->is_number_integer() ? value->get<std::int64_t>() : otherwise;
}

std::string text(const Json* value) {
  if (value == nullptr) return "";
  return value->is_string() ? value->get<std::string>() : value->dump(-1, ' ', false, Json::error_handler_t::replace);
}

bool truth(const Json* value) {
  return value != nullptr && (value->is_boolean() ? value->get<bool>() : text(value) == "true");
}

/// Lists of sizes or of types, alike however they were spaced.
std::string sizes(const Json* value) {
  return value == nullptr || (value->is_array() && value->empty()) ? "" : text(value);
}

std::vector<std::uint32_t> ranks_of(const Json* value) {
  std::set<std::uint32_t> ranks;
  const auto add = [&](std::int64_t rank) {
    if (rank >= 0 && rank < UINT32_MAX) ranks.insert(static_cast<std::uint32_t>(rank));
  };
  if (value != nullptr && value->is_array()) {
    for (const Json& rank : *value) add(whole(&rank, -1));
  } else if (value != nullptr) {
    const auto list = kineto::parse_rank_list(text(value));
    if (list && !list->cut) std::for_each(list->ranks.begin(), list->ranks.end(), add);
  }
  return {ranks.begin(), ranks.end()};
}

/// The frame a user can act on: the innermost that is not PyTorch's own.
std::string frame_of(const Json* frames) {
  if (frames == nullptr || !frames->is_array()) return "";
  std::string first;
  for (const Json& frame : *frames) {
    const std::string file = text(member(frame, "filename"));
    std::string shown = fmt::format("{}:{} {}", file, whole(member(frame, "line"), 0), text(member(frame, "name")));
    if (file.empty()) continue;
    if (!has(file, "torch/") && !has(file, "<")) return shown;
    if (first.empty()) first = std::move(shown);
  }
  return first;
}

/// Host and rank in names such as "node03_nccl_trace_rank_12", "host-a.12", "node03/nccl_trace_rank_12".
struct NameFacts {
  std::optional<std::uint32_t> rank;
  std::string host;
};
NameFacts facts_of_name(const std::string& source) {
  NameFacts facts;
  std::string name = std::filesystem::path(source).filename().string();
  for (const std::string_view ending : {".gz", ".zst", ".json", ".pickle", ".pkl", ".bin", ".txt", ".dump"}) {
    if (name.ends_with(ending)) name.resize(name.size() - ending.size());
  }
  const std::size_t number = name.find_last_not_of("0123456789") + 1;
  if (number < name.size()) {
    const auto rank = parse_integer(std::string_view(name).substr(number));
    if (rank && *rank >= 0 && *rank < UINT32_MAX) facts.rank = static_cast<std::uint32_t>(*rank);
  }
  if (!facts.rank) facts.rank = rank_from_path(source);
  std::size_t end = number;
  for (const std::string_view word : {"rank", "nccl_trace", "comm_lib_trace", "trace", "dump", "fr"}) {
    if (const std::size_t at = name.find(word); at < end) end = at;
  }
  facts.host = name.substr(0, end);
  while (!facts.host.empty() && std::string_view("_-.:@").find(facts.host.back()) != std::string_view::npos) {
    facts.host.pop_back();
  }
  return facts;
}

class Reader {
 public:
  Reader(const std::string& source, const Json& root) : root_(root) { dump_.source = source; }

  FlightDump run() {
    const Json* entries = member(root_, "entries");
    if (entries == nullptr || !entries->is_array()) {
      throw Error(ErrorKind::kBadInput, dump_.source, "no flight-recorder dump: it has no list 'entries'");
    }
    dump_.version = text(member(root_, "version"));
    read_groups();
    for (const Json& entry : *entries) {
      if (entry.is_object()) read_entry(entry);
    }
    // The ring is written out from its oldest entry on, but was not always.
    std::stable_sort(dump_.entries.begin(), dump_.entries.end(),
                     [](const FlightEntry& a, const FlightEntry& b) { return a.record < b.record; });
    const NameFacts facts = facts_of_name(dump_.source);
    const std::int64_t own = whole(member(root_, "rank"), -1);
    dump_.rank = own >= 0 && own < UINT32_MAX ? std::optional(static_cast<std::uint32_t>(own)) : facts.rank;
    dump_.host = text(member(root_, "host_name"));
    if (dump_.host.empty()) dump_.host = facts.host;
    return std::move(dump_);
  }

 private:
  void read_groups() {
    const Json* config = member(root_, "pg_config");
    if (config != nullptr && config->is_object()) {
      for (const auto& [key, group] : config->items()) {
        const Json* name = member(group, "name");
        FlightGroup& added = dump_.groups[group_called(name != nullptr ? text(name) : key, "")];
        added.description = text(member(group, "desc"));
        added.ranks = ranks_of(member(group, "ranks"));
      }
    }
    const Json* status = member(root_, "pg_status");
    if (status == nullptr || !status->is_object()) return;
    for (const auto& [key, row] : status->items()) {
      // Keyed by the number of the group, which is its place in the configuration where names are no numbers.
      std::string name = key;
      if (config != nullptr && config->is_object()) {
        if (const Json* group = member(*config, key))
          name = member(*group, "name") ? text(member(*group, "name")) : key;
      }
      FlightGroup& group = dump_.groups[group_called(name, "")];
      group.last_enqueued = whole(member(row, "last_enqueued_collective"), -1);
      group.last_started = whole(member(row, "last_started_collective"), -1);
      group.last_completed = whole(member(row, "last_completed_collective"), -1);
    }
  }

  std::uint32_t group_called(const std::string& name, const std::string& description) {
    const auto [place, added] = groups_.try_emplace(name, static_cast<std::uint32_t>(dump_.groups.size()));
    if (added) {
      dump_.groups.emplace_back();
      dump_.groups.back().name = name;
    }
    FlightGroup& group = dump_.groups[place->second];
    if (group.description.empty()) group.description = description;
    return place->second;
  }

  void read_entry(const Json& row) {
    FlightEntry entry;
    std::string name, description;
    if (const Json* group = member(row, "process_group"); group != nullptr && group->is_array() && !group->empty()) {
      name = text(&(*group)[0]);
      if (group->size() > 1) description = text(&(*group)[1]);
    } else if (const Json* id = member(row, "pg_name") ? member(row, "pg_name") : member(row, "pg_id")) {
      name = text(id);
    }
    entry.group = group_called(name, description);
    entry.operation = text(member(row, "profiling_name"));
    if (const std::size_t colon = entry.operation.find(':'); colon != std::string::npos) {
      entry.operation.erase(0, colon + 1);  // "nccl:all_reduce"
    }
    const bool named_transfer = entry.operation.starts_with("send") || entry.operation.starts_with("recv");
    const Json* flag = member(row, "is_p2p");
    entry.point_to_point = flag != nullptr ? truth(flag) : named_transfer;
    const Json* sequence = member(row, entry.point_to_point ? "p2p_seq_id" : "collective_seq_id");
    entry.sequence = whole(sequence != nullptr ? sequence : member(row, "seq_id"), -1);
    entry.input_sizes = sizes(member(row, "input_sizes"));
    entry.output_sizes = sizes(member(row, "output_sizes"));
    entry.dtypes = sizes(member(row, "input_dtypes"));
    const std::string state = text(member(row, "state"));
    const bool completed = state == "completed" || (state.empty() && truth(member(row, "retired")));
    entry.state = completed            ? FlightState::kCompleted
                  : state == "started" ? FlightState::kStarted
                                       : FlightState::kScheduled;
    entry.created = whole(member(row, "time_created_ns"), 0);
    entry.where = frame_of(member(row, "frames"));
    entry.record = whole(member(row, "record_id"), static_cast<std::int64_t>(dump_.entries.size()));
    dump_.entries.push_back(std::move(entry));
  }

  const Json& root_;
  FlightDump dump_;
  std::map<std::string, std::uint32_t> groups_;
};

}  // namespace

std::string_view flight_state_name(FlightState state) {
  static constexpr std::array<std::string_view, 3> kNames{"scheduled", "started", "completed"};
  return kNames[static_cast<std::size_t>(state)];
}

namespace flight_recorder {

bool sniff(std::string_view head) {
  const bool pickle = head.size() > 1 && head[0] == kPickle && head[1] <= 5;
  const bool sign = has(head, "pg_config") || has(head, "pg_status") || has(head, "nccl_version") ||
                    has(head, "collective_seq_id") || has(head, "time_created_ns");
  return sign && (pickle || (has(head, "\"entries\"") && !has(head, "\"ph\"")));
}

FlightDump read(const std::string& source, std::string_view bytes) {
  const Json root = bytes.starts_with(kPickle) ? parse_pickle(bytes, source) : base::parse_json(bytes, source);
  return Reader(source, root).run();
}

}  // namespace flight_recorder

bool are_flight_dumps(const std::vector<std::string>& arguments) {
  std::optional<bool> answer;
  for (const std::filesystem::path& file : base::expand_inputs(arguments)) {
    std::error_code ignored;
    if (!std::filesystem::is_regular_file(file, ignored) || std::filesystem::file_size(file, ignored) == 0) continue;
    try {
      base::for_each_document(file, [&](const std::string&, base::ByteSource& source) {
        if (answer) return;
        std::string head(kSniffBytes, '\0');
        head.resize(source.read(head));
        if (!head.empty()) answer = flight_recorder::sniff(head);
      });
    } catch (const Error&) {  // who reads it says why
    }
    if (answer) return *answer;
  }
  return false;
}

FlightDumps load_flight_dumps(const std::vector<std::string>& arguments) {
  FlightDumps result;
  for (const std::filesystem::path& file : base::expand_inputs(arguments)) {
    const auto refuse = [&](const std::string& message) { result.unreadable.push_back(message); };
    try {
      base::for_each_document(file, [&](const std::string& name, base::ByteSource& source) {
        try {
          const std::string bytes = base::read_all(source);
          if (bytes.empty()) return refuse(name + ": is empty");
          result.dumps.push_back(flight_recorder::read(name, bytes));
        } catch (const Error& error) {
          if (error.kind() != ErrorKind::kBadInput && error.kind() != ErrorKind::kDamagedInput) throw;
          refuse(error.what());
        }
      });
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kBadInput) throw;
      refuse(error.what());
    }
  }
  std::map<std::uint32_t, std::string> taken;
  std::erase_if(result.dumps, [&](const FlightDump& dump) {
    if (!dump.rank) {
      result.warnings.push_back(dump.source + ": names no rank, nor does its path; passed over (call it rank_N)");
      return true;
    }
    const auto [first, added] = taken.try_emplace(*dump.rank, dump.source);
    if (!added) {
      result.warnings.push_back(
          fmt::format("{}: is of rank {} as {} is; passed over", dump.source, *dump.rank, first->second));
    }
    return !added;
  });
  if (result.dumps.empty()) {
    throw Error(ErrorKind::kBadInput, "", result.unreadable.empty() ? "no dump of a known rank" : result.unreadable[0]);
  }
  std::sort(result.dumps.begin(), result.dumps.end(),
            [](const FlightDump& a, const FlightDump& b) { return *a.rank < *b.rank; });
  // Where each host has a folder of its own, the folder is the host's name.
  std::set<std::string> folders;
  for (const FlightDump& dump : result.dumps) folders.insert(std::filesystem::path(dump.source).parent_path().string());
  for (FlightDump& dump : result.dumps) {
    if (dump.host.empty() && folders.size() > 1) {
      dump.host = std::filesystem::path(dump.source).parent_path().filename().string();
    }
  }
  return result;
}

}  // namespace paceline::trace
