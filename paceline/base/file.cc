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
  const bool system = code == EIO || code == ENOSPC || code == EMFILE || code == ENOMEM;
  throw Error(system ? ErrorKind::kSystem : ErrorKind::kBadInput, path.string(),
              fmt::format("cannot {}: {}", action, std::strerror(code)));
}

/// A file descriptor that closes itself.
class Descriptor {
 public:
  Descriptor(const fs::path& path, int flags, int mode = 0) : fd_(::open(path.c_str(), flags | O_CLOEXEC, mode)) {
    if (fd_ < 0) throw_errno(path, (flags & O_CREAT) ? "write" : "open");
  }
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
  if (size_ == 0) return;
  void* mapped = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (mapped == MAP_FAILED) throw_errno(path, "map");
  data_ = static_cast<const char*>(mapped);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<char*>(data_), size_);
}

std::string read_text_file(const fs::path& path) {
  if (fs::is_directory(path)) throw Error(ErrorKind::kBadInput, path.string(), "is a directory, expected a file");
  return std::string(MappedFile(path).text());
}

bool may_replace(const fs::path& path) {
  std::error_code unknown;
  const fs::file_status status = fs::status(path, unknown);
  return !fs::exists(status) || fs::is_regular_file(status) || fs::is_directory(status);
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
  if (!may_replace(path)) {
    const Descriptor device(path, O_WRONLY, 0);
    write_all(device.get(), path, text);
    return;
  }
  const fs::path temporary = path.string() + fmt::format(".tmp{}", ::getpid());
  try {
    const Descriptor file(temporary, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    write_all(file.get(), path, text);
    if (::rename(temporary.c_str(), path.c_str()) != 0) throw_errno(path, "write");
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
  if (!fs::is_directory(path)) {
    files.push_back(path);
    return;
  }
  std::error_code failure;
  for (auto entry = fs::recursive_directory_iterator(path, fs::directory_options::skip_permission_denied, failure);
       entry != fs::recursive_directory_iterator(); entry.increment(failure)) {
    if (failure) throw Error(ErrorKind::kBadInput, path.string(), "cannot list: " + failure.message());
    const bool hidden = entry->path().filename().string().starts_with(".");
    if (!hidden && entry->is_regular_file()) files.push_back(entry->path());
  }
  if (failure) throw Error(ErrorKind::kBadInput, path.string(), "cannot list: " + failure.message());
}
}  // namespace

std::vector<fs::path> expand_inputs(const std::vector<std::string>& arguments) {
  std::vector<fs::path> all;
  std::unordered_set<std::string> seen;
  for (const std::string& argument : arguments) {
    std::vector<fs::path> files;
    if (fs::exists(argument)) {
      add_files(argument, files);
      if (files.empty()) throw Error(ErrorKind::kBadInput, argument, "the directory holds no files");
    } else {
      for (const fs::path& match : matches(argument)) add_files(match, files);
      if (files.empty()) {
        const bool pattern = argument.find_first_of("*?[") != std::string::npos;
        throw Error(ErrorKind::kBadInput, argument,
                    pattern ? "no file matches this pattern" : "no such file or directory; check the path");
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
