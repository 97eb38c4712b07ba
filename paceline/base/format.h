#pragma once
#include <string>

#include "paceline/base/units.h"

namespace paceline::base {

/// "1.23 ms", "45.6 us": three significant digits and the unit that fits.
std::string format_time(Nanos time);
/// "53.7 MB": decimal units.
std::string format_bytes(Bytes bytes);
/// "1,234,567"
std::string format_count(std::int64_t count);
/// "3.14 %" of a share in [0, 1].
std::string format_percent(double share, int decimals = 1);

}  // namespace paceline::base
