#pragma once
#include <span>
#include <string>
#include <string_view>

#include "paceline/base/file.h"
#include "paceline/trace/rank_trace.h"

namespace paceline::trace {

/// What is left out unless it is asked for, since few look at it and it takes memory.
struct ReadOptions {
  bool allocator = false;  // RankTrace::allocator
};

/// A document being read: its first bytes, already taken from `source`, and the rest.
struct Document {
  std::string name;
  std::string_view head;
  base::ByteSource& source;
  ReadOptions options = {};
};

/// One format: how to know it and how to read it. `read` is null for formats that are recognised only to say what to do
/// instead.
struct Format {
  std::string_view name;
  /// Sees at most kSniffBytes of the (uncompressed) document; must hold for a damaged one too where that can be told.
  bool (*sniff)(std::string_view head);
  RankTrace (*read)(Document& document);
  std::string_view advice;
};
inline constexpr std::size_t kSniffBytes = 256 * 1024;

/// The first kSniffBytes of a source, less when it ends before.
std::string read_head(base::ByteSource& source);

/// Every known format, the more specific first.
std::span<const Format> formats();

/// Reads one document in whatever format it is. Throws Error(kBadInput) when the format is unknown or cannot be read as
/// a trace, Error(kDamagedInput) when nothing of it can be read; damage inside a known format is reported in the
/// result's Repairs instead.
RankTrace read_document(const std::string& name, base::ByteSource& source, const ReadOptions& options = {});

}  // namespace paceline::trace
