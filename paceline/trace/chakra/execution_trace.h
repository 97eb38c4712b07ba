#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "paceline/trace/chakra/wire.h"

namespace paceline::trace::chakra {

/// As MLCommons' schema numbers them (et_def.proto).
enum class NodeType : std::uint32_t {
  kInvalid = 0,
  kMetadata = 1,
  kMemoryLoad = 2,
  kMemoryStore = 3,
  kCompute = 4,
  kSend = 5,
  kReceive = 6,
  kCollective = 7
};

/// A named value of any of the schema's types, kept as it stands in the file: the field of the schema's `oneof` and its
/// content.
struct Attribute {
  std::string name;
  WireField value = {};
  std::string bytes = {};  // what value.bytes shows in the file

  static Attribute of_int(std::string name, std::int64_t value);
  static Attribute of_bool(std::string name, bool value);
  static Attribute of_text(std::string name, std::string text);
  /// Of any of the whole-number types, bool included.
  std::optional<std::int64_t> integer() const;
  std::optional<std::string_view> text() const;
  bool operator==(const Attribute& other) const;
};

struct Tensors {
  std::string values, shapes, types;  // as Python writes lists
  bool operator==(const Tensors&) const = default;
};

struct Node {
  std::uint64_t id = 0;
  std::string name;
  NodeType type = NodeType::kInvalid;
  std::vector<std::uint64_t> control, data;  // ids of nodes that end before this one begins
  std::uint64_t start_us = 0;                // 0 = not recorded
  std::uint64_t duration_us = 0;
  Tensors inputs, outputs;
  std::vector<Attribute> attributes;

  const Attribute* attribute(std::string_view wanted) const;
  std::optional<std::int64_t> integer(std::string_view wanted) const;
  std::string_view text(std::string_view wanted) const;  // empty when there is none
  bool operator==(const Node&) const = default;
};

/// One rank's execution trace: messages one after the other, each behind its length, the metadata first. Fields that
/// later versions of the schema add are passed over.
struct ExecutionTrace {
  std::string version;
  std::vector<Attribute> metadata;
  std::vector<Node> nodes;
  std::size_t broken_nodes = 0;    // messages passed over
  std::size_t first_broken = 0;    // its byte
  std::optional<std::size_t> cut;  // the byte at which the file ends within a message

  bool operator==(const ExecutionTrace& other) const {
    return version == other.version && metadata == other.metadata && nodes == other.nodes;
  }
};

/// Reads what holds together; a broken message costs itself only. O(bytes).
ExecutionTrace parse(std::string_view bytes);
std::string serialise(const ExecutionTrace& trace);

/// Whether the first bytes are metadata and a node.
bool is_execution_trace(std::string_view head);

}  // namespace paceline::trace::chakra
