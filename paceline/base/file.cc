#include "paceline/base/file.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <glob.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <unordered_set>

#include "paceline/base/error.h"

namespace paceline::base {
namespace fs = std::filesystem;
namespace {

[[noreturn]] void throw_errno(const fs::path& path, const char* action) {
  const int code = errno;
  const bool full = code == ENOSPC || code == EFBIG || code == EDQUOT;
  const bool system = full || code == EIO || code == EMFILE || code == ENFILE || code == ENOMEM || code == EROFS;
  const char* advice = full     ? "free some space"
                       : system ? "see the system's log"
                                : "check the path and its permissions";
  throw Error(system ? ErrorKind::kSystem : ErrorKind::kBadInput, path.string(),
              fmt::format("cannot {}: {}; {}", action, std::strerror(code), advice));
}

/// A file descriptor that closes itself; an error names the file that the caller asked for.
class Descriptor {
 public:
  Descriptor(const fs::path& path, int flags, const fs::path& asked_for, int mode = 0)
      : fd_(::open(path.c_str(), flags | O_CLOEXEC, mode)) {
    if (fd_ < 0) throw_errno(asked_for, (flags & O_ACCMODE) == O_RDONLY ? "open" : "write");
  }
  Descriptor(const fs::path& path, int flags) : Descriptor(path, flags, path) {}
  ~Descriptor() { ::close(fd_); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

class MemorySource final : public ByteSource {
 public:
  explicit MemorySource(std::string_view text) : left_(text) {}
  std::size_t read(std::span<char> to) override {
    const std::size_t count = std::min(to.size(), left_.size());
    std::memcpy(to.data(), left_.data(), count);
    left_.remove_prefix(count);
    return count;
  }

 private:
  std::string_view left_;
};

}  // namespace

std::unique_ptr<ByteSource> memory_source(std::string_view text) {
  return std::make_unique<MemorySource>(text);
}

MappedFile::MappedFile(const fs::path& path) {
  const Descriptor file(path, O_RDONLY);
  struct stat status{};
  if (::fstat(file.get(), &status) != 0) throw_errno(path, "read");
  size_ = static_cast<std::size_t>(status.st_size);
  if (!S_ISREG(status.st_mode)) throw Error(ErrorKind::kBadInput, path.string(), "is no regular file, expected one");
  if (size_ == 0) return;
  void* mapped = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (mapped == MAP_FAILED) throw_errno(path, "map");
  data_ = static_cast<const char*>(mapped);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<char*>(data_), size_);
}

std::string read_text_file(const fs::path& path) {
  const Descriptor file(path, O_RDONLY);
  std::string text;
  struct stat status{};
  if (::fstat(file.get(), &status) == 0 && S_ISREG(status.st_mode)) {
    text.reserve(static_cast<std::size_t>(status.st_size) + 1);
  }
  for (std::size_t size = 0;;) {
    constexpr std::size_t kLeast = 4096;
    text.resize(std::max(text.capacity(), size + kLeast));
    const ssize_t count = ::read(file.get(), text.data() + size, text.size() - size);
    if (count < 0 && errno != EINTR) throw_errno(path, "read");
    if (count > 0) size += static_cast<std::size_t>(count);
    text.resize(size);
    if (count == 0) return text;
  }
}

namespace {
void write_all(int file, const fs::path& path, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(file, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) throw_errno(path, "write");
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}
}  // namespace

void write_text_file(const fs::path& path, std::string_view text) {
  struct stat status{};
  const bool exists = ::stat(path.c_str(), &status) == 0;
  if (exists && !S_ISREG(status.st_mode)) {  // a device or a pipe has no old contents to keep
    const Descriptor file(path, O_WRONLY);
    write_all(file.get(), path, text);
    return;
  }
  std::error_code failure;
  fs::path target = exists ? fs::canonical(path, failure) : path;
  if (failure) target = path;
  const fs::path temporary = target.string() + fmt::format(".tmp{}", ::getpid());
  try {
    const Descriptor file(temporary, O_WRONLY | O_CREAT | O_TRUNC, path, 0666);
    write_all(file.get(), path, text);
    if (exists && ::fchmod(file.get(), status.st_mode & 07777) != 0) throw_errno(path, "keep the permissions");
    if (::fsync(file.get()) != 0 && errno != EINVAL) throw_errno(path, "write");
    if (::rename(temporary.c_str(), target.c_str()) != 0) throw_errno(path, "write");
  } catch (...) {
    ::unlink(temporary.c_str());
    throw;
  }
}

std::string read_all(ByteSource& source) {
  std::string text;
  std::size_t size = 0;
  do {
    text.resize(std::max<std::size_t>(64 * 1024, size * 2));
    while (size < text.size()) {
      const std::size_t count = source.read({text.data() + size, text.size() - size});
      if (count == 0) {
        text.resize(size);
        return text;
      }
      size += count;
    }
  } while (true);
}

bool natural_less(std::string_view a, std::string_view b) {
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  std::size_t i = 0, j = 0;
  while (i < a.size() && j < b.size()) {
    if (is_digit(a[i]) && is_digit(b[j])) {
      const auto number = [&](std::string_view text, std::size_t& at) {
        while (at < text.size() && text[at] == '0') ++at;
        const std::size_t begin = at;
        while (at < text.size() && is_digit(text[at])) ++at;
        return text.substr(begin, at - begin);
      };
      const std::string_view left = number(a, i), right = number(b, j);
      if (left.size() != right.size()) return left.size() < right.size();
      if (left != right) return left < right;
    } else if (a[i] != b[j]) {
      return a[i] < b[j];
    } else {
      ++i, ++j;
    }
  }
  if ((i < a.size()) != (j < b.size())) return j < b.size();
  return a < b;  // equal but for leading zeros
}

namespace {
std::vector<fs::path> matches(const std::string& pattern) {
  std::vector<fs::path> found;
  glob_t result{};
  if (::glob(pattern.c_str(), GLOB_NOSORT, nullptr, &result) == 0) {
    for (std::size_t i = 0; i < result.gl_pathc; ++i) found.emplace_back(result.gl_pathv[i]);
  }
  ::globfree(&result);
  return found;
}

void add_files(const fs::path& path, std::vector<fs::path>& files) {
  std::error_code failure;
  if (!fs::is_directory(path, failure)) {
    files.push_back(path);
    return;
  }
  // A folder that cannot be listed is an error: its files could be half of the job.
  auto entry = fs::recursive_directory_iterator(path, failure);
  for (; !failure && entry != fs::recursive_directory_iterator(); entry.increment(failure)) {
    const bool hidden = entry->path().filename().string().starts_with(".");
    if (hidden) entry.disable_recursion_pending();
    std::error_code unknown;
    if (!hidden && entry->is_regular_file(unknown)) files.push_back(entry->path());
  }
  if (failure) {
    throw Error(ErrorKind::kBadInput, path.string(),
                fmt::format("cannot list this folder and all below it: {}; check its permissions", failure.message()));
  }
}
}  // namespace

std::vector<fs::path> expand_inputs(const std::vector<std::string>& arguments) {
  std::vector<fs::path> all;
  std::unordered_set<std::string> seen;
  for (const std::string& argument : arguments) {
    std::vector<fs::path> files;
    std::error_code unknown;
    if (fs::exists(argument, unknown)) {
      add_files(argument, files);
      if (files.empty()) throw Error(ErrorKind::kBadInput, argument, "the directory holds no files; give another one");
    } else {
      const bool pattern = argument.find_first_of("*?[") != std::string::npos;
      if (pattern) {
        for (const fs::path& match : matches(argument)) add_files(match, files);
      }
      if (files.empty()) {
        throw Error(
            ErrorKind::kBadInput, argument,
            pattern ? "no file matches this pattern; check the path" : "no such file or directory; check the path");
      }
    }
    std::sort(files.begin(), files.end(),
              [](const fs::path& a, const fs::path& b) { return natural_less(a.native(), b.native()); });
    for (fs::path& file : files) {
      if (seen.insert(file.lexically_normal().native()).second) all.push_back(std::move(file));
    }
  }
  return all;
}

}  // namespace paceline::base
