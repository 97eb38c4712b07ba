#include "paceline/trace/chakra/chakra.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <map>
#include <queue>
#include <unordered_map>

#include "paceline/trace/decimal.h"
#include "paceline/trace/understand/launches.h"
#include "paceline/trace/understand/names.h"

namespace paceline::trace::chakra {
namespace {

constexpr std::int64_t kLatest = 4'000'000'000'000'000'000;  // the year 2096, in ns
constexpr std::int64_t kLongest = std::int64_t{7} * 24 * 3600 * 1'000'000'000;

// The schema's CollectiveCommType by the names that PyTorch gives collectives.
constexpr std::array<std::string_view, 10> kCollectives{"allreduce",      "reduce",    "allgather",  "gather",
                                                        "scatter",        "broadcast", "all_to_all", "reduce_scatter",
                                                        "reduce_scatter", "barrier"};

constexpr std::array<Category, 10> kCategories{
    Category::kCpuOp,  Category::kUserAnnotation, Category::kGpuAnnotation, Category::kPython, Category::kRuntime,
    Category::kKernel, Category::kMemcpy,         Category::kMemset,        Category::kSync,   Category::kOther};

bool on_device(Category category) {
  return is_device_work(category) || category == Category::kGpuAnnotation || category == Category::kSync;
}

bool is_communication(NodeType type) {
  return type == NodeType::kSend || type == NodeType::kReceive || type == NodeType::kCollective;
}

Category category_of(const Node& node) {
  for (const Category category : kCategories) {
    if (node.text("category") == category_name(category)) return category;
  }
  if (node.type == NodeType::kMemoryLoad || node.type == NodeType::kMemoryStore) return Category::kMemcpy;
  if (node.integer("is_cpu_op").value_or(is_communication(node.type) ? 0 : 1) != 0) return Category::kCpuOp;
  if (node.name.starts_with("Memcpy")) return Category::kMemcpy;
  if (node.name.starts_with("Memset")) return Category::kMemset;
  return Category::kKernel;
}

/// "cuda:1" among the places of its tensors, of which the results count more.
std::string device_of(const Node& node) {
  constexpr std::string_view kPlace = "cuda:";
  for (const std::string_view values : {std::string_view(node.outputs.values), std::string_view(node.inputs.values)}) {
    const std::size_t at = values.find(kPlace);
    if (at == std::string_view::npos) continue;
    const std::string_view rest = values.substr(at + kPlace.size());
    return std::string(rest.substr(0, rest.find_first_not_of("0123456789")));
  }
  return "0";
}

class Reader {
 public:
  explicit Reader(ExecutionTrace trace) : from_(std::move(trace)) {}

  RankTrace run() {
    note_damage();
    read_metadata();
    for (const Node& node : from_.nodes) {
      if (node.type == NodeType::kInvalid || node.type == NodeType::kMetadata) {
        ++trace_.events.metadata;
      } else {
        ++trace_.events.complete;
        add(node);
      }
    }
    const bool timed = std::any_of(trace_.slices.start.begin(), trace_.slices.start.end(),
                                   [](std::int64_t start) { return start != 0; });
    if (!timed && !nodes_.empty()) infer_starts();
    finish_slices(trace_);
    return std::move(trace_);
  }

 private:
  void note_damage() {
    if (from_.broken_nodes > 0) {
      trace_.repairs.add(Repair::kDamagedEvent, fmt::format("byte {}", from_.first_broken),
                         "the message is no node of the schema", static_cast<std::int64_t>(from_.broken_nodes));
    }
    if (from_.cut) {
      trace_.repairs.add(Repair::kTruncatedInput, fmt::format("byte {}", *from_.cut),
                         "the file ends within a node, or a length is damaged");
    }
  }

  void read_metadata() {
    for (const Attribute& attribute : from_.metadata) {
      const auto number = attribute.integer();
      const bool is_rank = number && *number >= 0 && *number < 0xFFFFFFFF;
      if (attribute.name == "rank" && is_rank) trace_.rank = static_cast<std::uint32_t>(*number);
      if (attribute.name == "world_size" && is_rank) trace_.world_size = static_cast<std::uint32_t>(*number);
      if (attribute.name == "backend") trace_.backend = attribute.text().value_or("");
      if (attribute.name == "pid" && number) process_ = std::to_string(*number);
    }
  }

