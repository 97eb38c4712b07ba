#include "paceline/gnn/data_plan.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <numeric>

#include "paceline/base/error.h"
#include "paceline/base/file.h"
#include "paceline/gnn/dataset_folder.h"
#include "paceline/gnn/generate.h"

namespace paceline::gnn {
namespace {
namespace fs = std::filesystem;

Dataset small() {
  Dataset dataset;
  dataset.name = "blocks";
  dataset.node_types = {{"node", 3000}};
  dataset.relations.push_back({"node", "edge", "node", block_model({.nodes = 3000, .blocks = 30}, 1, &dataset.labels)});
  dataset.train.resize(1500);
  std::iota(dataset.train.begin(), dataset.train.end(), 0);
  dataset.test = {2999};
  return dataset;
}

TEST(DataPlan, MoreMemoryNeverReadsMore) {
  const Dataset dataset = small();
  double last = 1e300;
  for (const std::uint64_t rows : {0, 100, 300, 1000, 5000}) {
    const DataPlan plan =
        plan_data(dataset, {.fanout = {5, 5}, .batch = 50, .feature_row_bytes = 64, .memory_bytes = rows * 64});
    EXPECT_LE(plan.policies[0].missed_rows_per_batch, last);
    EXPECT_GE(plan.policies.front().hit_ratio, plan.policies.back().hit_ratio);
    EXPECT_GT(plan.batches_per_s, 0);
    last = plan.policies[0].missed_rows_per_batch;
  }
  EXPECT_EQ(last, 0);
}

TEST(DatasetFolder, ComesBackAndNamesWhatIsDamaged) {
  const fs::path folder = fs::temp_directory_path() / ("paceline_gnn_folder_" + std::to_string(::getpid()));
  const Dataset dataset = small();
  save_dataset(folder, dataset);
  Defects defects;
  const Dataset back = open_dataset(folder, defects);
  EXPECT_EQ(back.labels, dataset.labels);
  EXPECT_EQ(back.train, dataset.train);
  EXPECT_EQ(back.test, dataset.test);
  EXPECT_TRUE(std::ranges::equal(back.graph().narrow_rows().neighbours, dataset.graph().narrow_rows().neighbours));
  const std::string json = base::read_text_file(folder / "dataset.json");
  const auto error_with = [&](const std::string& from, const std::string& to) -> std::string {
    std::string changed = json;
    changed.replace(changed.find(from), from.size(), to);
    base::write_text_file(folder / "dataset.json", changed);
    try {
      open_dataset(folder, defects);
    } catch (const Error& error) {
      return error.what();
    }
    return "none";
  };
  EXPECT_NE(error_with("relation0.graph", "../secret").find("expected one in the same folder"), std::string::npos);
  EXPECT_NE(error_with("\"node_types\"", "\"other\"").find("is not a dataset"), std::string::npos);
  EXPECT_NE(error_with("gnn-dataset/1", "gnn-dataset/9").find("9"), std::string::npos);
  EXPECT_NE(error_with("relation0.graph", "absent.graph").find("absent.graph"), std::string::npos);
  fs::remove_all(folder);
}

}  // namespace
}  // namespace paceline::gnn
