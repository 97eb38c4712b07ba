#include "paceline/base/json.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "paceline/base/error.h"
#include "paceline/base/file.h"

namespace paceline::base {

Json parse_json(std::string_view text, const std::string& where) {
  try {
    return Json::parse(text);
  } catch (const nlohmann::json::parse_error& fault) {
    const std::size_t at = std::min(fault.byte == 0 ? 0 : fault.byte - 1, text.size());  // counted from 1
    const std::string_view before = text.substr(0, at);
    const auto line = std::count(before.begin(), before.end(), '\n') + 1;
    const std::size_t column = at - (before.rfind('\n') + 1) + 1;
    throw Error(ErrorKind::kBadInput, fmt::format("{}:{}:{}", where, line, column),
                fmt::format("not valid JSON at byte {}; correct the file there", at));
  } catch (const nlohmann::json::exception& fault) {
    throw Error(ErrorKind::kBadInput, where, fmt::format("not usable JSON ({}); correct the file", fault.what()));
  }
}

Json read_json_file(const std::filesystem::path& path, std::string_view schema_name, int schema_version) {
  Json json = parse_json(read_text_file(path), path.string());
  const std::string expected = fmt::format("paceline/{}/", schema_name);
  const auto found = json.is_object() ? json.find("schema") : json.end();
  const std::string schema = found != json.end() && found->is_string() ? found->get<std::string>() : "";
  int version = 0;
  if (schema.starts_with(expected)) {
    const char* end = schema.data() + schema.size();
    const auto [stop, code] = std::from_chars(schema.data() + expected.size(), end, version);
    if (code != std::errc{} || stop != end) version = 0;
  }
  if (version < 1) {
    throw Error(ErrorKind::kBadInput, path.string(),
                fmt::format("schema is '{}', expected '{}{}'; give a file that Paceline wrote for this purpose", schema,
                            expected, schema_version));
  }
  if (version > schema_version) {
    throw Error(ErrorKind::kBadInput, path.string(),
                fmt::format("schema version {} is newer than {}, the newest this Paceline reads; update Paceline",
                            version, schema_version));
  }
  return json;
}

Json make_result(std::string_view schema_name, int schema_version) {
  Json json = Json::object();
  json["schema"] = fmt::format("paceline/{}/{}", schema_name, schema_version);
  return json;
}

std::string to_text(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace paceline::base
