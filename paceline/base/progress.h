#pragma once
#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>

namespace paceline::base {

/// A progress line on standard error, only when that is a terminal. Thread-safe; redraws at most ten times a second.
class Progress {
 public:
  /// `total` in the unit of advance(); 0 when unknown.
  Progress(std::string label, std::int64_t total);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void advance(std::int64_t amount);

 private:
  void draw();

  std::string label_;
  std::int64_t total_;
  bool shown_;
  std::atomic<std::int64_t> done_{0};
  std::atomic<std::int64_t> next_draw_ns_{0};
  std::mutex drawing_;
};

/// A line that stays, in the place of a progress line that is not being drawn. Only when standard error is a terminal.
void tell_terminal(std::string_view line);

}  // namespace paceline::base
