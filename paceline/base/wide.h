#pragma once

namespace paceline::base {

/// The full product of two 64-bit numbers. Both reference compilers have it on 64-bit machines; ISO C++ does not.
__extension__ typedef unsigned __int128 Wide;

}  // namespace paceline::base
