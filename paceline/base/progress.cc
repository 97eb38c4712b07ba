#include "paceline/base/progress.h"

#include <fmt/core.h>
#include <unistd.h>

#include <cstdio>

namespace paceline::base {
namespace {
std::int64_t now_ns() {
  return std::chrono::steady_clock::now().time_since_epoch().count();
}
}  // namespace

Progress::Progress(std::string label, std::int64_t total)
    : label_(std::move(label)), total_(total), shown_(isatty(STDERR_FILENO) == 1) {}

Progress::~Progress() {
  if (shown_) fmt::print(stderr, "\r\x1b[K");
}

void tell_terminal(std::string_view line) {
  if (isatty(STDERR_FILENO) == 1) fmt::print(stderr, "\r\x1b[K{}\n", line);
}

void Progress::advance(std::int64_t amount) {
  done_ += amount;
  if (!shown_) return;
  std::int64_t due = next_draw_ns_;
  const std::int64_t now = now_ns();
  if (now >= due && next_draw_ns_.compare_exchange_strong(due, now + 100'000'000)) draw();
}

void Progress::draw() {
  const std::lock_guard lock(drawing_);
  if (total_ > 0) {
    const double part = static_cast<double>(done_) / static_cast<double>(total_);
    fmt::print(stderr, "\r\x1b[K{} {:3.0f} %", label_, 100.0 * (part < 1.0 ? part : 1.0));
  } else {
    fmt::print(stderr, "\r\x1b[K{} {}", label_, done_.load());
  }
  std::fflush(stderr);
}

}  // namespace paceline::base