  LaneId lane_of(const Node& node, Category category) {
    Lane lane;
    lane.device = on_device(category);
    lane.process = node.text("pid");
    if (lane.process.empty()) lane.process = lane.device ? device_of(node) : process_;
    lane.thread = node.text("thread");
    if (lane.thread.empty()) lane.thread = std::to_string(node.integer("tid").value_or(0));
    lane.name = node.text("thread_name");
    const auto key = std::tuple(lane.device, lane.process, lane.thread);
    const auto [place, added] = lanes_.try_emplace(key, static_cast<std::uint32_t>(trace_.lanes.size()));
    if (added) trace_.lanes.push_back(std::move(lane));
    return LaneId{place->second};
  }

  NameId optional_name(std::string_view text) { return text.empty() ? base::kNone<NameId> : trace_.names.intern(text); }

  /// Nanoseconds, exact where the writer was Paceline.
  std::int64_t time(const Node& node, std::string_view exact, std::uint64_t us, std::int64_t most) const {
    const std::int64_t coarse =
        us <= static_cast<std::uint64_t>(most) / 1000 ? static_cast<std::int64_t>(us) * 1000 : 0;
    const std::int64_t fine = node.integer(exact).value_or(coarse);
    return fine >= -most && fine <= most ? fine : coarse;
  }

  void add(const Node& node) {
    Slices& slices = trace_.slices;
    const Category category = category_of(node);
    std::int64_t duration = time(node, "duration_ns", node.duration_us, kLongest);
    if (duration < 0) {
      trace_.repairs.add(Repair::kNegativeDuration, fmt::format("node {}", node.id), node.name);
      duration = 0;
    }
    if (is_communication(node.type)) add_collective(node, slices.size());
    slices.start.push_back(time(node, "start_ns", node.start_us, kLatest));
    slices.duration.push_back(duration);
    slices.name.push_back(trace_.names.intern(node.name));
    slices.lane.push_back(lane_of(node, category));
    slices.correlation.push_back(static_cast<std::uint32_t>(node.integer("correlation").value_or(0)));
    slices.shapes.push_back(optional_name(node.inputs.shapes));
    slices.category.push_back(category);
    nodes_.push_back(&node);
  }

  void add_collective(const Node& node, Row row) {
    CollectiveArgs args;
    args.row = row;
    std::string_view name = node.text("collective_name");
    const auto type = node.integer("comm_type");
    if (name.empty() && type && *type >= 0 && static_cast<std::size_t>(*type) < kCollectives.size()) {
      name = kCollectives[static_cast<std::size_t>(*type)];
    }
    if (name.empty() && node.type != NodeType::kCollective) name = node.type == NodeType::kSend ? "send" : "recv";
    args.collective = optional_name(name);
    args.group = optional_name(node.text("pg_name"));
    if (name.empty() && args.group == base::kNone<NameId>) return;  // a host's node around it, which says nothing
    args.group_ranks = optional_name(node.text("pg_ranks"));
    args.dtype = optional_name(node.text("dtype"));
    const std::int64_t bytes = node.integer("comm_size").value_or(-1);
    args.in_elements = node.integer("in_msg_nelems").value_or(bytes);
    args.out_elements = node.integer("out_msg_nelems").value_or(-1);
    // "comm_size" counts bytes.
    if (!node.integer("in_msg_nelems") && bytes >= 0) args.dtype = trace_.names.intern("Byte");
    args.sequence = node.integer("seq").value_or(-1);
    args.group_size =
        static_cast<std::int32_t>(std::clamp<std::int64_t>(node.integer("pg_size").value_or(-1), -1, 1 << 30));
    trace_.collective_args.push_back(args);
  }

