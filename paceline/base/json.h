#pragma once
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace paceline::base {

/// Small documents only (results, plans, configuration); keys keep the order in which they were written.
using Json = nlohmann::ordered_json;

/// Parses text; `where` names it in the error, which gives line, column and byte.
Json parse_json(std::string_view text, const std::string& where);

/// Reads a file that must carry `"schema": "paceline/<name>/<version>"` with a version up to the one given.
/// Throws Error(kBadInput) that names both versions when the file is newer.
Json read_json_file(const std::filesystem::path& path, std::string_view schema_name, int schema_version);

/// An object that starts with its schema line.
Json make_result(std::string_view schema_name, int schema_version);

/// Two-space indentation, a newline at the end; invalid UTF-8 is replaced.
std::string to_text(const Json& json);

}  // namespace paceline::base
