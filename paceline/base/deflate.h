#pragma once
#include <string>
#include <string_view>

namespace paceline::base {

/// `plain` as one gzip member, by ISA-L. O(bytes).
std::string gzip(std::string_view plain);

}  // namespace paceline::base