  /// In topological order, among nodes that are free by their place in the file: each after what it depends on and
  /// after what ran before on its lane.
  void infer_starts() {
    std::unordered_map<std::uint64_t, std::uint32_t> place;
    for (std::uint32_t i = 0; i < nodes_.size(); ++i) place.emplace(nodes_[i]->id, i);
    std::vector<std::vector<std::uint32_t>> after(nodes_.size());
    std::vector<std::uint32_t> open(nodes_.size());
    for (std::uint32_t i = 0; i < nodes_.size(); ++i) {
      for (const auto* ids : {&nodes_[i]->control, &nodes_[i]->data}) {
        for (const std::uint64_t id : *ids) {
          const auto before = place.find(id);
          if (before == place.end() || before->second == i) continue;
          after[before->second].push_back(i);
          ++open[i];
        }
      }
    }
    Slices& slices = trace_.slices;
    std::vector<std::int64_t> lane_free(trace_.lanes.size());
    std::vector<bool> done(nodes_.size());
    std::priority_queue<std::uint32_t, std::vector<std::uint32_t>, std::greater<>> ready;
    for (std::uint32_t i = 0; i < nodes_.size(); ++i) {
      if (open[i] == 0) ready.push(i);
    }
    std::int64_t circles = 0;
    for (std::uint32_t first_open = 0;;) {
      if (ready.empty()) {
        while (first_open < nodes_.size() && done[first_open]) ++first_open;
        if (first_open == nodes_.size()) break;
        ++circles;
        ready.push(first_open);
      }
      const std::uint32_t i = ready.top();
      ready.pop();
      if (done[i]) continue;
      done[i] = true;
      std::int64_t& free = lane_free[base::index(slices.lane[i])];
      slices.start[i] = std::max(slices.start[i], free);
      const std::int64_t end = std::min(slices.start[i] + slices.duration[i], kLatest);
      slices.duration[i] = std::max<std::int64_t>(end - slices.start[i], 0);
      free = end;
      for (const std::uint32_t next : after[i]) {
        slices.start[next] = done[next] ? slices.start[next] : std::max(slices.start[next], end);
        if (open[next] > 0 && --open[next] == 0) ready.push(next);
      }
    }
    trace_.repairs.add(
        Repair::kInferredTime, "",
        fmt::format("no node has a start; {} circle{} of dependencies broken", circles, circles == 1 ? "" : "s"),
        static_cast<std::int64_t>(nodes_.size()));
  }

  ExecutionTrace from_;
  RankTrace trace_;
  std::vector<const Node*> nodes_;  // of each row, before rows are put in order
  std::map<std::tuple<bool, std::string, std::string>, std::uint32_t> lanes_;
  std::string process_ = "0";
};

std::optional<std::int64_t> comm_type(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::kAllReduce:
      return 0;
    case CollectiveKind::kReduce:
      return 1;
    case CollectiveKind::kAllGather:
      return 2;
    case CollectiveKind::kGather:
      return 3;
    case CollectiveKind::kScatter:
      return 4;
    case CollectiveKind::kBroadcast:
      return 5;
    case CollectiveKind::kAllToAll:
      return 6;
    case CollectiveKind::kReduceScatter:
      return 7;
    case CollectiveKind::kBarrier:
      return 9;
    default:
      return std::nullopt;
  }
}

class Writer {
 public:
  explicit Writer(const RankTrace& trace)
      : trace_(trace), parents_(link_parents(trace)), launchers_(link_launches(trace)) {}

  ExecutionTrace run() {
    ExecutionTrace result;
    result.version = "0.0.4";
    if (trace_.rank) result.metadata.push_back(Attribute::of_int("rank", *trace_.rank));
    if (trace_.world_size > 0) result.metadata.push_back(Attribute::of_int("world_size", trace_.world_size));
    if (!trace_.backend.empty()) result.metadata.push_back(Attribute::of_text("backend", trace_.backend));
    std::vector<std::int64_t> inside(trace_.slices.size());
    for (Row row = 0; row < trace_.slices.size(); ++row) {
      if (parents_[row] != kNoRow) inside[parents_[row]] += trace_.slices.duration[row];
    }
    std::size_t collective = 0;
    for (Row row = 0; row < trace_.slices.size(); ++row) {
      const CollectiveArgs* args = nullptr;
      while (collective < trace_.collective_args.size() && trace_.collective_args[collective].row <= row) {
        if (trace_.collective_args[collective].row == row) args = &trace_.collective_args[collective];
        ++collective;
      }
      result.nodes.push_back(node(row, inside[row], args));
    }
    return result;
  }

