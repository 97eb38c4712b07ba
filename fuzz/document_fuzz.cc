// Any bytes as a file: plain, compressed, an archive, damaged. Only an Error that is no bug may come out.
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "paceline/base/error.h"
#include "paceline/base/file.h"

namespace {
constexpr std::size_t kEnough = 16 << 20;  // of what a small file may expand to

void visit_all(const std::string& path) {
  std::size_t total = 0;
  paceline::base::for_each_document(path, [&](const std::string& name, paceline::base::ByteSource& source) {
    PL_CHECK(name.starts_with(path));
    std::array<char, 4096> part;
    while (const std::size_t count = source.read(part)) {
      PL_CHECK(count <= part.size());
      total += count;
      if (total > kEnough) throw paceline::Error(paceline::ErrorKind::kBadInput, name, "enough");
    }
    PL_CHECK(source.read(part) == 0);  // the end stays the end
  });
}
}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  static const int file = memfd_create("document", MFD_CLOEXEC);
  static const std::string path = "/proc/self/fd/" + std::to_string(file);
  if (file < 0 || ftruncate(file, 0) != 0 || pwrite(file, bytes, size, 0) != static_cast<ssize_t>(size)) std::abort();
  try {
    visit_all(path);
  } catch (const paceline::Error& error) {
    if (error.kind() == paceline::ErrorKind::kBug) throw;
  }
  return 0;
}
