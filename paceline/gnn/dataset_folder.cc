#include "paceline/gnn/dataset_folder.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "paceline/base/error.h"
#include "paceline/base/json.h"
#include "paceline/gnn/graph_file.h"
#include "paceline/gnn/npy.h"

namespace paceline::gnn {
namespace fs = std::filesystem;
namespace {

constexpr const char* kSchema = "gnn-dataset";
constexpr int kSchemaVersion = 1;

std::vector<std::int64_t> as_integers(const std::vector<std::uint64_t>& ids) {
  return {ids.begin(), ids.end()};
}

std::vector<std::uint64_t> read_ids(const fs::path& path) {
  const base::MappedFile file(path);
  return npy_ids(parse_npy(file.text(), path.string()));
}

/// A file name inside the folder, never one that leads out of it.
fs::path inside(const fs::path& folder, const std::string& name) {
  if (name.empty() || name.find('/') != std::string::npos || name == "..")
    throw Error(ErrorKind::kBadInput, (folder / "dataset.json").string(),
                fmt::format("names file '{}', expected one in the same folder", name));
  return folder / name;
}

}  // namespace

void save_dataset(const fs::path& folder, const Dataset& dataset) {
  fs::create_directories(folder);
  base::Json json = base::make_result(kSchema, kSchemaVersion);
  json["name"] = dataset.name;
  json["node_types"] = base::Json::array();
  for (const NodeType& type : dataset.node_types)
    json["node_types"].push_back({{"name", type.name}, {"count", type.count}});
  json["relations"] = base::Json::array();
  for (std::size_t r = 0; r < dataset.relations.size(); ++r) {
    const Relation& relation = dataset.relations[r];
    const std::string file = fmt::format("relation{}.graph", r);
    write_graph(folder / file, relation.graph);
    json["relations"].push_back(
        {{"source", relation.source}, {"name", relation.name}, {"target", relation.target}, {"file", file}});
  }
  const auto save = [&](const char* key, const std::vector<std::int64_t>& values) {
    if (values.empty()) return;
    const std::string file = fmt::format("{}.npy", key);
    write_npy(folder / file, values);
    json[key] = file;
  };
  save("labels", dataset.labels);
  save("train", as_integers(dataset.train));
  save("validation", as_integers(dataset.validation));
  save("test", as_integers(dataset.test));
  base::write_text_file(folder / "dataset.json", base::to_text(json));
}

Dataset open_dataset(const fs::path& path, Defects& defects) {
  if (!fs::exists(path / "dataset.json")) {
    ImportOptions options;
    options.build = {.symmetric = true, .drop_self_loops = true, .merge_duplicates = true};
    return import_dataset(path, options, defects);
  }
  const fs::path file = path / "dataset.json";
  const base::Json json = base::read_json_file(file, kSchema, kSchemaVersion);
  Dataset dataset;
  try {
    dataset.name = json.at("name").get<std::string>();
    for (const base::Json& type : json.at("node_types"))
      dataset.node_types.push_back({type.at("name").get<std::string>(), type.at("count").get<std::uint64_t>()});
    for (const base::Json& relation : json.at("relations"))
      dataset.relations.push_back({relation.at("source").get<std::string>(), relation.at("name").get<std::string>(),
                                   relation.at("target").get<std::string>(),
                                   open_graph(inside(path, relation.at("file").get<std::string>()))});
    if (json.contains("labels")) {
      const fs::path labels = inside(path, json["labels"].get<std::string>());
      const base::MappedFile bytes(labels);
      dataset.labels = npy_integers(parse_npy(bytes.text(), labels.string()));
    }
    const auto load = [&](const char* key, std::vector<std::uint64_t>& ids) {
      if (json.contains(key)) ids = read_ids(inside(path, json[key].get<std::string>()));
    };
    load("train", dataset.train);
    load("validation", dataset.validation);
    load("test", dataset.test);
  } catch (const nlohmann::json::exception& error) {
    throw Error(ErrorKind::kBadInput, file.string(),
                fmt::format("is not a dataset: {}; import it again", error.what()));
  }
  if (dataset.relations.empty() || dataset.node_types.empty())
    throw Error(ErrorKind::kBadInput, file.string(), "has no relation; import it again");
  const std::uint64_t rows = dataset.graph().rows();
  for (const auto* ids : {&dataset.train, &dataset.validation, &dataset.test})
    for (const std::uint64_t id : *ids)
      if (id >= rows)
        throw Error(ErrorKind::kBadInput, file.string(),
                    fmt::format("a split names node {}, the graph has {}", id, rows));
  return dataset;
}

}  // namespace paceline::gnn