 private:
  Node node(Row row, std::int64_t inside, const CollectiveArgs* args) const {
    const Slices& slices = trace_.slices;
    const Category category = slices.category[row];
    const Lane& lane = trace_.lanes[base::index(slices.lane[row])];
    Node node;
    node.id = row + 1u;
    node.name = trace_.name(row);
    node.type = NodeType::kCompute;
    const Row around = lane.device ? launchers_[row] : parents_[row];
    if (around != kNoRow) node.control.push_back(around + 1u);
    if (is_device_work(category)) {
      Row before = row;
      while (before > lane.begin && !is_device_work(slices.category[before - 1])) --before;
      if (before > lane.begin) node.data.push_back(before);  // of the row before that, plus one
    }
    if (slices.start[row] > 0) node.start_us = static_cast<std::uint64_t>(slices.start[row]) / 1000;
    node.duration_us = static_cast<std::uint64_t>(std::max<std::int64_t>(slices.duration[row] - inside, 0) / 1000);
    if (slices.shapes[row] != base::kNone<NameId>) node.inputs.shapes = trace_.names.text(slices.shapes[row]);
    std::vector<Attribute>& attributes = node.attributes;
    attributes.push_back(Attribute::of_bool("is_cpu_op", !lane.device));
    if (const auto thread = parse_integer(lane.thread)) attributes.push_back(Attribute::of_int("tid", *thread));
    attributes.push_back(Attribute::of_text("pid", lane.process));
    attributes.push_back(Attribute::of_text("thread", lane.thread));
    if (!lane.name.empty()) attributes.push_back(Attribute::of_text("thread_name", lane.name));
    attributes.push_back(Attribute::of_text("category", std::string(category_name(category))));
    attributes.push_back(Attribute::of_int("start_ns", slices.start[row]));
    attributes.push_back(Attribute::of_int("duration_ns", slices.duration[row]));
    if (slices.correlation[row] != 0) {
      attributes.push_back(Attribute::of_int("correlation", slices.correlation[row]));
    }
    if (args != nullptr) add_collective(*args, node);
    return node;
  }

  void add_collective(const CollectiveArgs& args, Node& node) const {
    const auto text = [&](const char* name, NameId id) {
      if (id == base::kNone<NameId>) return;
      node.attributes.push_back(Attribute::of_text(name, std::string(trace_.names.text(id))));
    };
    const auto number = [&](const char* name, std::int64_t value) {
      if (value >= 0) node.attributes.push_back(Attribute::of_int(name, value));
    };
    const std::string_view collective =
        args.collective == base::kNone<NameId> ? std::string_view{} : trace_.names.text(args.collective);
    node.type = collective == "send"   ? NodeType::kSend
                : collective == "recv" ? NodeType::kReceive
                                       : NodeType::kCollective;
    if (const auto type = comm_type(kind_of_span(collective))) {
      node.attributes.push_back(Attribute::of_int("comm_type", *type));
    }
    if (args.dtype != base::kNone<NameId> && args.in_elements >= 0) {
      const std::int64_t bytes = bytes_of_type(trace_.names.text(args.dtype));
      if (bytes > 0 && args.in_elements <= INT64_MAX / bytes) number("comm_size", args.in_elements * bytes);
    }
    text("collective_name", args.collective);
    text("pg_name", args.group);
    text("pg_ranks", args.group_ranks);
    text("dtype", args.dtype);
    number("in_msg_nelems", args.in_elements);
    number("out_msg_nelems", args.out_elements);
    number("seq", args.sequence);
    number("pg_size", args.group_size);
  }

  const RankTrace& trace_;
  std::vector<Row> parents_, launchers_;
};

}  // namespace

bool sniff(std::string_view head) {
  if (is_execution_trace(head)) return true;
  const auto has = [&](std::string_view part) { return head.find(part) != std::string_view::npos; };
  // Damaged: binary, with the names of its attributes in clear.
  return has(std::string_view("\0", 1)) && !has("\"ph\"") && (has("is_cpu_op") || has("[pytorch|profiler|"));
}

RankTrace read(Document& document) {
  const std::string bytes = std::string(document.head) + base::read_all(document.source);
  RankTrace trace = Reader(parse(bytes)).run();
  if (document.source.damage()) {
    trace.repairs.add(Repair::kDamagedCompression, fmt::format("byte {}", bytes.size()), *document.source.damage());
  }
  return trace;
}

ExecutionTrace from_rank(const RankTrace& trace) {
  return Writer(trace).run();
}

}  // namespace paceline::trace::chakra
