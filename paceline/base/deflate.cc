#include "paceline/base/deflate.h"

#include <isa-l/igzip_lib.h>

#include <vector>

#include "paceline/base/error.h"

namespace paceline::base {

std::string gzip(std::string_view plain) {
  constexpr std::size_t kPiece = 1u << 20;
  isal_zstream stream;
  isal_deflate_init(&stream);
  std::vector<std::uint8_t> work(ISAL_DEF_LVL3_DEFAULT);
  stream.level = 3;
  stream.level_buf = work.data();
  stream.level_buf_size = static_cast<std::uint32_t>(work.size());
  stream.gzip_flag = IGZIP_GZIP;
  std::string packed;
  std::string out(kPiece, '\0');
  std::size_t at = 0;
  do {  // in pieces: the library counts in 32 bits
    const std::size_t size = std::min(kPiece, plain.size() - at);
    // The interface is not const-correct; the input is only read.
    stream.next_in = reinterpret_cast<std::uint8_t*>(const_cast<char*>(plain.data() + at));
    stream.avail_in = static_cast<std::uint32_t>(size);
    at += size;
    stream.end_of_stream = at == plain.size() ? 1 : 0;
    do {
      stream.next_out = reinterpret_cast<std::uint8_t*>(out.data());
      stream.avail_out = kPiece;
      PL_CHECK(isal_deflate(&stream) == COMP_OK);
      packed.append(out, 0, kPiece - stream.avail_out);
    } while (stream.avail_out == 0);
  } while (at < plain.size());
  PL_CHECK(stream.internal_state.state == ZSTATE_END);
  return packed;
}

}  // namespace paceline::base
