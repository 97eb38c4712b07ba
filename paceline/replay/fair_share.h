#pragma once
#include <cstdint>
#include <vector>

namespace paceline::replay {

/// Clients that share a server: of n each gets 1/n of its speed. Exact for up to 16 clients at once: work is counted in
/// units of 1/720720 ns, the least that 1 to 16 divide; a client is done at the first whole ns at which nothing is
/// left.
class FairShare {
  __extension__ using Units = __int128;

 public:
  /// Lets time pass up to `now`.
  void advance(std::int64_t now) {
    if (!left_.empty()) {
      const Units done = static_cast<Units>(now - now_) * rate();
      for (Units& left : left_) left -= done;
    }
    now_ = now;
  }
  /// A client of `work` ns alone; it gets the last slot.
  void add(std::int64_t work) { left_.push_back(static_cast<Units>(work) * kUnits); }

  /// When the first of them is done, if nobody comes or goes. There is one.
  std::int64_t next_end() const {
    Units least = left_.front();
    for (const Units left : left_) least = left < least ? left : least;
    return now_ + (least <= 0 ? 0 : static_cast<std::int64_t>((least + rate() - 1) / rate()));
  }

  /// Slots of those that are done, which leave; the others move up.
  std::vector<std::size_t> take_done() {
    std::vector<std::size_t> done;
    std::size_t kept = 0;
    for (std::size_t i = 0; i < left_.size(); ++i) {
      if (left_[i] <= 0) {
        done.push_back(i);
      } else {
        left_[kept++] = left_[i];
      }
    }
    left_.resize(kept);
    return done;
  }

 private:
  static constexpr std::int64_t kUnits = 720'720;
  std::int64_t rate() const { return kUnits / static_cast<std::int64_t>(left_.size()); }

  std::vector<Units> left_;
  std::int64_t now_ = 0;
};

}  // namespace paceline::replay
