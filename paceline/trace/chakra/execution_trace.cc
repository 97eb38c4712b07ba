#include "paceline/trace/chakra/execution_trace.h"

#include <algorithm>

namespace paceline::trace::chakra {
namespace {

// Fields of the schema's messages.
enum MetadataField : std::uint32_t { kVersion = 1, kMetadataAttribute = 2 };
enum NodeField : std::uint32_t {
  kId = 1,
  kName = 2,
  kType = 3,
  kControl = 4,
  kData = 5,
  kStart = 6,
  kDuration = 7,
  kInputs = 8,
  kOutputs = 9,
  kNodeAttribute = 10
};
enum AttributeField : std::uint32_t {
  kAttributeName = 1,
  kDocumentation = 2,
  kInt32 = 7,
  kInt64 = 9,
  kUint32 = 11,
  kUint64 = 13,
  kSint32 = 15,
  kSint64 = 17,
  kFixed32 = 19,
  kFixed64 = 21,
  kSfixed32 = 23,
  kSfixed64 = 25,
  kBool = 27,
  kString = 29,
  kLastValue = 32
};

bool parse_attribute(std::string_view bytes, std::vector<Attribute>& to) {
  Attribute attribute;
  WireReader reader(bytes);
  while (const auto field = reader.next()) {
    if (field->number == kAttributeName && field->type == WireType::kLength) {
      attribute.name = field->bytes;
    } else if (field->number > kDocumentation && field->number <= kLastValue) {
      attribute.value = *field;
      attribute.value.bytes = {};
      attribute.bytes = field->bytes;
    }
  }
  to.push_back(std::move(attribute));
  return !reader.broken();
}

std::string attribute_bytes(const Attribute& attribute) {
  WireWriter writer;
  writer.text(kAttributeName, attribute.name);
  if (attribute.value.number != 0) {
    WireField value = attribute.value;
    value.bytes = attribute.bytes;
    writer.field(value);
  }
  return writer.bytes();
}

/// Packed as proto3 writes them, or one by one.
bool parse_ids(const WireField& field, std::vector<std::uint64_t>& ids) {
  if (field.type == WireType::kVarint) {
    ids.push_back(field.value);
    return true;
  }
  WireReader reader(field.bytes);
  while (reader.at() < field.bytes.size()) {
    const auto id = reader.varint();
    if (!id) return false;
    ids.push_back(*id);
  }
  return field.type == WireType::kLength;
}

bool parse_tensors(std::string_view bytes, Tensors& tensors) {
  WireReader reader(bytes);
  while (const auto field = reader.next()) {
    if (field->type != WireType::kLength) continue;
    if (field->number == 1) tensors.values = field->bytes;
    if (field->number == 2) tensors.shapes = field->bytes;
    if (field->number == 3) tensors.types = field->bytes;
  }
  return !reader.broken();
}

bool parse_metadata(std::string_view bytes, ExecutionTrace& trace) {
  WireReader reader(bytes);
  while (const auto field = reader.next()) {
    if (field->type != WireType::kLength) return false;
    if (field->number == kVersion) trace.version = field->bytes;
    if (field->number == kMetadataAttribute && !parse_attribute(field->bytes, trace.metadata)) return false;
  }
  return !reader.broken();
}

bool parse_node(std::string_view bytes, Node& node) {
  WireReader reader(bytes);
  while (const auto field = reader.next()) {
    const bool number = field->type == WireType::kVarint, text = field->type == WireType::kLength;
    switch (field->number) {
      case kId:
      case kType:
      case kStart:
      case kDuration:
        if (!number) return false;
        if (field->number == kId) node.id = field->value;
        if (field->number == kType) node.type = static_cast<NodeType>(field->value & 0xFFFFFFFF);
        if (field->number == kStart) node.start_us = field->value;
        if (field->number == kDuration) node.duration_us = field->value;
        break;
      case kName:
        if (!text) return false;
        node.name = field->bytes;
        break;
      case kControl:
      case kData:
        if (!parse_ids(*field, field->number == kControl ? node.control : node.data)) return false;
        break;
      case kInputs:
      case kOutputs:
        if (!text || !parse_tensors(field->bytes, field->number == kInputs ? node.inputs : node.outputs)) return false;
        break;
      case kNodeAttribute:
        if (!text || !parse_attribute(field->bytes, node.attributes)) return false;
        break;
      default:
        break;
    }
  }
  return !reader.broken();
}

std::string packed(const std::vector<std::uint64_t>& ids) {
  WireWriter writer;
  for (const std::uint64_t id : ids) writer.varint(id);
  return writer.bytes();
}

std::string node_bytes(const Node& node) {
  WireWriter writer;
  // proto3 leaves out what has its default.
  if (node.id != 0) writer.number(kId, node.id);
  if (!node.name.empty()) writer.text(kName, node.name);
  if (node.type != NodeType::kInvalid) writer.number(kType, static_cast<std::uint32_t>(node.type));
  if (!node.control.empty()) writer.text(kControl, packed(node.control));
  if (!node.data.empty()) writer.text(kData, packed(node.data));
  if (node.start_us != 0) writer.number(kStart, node.start_us);
  if (node.duration_us != 0) writer.number(kDuration, node.duration_us);
  const auto tensors = [&](NodeField number, const Tensors& some) {
    if (some == Tensors{}) return;
    WireWriter inner;
    if (!some.values.empty()) inner.text(1, some.values);
    if (!some.shapes.empty()) inner.text(2, some.shapes);
    if (!some.types.empty()) inner.text(3, some.types);
    writer.text(number, inner.bytes());
  };
  tensors(kInputs, node.inputs);
  tensors(kOutputs, node.outputs);
  for (const Attribute& attribute : node.attributes) writer.text(kNodeAttribute, attribute_bytes(attribute));
  return writer.bytes();
}

}  // namespace

Attribute Attribute::of_int(std::string name, std::int64_t value) {
  return {std::move(name), {kInt64, WireType::kVarint, static_cast<std::uint64_t>(value)}, {}};
}
Attribute Attribute::of_bool(std::string name, bool value) {
  return {std::move(name), {kBool, WireType::kVarint, value ? 1u : 0u}, {}};
}
Attribute Attribute::of_text(std::string name, std::string text) {
  return {std::move(name), {kString, WireType::kLength, 0, {}}, std::move(text)};
}

std::optional<std::int64_t> Attribute::integer() const {
  const std::uint64_t raw = value.value;
  switch (value.number) {
    case kInt32:
    case kInt64:
    case kUint32:
    case kUint64:
    case kFixed64:
    case kSfixed64:
    case kFixed32:
    case kBool:
      return static_cast<std::int64_t>(raw);
    case kSfixed32:
      return static_cast<std::int32_t>(raw);
    case kSint32:
    case kSint64:  // zigzag
      return static_cast<std::int64_t>(raw >> 1 ^ (~(raw & 1) + 1));
    default:
      return std::nullopt;
  }
}

std::optional<std::string_view> Attribute::text() const {
  if (value.number != kString) return std::nullopt;
  return bytes;
}

bool Attribute::operator==(const Attribute& other) const {
  return name == other.name && value.number == other.value.number && value.type == other.value.type &&
         value.value == other.value.value && bytes == other.bytes;
}

const Attribute* Node::attribute(std::string_view wanted) const {
  const auto found =
      std::find_if(attributes.begin(), attributes.end(), [&](const Attribute& one) { return one.name == wanted; });
  return found == attributes.end() ? nullptr : &*found;
}
std::optional<std::int64_t> Node::integer(std::string_view wanted) const {
  const Attribute* found = attribute(wanted);
  return found == nullptr ? std::nullopt : found->integer();
}
std::string_view Node::text(std::string_view wanted) const {
  const Attribute* found = attribute(wanted);
  return found == nullptr ? std::string_view{} : found->text().value_or("");
}

ExecutionTrace parse(std::string_view bytes) {
  ExecutionTrace trace;
  WireReader reader(bytes);
  for (bool first = true; reader.at() < bytes.size(); first = false) {
    const std::size_t start = reader.at();
    const auto size = reader.varint();
    const auto message = size ? reader.take(*size) : std::nullopt;
    if (!message) {
      trace.cut = start;
      break;
    }
    Node node;
    if (first ? parse_metadata(*message, trace) : parse_node(*message, node)) {
      if (!first) trace.nodes.push_back(std::move(node));
    } else if (trace.broken_nodes++ == 0) {
      trace.first_broken = start;
    }
  }
  return trace;
}

std::string serialise(const ExecutionTrace& trace) {
  WireWriter metadata, writer;
  if (!trace.version.empty()) metadata.text(kVersion, trace.version);
  for (const Attribute& attribute : trace.metadata) metadata.text(kMetadataAttribute, attribute_bytes(attribute));
  const auto message = [&](const std::string& bytes) {
    writer.varint(bytes.size());
    writer.raw(bytes);
  };
  message(metadata.bytes());
  for (const Node& node : trace.nodes) message(node_bytes(node));
  return writer.take();
}

bool is_execution_trace(std::string_view head) {
  ExecutionTrace trace;
  WireReader reader(head);
  const auto size = reader.varint();
  const auto metadata = size ? reader.take(*size) : std::nullopt;
  if (!metadata || !parse_metadata(*metadata, trace)) return false;
  const auto node_size = reader.varint();
  const auto node_text = node_size ? reader.take(*node_size) : std::nullopt;
  Node node;
  return node_text && parse_node(*node_text, node) && !node.name.empty() && static_cast<std::uint32_t>(node.type) <= 32;
}

}  // namespace paceline::trace::chakra
