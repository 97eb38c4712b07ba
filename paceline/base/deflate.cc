#include "paceline/base/deflate.h"

#include <isa-l/igzip_lib.h>

#include <cstdint>
#include <vector>

#include "paceline/base/error.h"

namespace paceline::base {

struct Deflater::State {
  isal_zstream stream;
  std::vector<std::uint8_t> level_buffer;
};

Deflater::Deflater() : state_(std::make_unique<State>()) {
  isal_deflate_init(&state_->stream);
  state_->level_buffer.resize(ISAL_DEF_LVL3_DEFAULT);
  state_->stream.level = 3;
  state_->stream.level_buf = state_->level_buffer.data();
  state_->stream.level_buf_size = static_cast<std::uint32_t>(state_->level_buffer.size());
  state_->stream.gzip_flag = IGZIP_GZIP;
}

Deflater::~Deflater() = default;

void Deflater::add(std::string_view bytes, std::string& to) {
  run(bytes, false, to);
}

void Deflater::finish(std::string& to) {
  run({}, true, to);
}

void Deflater::run(std::string_view bytes, bool last, std::string& to) {
  constexpr std::size_t kPiece = 64 << 10, kMost = 1u << 30;
  isal_zstream& stream = state_->stream;
  do {
    const std::string_view part = bytes.substr(0, kMost);
    bytes.remove_prefix(part.size());
    stream.next_in = reinterpret_cast<std::uint8_t*>(const_cast<char*>(part.data()));  // only read
    stream.avail_in = static_cast<std::uint32_t>(part.size());
    stream.end_of_stream = last && bytes.empty() ? 1 : 0;
    do {
      const std::size_t begin = to.size();
      to.resize(begin + kPiece);
      stream.next_out = reinterpret_cast<std::uint8_t*>(to.data() + begin);
      stream.avail_out = kPiece;
      PL_CHECK(isal_deflate(&stream) == COMP_OK);
      to.resize(begin + kPiece - stream.avail_out);
    } while (stream.avail_out == 0 || (last && stream.internal_state.state != ZSTATE_END));
  } while (!bytes.empty());
}

}  // namespace paceline::base
