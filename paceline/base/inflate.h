#pragma once
#include <memory>

#include "paceline/base/file.h"

namespace paceline::base {

/// The plain bytes of a gzip stream, also of several members one after the other. After damage or a cut, everything
/// inflated before it has been delivered and damage() names the byte of `inner`. `inner` outlives the source.
std::unique_ptr<ByteSource> gzip_source(ByteSource& inner);

/// The same for zstd frames.
std::unique_ptr<ByteSource> zstd_source(ByteSource& inner);

}  // namespace paceline::base
