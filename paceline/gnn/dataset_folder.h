#pragma once
#include <filesystem>

#include "paceline/gnn/dataset.h"

namespace paceline::gnn {

/// What `gnn import` writes: dataset.json (schema paceline/gnn-dataset/1), one graph file per relation, and labels,
/// train, validation and test as numpy arrays. Creates the folder.
void save_dataset(const std::filesystem::path& folder, const Dataset& dataset);

/// Maps such a folder, or imports anything else that import_dataset() understands (undirected, loops and duplicates
/// removed). Throws Error(kBadInput) naming the file.
Dataset open_dataset(const std::filesystem::path& path, Defects& defects);

}  // namespace paceline::gnn
