#pragma once
#include <memory>
#include <string>
#include <string_view>

namespace paceline::base {

/// Packs bytes that come in pieces into one gzip member. The same bytes in give the same bytes out, whatever the
/// pieces.
class Deflater {
 public:
  Deflater();
  ~Deflater();

  /// Appends what is packed so far of `bytes` to `to`.
  void add(std::string_view bytes, std::string& to);
  /// Appends the rest and the checksum; nothing may be added afterwards.
  void finish(std::string& to);

 private:
  struct State;
  void run(std::string_view bytes, bool last, std::string& to);
  std::unique_ptr<State> state_;
};

}  // namespace paceline::base
