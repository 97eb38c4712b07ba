#pragma once
#include <string>
#include <string_view>

#include "paceline/base/json.h"

namespace paceline::trace::flight_recorder {

/// A pickle (protocols 2 to 5) of plain data as JSON: dict, list, tuple (as list), str, bytes (as text), int, float,
/// bool, None; keys that are no strings become their JSON text. It executes nothing: any other opcode, such as those
/// that name or call a class, is refused with its byte. Throws Error(kBadInput) that names `where`.
base::Json parse_pickle(std::string_view bytes, const std::string& where);

}  // namespace paceline::trace::flight_recorder
