#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace paceline::base {

/// Bytes one after the other, from a file, a compressed file or a member of an archive.
class ByteSource {
 public:
  virtual ~ByteSource() = default;

  /// Fills as much of `to` as it can; 0 only at the end.
  virtual std::size_t read(std::span<char> to) = 0;

  /// Why the bytes ended early (damaged or truncated compression), once the end is reached.
  const std::optional<std::string>& damage() const { return damage_; }

 protected:
  std::optional<std::string> damage_;
};

/// Opens `path` and calls `visit(name, bytes)` for every document in it: once for a plain file, .gz (also several
/// members) or .zst, once per regular file inside a tar, also compressed, also of compressed files. Formats are
/// recognised by their first bytes, never by the file's name. The name of a tar member is "<path>/<member>"; names that
/// begin with a dot are passed over. Damage of an archive that is not damage of one member comes as an empty document
/// named "<path>" that tells it by damage(). `on_read(bytes)`, when given, counts the bytes taken from the file. Throws
/// Error(kBadInput) when it cannot be opened or is empty.
using DocumentVisitor = std::function<void(const std::string& name, ByteSource& bytes)>;
void for_each_document(const std::filesystem::path& path, const DocumentVisitor& visit,
                       const std::function<void(std::int64_t)>& on_read = {});

/// Bytes in memory as a source, for tests and fuzzing.
std::unique_ptr<ByteSource> memory_source(std::string_view text);

/// A regular file mapped read-only.
class MappedFile {
 public:
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::string_view text() const { return {data_, size_}; }

 private:
  const char* data_ = nullptr;
  std::size_t size_ = 0;
};

/// The whole file, also of a pipe; Error(kBadInput) when it cannot be read.
std::string read_text_file(const std::filesystem::path& path);
/// Writes through a temporary file beside it and renames: a full disk or Ctrl-C never leaves half a file. A link stays
/// a link, permissions stay as they were, devices and pipes are written to directly.
void write_text_file(const std::filesystem::path& path, std::string_view text);

/// All of the rest of the source.
std::string read_all(ByteSource& source);

/// Files named by the arguments: a file stands for itself, a directory for all regular files below it but hidden ones,
/// a pattern with * ? [] for what it matches. Sorted by natural order (rank-2 before rank-10) within each argument,
/// duplicates removed. Throws Error(kBadInput) for an argument that names nothing.
std::vector<std::filesystem::path> expand_inputs(const std::vector<std::string>& arguments);

/// Compares names as people do: runs of digits by value.
bool natural_less(std::string_view a, std::string_view b);

}  // namespace paceline::base
