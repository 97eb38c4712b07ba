#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>

#include "cli/command.h"
#include "cli/output.h"
#include "paceline/base/error.h"
#include "paceline/base/format.h"
#include "paceline/base/json.h"
#include "paceline/base/table.h"
#include "paceline/gnn/data_plan.h"
#include "paceline/gnn/dataset_folder.h"
#include "paceline/gnn/partition.h"
#include "paceline/gnn/sampler.h"

namespace paceline::cli {
namespace {

struct GnnOptions {
  std::string input;
  std::string output;
  bool json = false;
  std::uint64_t seed = 1;
  bool directed = false;
  bool keep_loops = false;
  bool one_based = false;
  std::string time_unit = "s";
  std::vector<int> fanout{15, 10, 5};
  std::uint64_t batch = 1024;
  std::uint64_t row_bytes = 512;
  std::uint64_t memory = 0;
  double disk_rows = 40'000;
  int parts = 4;
  std::string method = "multilevel";
  std::string dgl_config;
  bool replace = false;
  std::string sampler = "uniform";
};

/// Prints what was wrong with the input; 6 when something was left out.
int report_defects(const gnn::Defects& defects) {
  for (const gnn::Defect& defect : defects.rows())
    fmt::print(stderr, "paceline: {}: {} x {}{}\n", defect.first, defect.count, defect.kind,
               defect.lost ? ", left out" : "");
  return defects.damaged() ? static_cast<int>(ErrorKind::kDamagedInput) : 0;
}

int run_import(const GnnOptions& options) {
  gnn::Defects defects;
  gnn::ImportOptions import;
  import.build.symmetric = import.build.merge_duplicates = !options.directed;
  import.build.drop_self_loops = !options.keep_loops;
  import.text.one_based = options.one_based;
  import.text.time_unit = options.time_unit == "ns"   ? gnn::TimeUnit::kNanoseconds
                          : options.time_unit == "us" ? gnn::TimeUnit::kMicroseconds
                          : options.time_unit == "ms" ? gnn::TimeUnit::kMilliseconds
                                                      : gnn::TimeUnit::kSeconds;
  const gnn::Dataset dataset = gnn::import_dataset(options.input, import, defects);
  gnn::save_dataset(options.output, dataset);
  base::Json json = base::make_result("gnn-import", 1);
  std::string text = fmt::format("{}: wrote {}\n", dataset.name, options.output);
  for (const gnn::Relation& relation : dataset.relations) {
    json["relations"].push_back({{"source", relation.source},
                                 {"name", relation.name},
                                 {"target", relation.target},
                                 {"rows", relation.graph.rows()},
                                 {"columns", relation.graph.columns()},
                                 {"edges", relation.graph.edges()}});
    text += fmt::format("  {}:{}:{}  {} nodes, {} edges\n", relation.source, relation.name, relation.target,
                        base::format_count(static_cast<std::int64_t>(relation.graph.rows())),
                        base::format_count(static_cast<std::int64_t>(relation.graph.edges())));
  }
  json["train"] = dataset.train.size();
  json["labels"] = dataset.labels.size();
  text += fmt::format("  {} labels, {} training nodes\n", dataset.labels.size(), dataset.train.size());
  json["defects"] = base::Json::array();
  for (const gnn::Defect& defect : defects.rows())
    json["defects"].push_back(
        {{"kind", defect.kind}, {"count", defect.count}, {"first", defect.first}, {"lost", defect.lost}});
  print_result(options.json ? base::to_text(json) : text);
  return report_defects(defects);
}

int run_plan(const GnnOptions& options) {
  gnn::Defects defects;
  const gnn::Dataset dataset = gnn::open_dataset(options.input, defects);
  const gnn::DataPlan plan = gnn::plan_data(dataset, {.fanout = options.fanout,
                                                      .batch = options.batch,
                                                      .feature_row_bytes = options.row_bytes,
                                                      .memory_bytes = options.memory,
                                                      .disk_rows_per_s = options.disk_rows,
                                                      .seed = options.seed});
  const auto& chosen = plan.order.tried[plan.order.best];
  const auto order_name = [](const gnn::OrderChoice::Candidate& each) {
    return each.size == 0 ? std::string("random")
                          : fmt::format("{} {}", each.pieces ? "balanced pieces of" : "BFS sequences:", each.size);
  };
  base::Json json = base::make_result("gnn-plan", 1);
  json["order"] = {{"name", order_name(chosen)},
                   {"inputs_against_random", chosen.inputs},
                   {"label_distance_against_random", chosen.distance}};
  json["cached_rows"] = plan.cached_rows;
  json["inputs_per_batch"] = plan.inputs_per_batch;
  for (const auto& policy : plan.policies)
    json["policies"].push_back({{"name", policy.name},
                                {"hit_ratio", policy.hit_ratio},
                                {"missed_rows_per_batch", policy.missed_rows_per_batch}});
  json["sample_seconds_per_batch"] = plan.sample_seconds_per_batch;
  json["read_seconds_per_batch"] = plan.read_seconds_per_batch;
  json["batches_per_s"] = plan.batches_per_s;
  json["epoch_seconds"] = plan.epoch_seconds;
  json["bound"] = plan.bound;
  std::string text =
      fmt::format("order    {}: {:.0f} % of random order's inputs per batch at {:.2f} x its label distance\n",
                  order_name(chosen), 100 * chosen.inputs, chosen.distance);
  text += fmt::format("inputs   {:.0f} different nodes per batch of {}, {} rows fit the memory\n",
                      plan.inputs_per_batch, options.batch, plan.cached_rows);
  base::Table table;
  table.add_column("cache policy", base::Table::Align::kLeft);
  table.add_column("hits");
  table.add_column("rows read per batch");
  for (const auto& policy : plan.policies)
    table.add_row(
        {policy.name, base::format_percent(policy.hit_ratio), fmt::format("{:.0f}", policy.missed_rows_per_batch)});
  text += table.to_string();
  text += fmt::format(
      "forecast {:.1f} batches/s, epoch {:.2f} s without training, bound by {} (disk taken as {:.0f} rows/s, {} "
      "sampled batches)\n",
      plan.batches_per_s, plan.epoch_seconds, plan.bound, options.disk_rows, plan.sampled_batches);
  print_result(options.json ? base::to_text(json) : text);
  return report_defects(defects);
}

int run_partition(const GnnOptions& options) {
  static const std::map<std::string, gnn::PartitionMethod> methods{{"multilevel", gnn::PartitionMethod::kMultilevel},
                                                                   {"streaming", gnn::PartitionMethod::kStreaming},
                                                                   {"blocks", gnn::PartitionMethod::kBlocks},
                                                                   {"metis", gnn::PartitionMethod::kMetis},
                                                                   {"random", gnn::PartitionMethod::kRandom}};
  gnn::Defects defects;
  const gnn::Dataset dataset = gnn::open_dataset(options.input, defects);
  std::vector<std::uint8_t> is_train(dataset.train.empty() ? 0 : dataset.node_types[0].count, 0);
  for (const std::uint64_t v : dataset.train) is_train[v] = 1;
  const auto part = gnn::partition(
      dataset.graph(), is_train, {.parts = options.parts, .method = methods.at(options.method), .seed = options.seed});
  const std::string output =
      options.output.empty() ? fmt::format("{}.part.{}", dataset.name, options.parts) : options.output;
  gnn::write_metis_parts(output, part);
  if (!options.dgl_config.empty())
    gnn::write_dgl_config(options.dgl_config, dataset.graph(), part, options.parts, dataset.name, options.method);
  const gnn::PartitionQuality quality =
      gnn::partition_quality(dataset.graph(), part, options.parts, is_train, options.fanout);
  base::Json json = base::make_result("gnn-partition", 1);
  json["file"] = output;
  json["cut"] = quality.cut;
  json["edges"] = quality.edges;
  json["cross_requests"] = quality.cross_requests;
  json["node_imbalance"] = quality.node_imbalance;
  json["train_imbalance"] = quality.train_imbalance;
  const double share = quality.edges == 0 ? 0 : static_cast<double>(quality.cut) / static_cast<double>(quality.edges);
  const std::string text = fmt::format(
      "{} parts in {}\n  cut {} of {} edges ({}), {} of sampling requests cross parts\n  largest part {:.3f} x the "
      "mean, of training nodes {:.3f} x\n",
      options.parts, output, quality.cut, quality.edges, base::format_percent(share),
      base::format_percent(quality.cross_requests), quality.node_imbalance, quality.train_imbalance);
  print_result(options.json ? base::to_text(json) : text);
  return report_defects(defects);
}

int run_order(const GnnOptions& options) {
  gnn::Defects defects;
  gnn::Dataset dataset = gnn::open_dataset(options.input, defects);
  if (dataset.train.empty())
    dataset.train.resize(dataset.graph().rows()), std::iota(dataset.train.begin(), dataset.train.end(), 0);
  const std::size_t batch = std::min<std::size_t>(options.batch, dataset.train.size());
  const gnn::OrderChoice choice =
      gnn::choose_order(dataset.graph(), dataset.train, dataset.labels, batch, options.fanout, 1.5, options.seed);
  if (!options.output.empty())
    gnn::write_sequences(options.output,
                         std::vector<gnn::Order>{gnn::cluster_sequence(dataset.graph(), dataset.train, options.seed)});
  base::Json json = base::make_result("gnn-order", 1);
  base::Table table;
  table.add_column("order", base::Table::Align::kLeft);
  table.add_column("inputs per batch");
  table.add_column("label distance");
  table.add_column("", base::Table::Align::kLeft);
  for (std::size_t i = 0; i < choice.tried.size(); ++i) {
    const auto& each = choice.tried[i];
    const std::string name =
        each.size == 0 ? "random"
                       : fmt::format("{} {}", each.pieces ? "balanced pieces of" : "BFS sequences:", each.size);
    json["tried"].push_back({{"name", name}, {"inputs", each.inputs}, {"distance", each.distance}});
    table.add_row({name, fmt::format("{:.2f} x", each.inputs), fmt::format("{:.2f} x", each.distance),
                   i == choice.best ? "chosen" : ""});
  }
  json["best"] = choice.best;
  print_result(options.json
                   ? base::to_text(json)
                   : table.to_string() + "  against random order; a label distance of at most 1.5 x is allowed\n");
  return report_defects(defects);
}

int run_sample(const GnnOptions& options) {
  gnn::Defects defects;
  gnn::Dataset dataset = gnn::open_dataset(options.input, defects);
  if (dataset.train.empty())
    dataset.train.resize(dataset.graph().rows()), std::iota(dataset.train.begin(), dataset.train.end(), 0);
  gnn::SampleOptions sampling{.fanout = options.fanout, .replace = options.replace, .seed = options.seed};
  if (options.sampler == "labor") sampling.method = gnn::Method::kLabor;
  if (options.sampler == "weighted") sampling.method = gnn::Method::kWeighted;
  if (options.sampler == "layer") sampling.method = gnn::Method::kLayer;
  const gnn::Order order = gnn::random_order(dataset.train, 0, options.seed);
  const std::size_t batches = (order.size() + options.batch - 1) / options.batch;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> sizes(batches);
  const auto start = std::chrono::steady_clock::now();
  dataset.graph().visit([&](const auto& rows) {
    using Node = std::remove_cvref_t<decltype(rows.neighbours[0])>;
    const std::vector<Node> seeds(order.begin(), order.end());
    gnn::sample_batches<Node>(rows, dataset.graph().columns(), sampling, seeds, options.batch, 0,
                              [&](std::size_t i, const gnn::Sample<Node>& sample) {
                                sizes[i] = {sample.nodes.size(), sample.source.size()};
                              });
  });
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  std::uint64_t nodes = 0;
  std::uint64_t edges = 0;
  for (const auto& [n, e] : sizes) nodes += n, edges += e;
  const auto count = static_cast<double>(std::max<std::size_t>(1, batches));
  base::Json json = base::make_result("gnn-sample", 1);
  json["batches"] = batches;
  json["nodes_per_batch"] = static_cast<double>(nodes) / count;
  json["edges_per_batch"] = static_cast<double>(edges) / count;
  json["edges_per_s"] = static_cast<double>(edges) / seconds;
  print_result(options.json
                   ? base::to_text(json)
                   : fmt::format("{} batches in {:.2f} s: {:.0f} nodes and {:.0f} edges each, {:.1f} M edges/s\n",
                                 batches, seconds, static_cast<double>(nodes) / count,
                                 static_cast<double>(edges) / count, static_cast<double>(edges) / seconds / 1e6));
  return report_defects(defects);
}

}  // namespace

void add_gnn(CLI::App& app, Run& chosen) {
  const auto options = std::make_shared<GnnOptions>();
  CLI::App* gnn =
      app.add_subcommand("gnn", "Graph neural networks: import, partition, order, sample and plan the data path");
  gnn->require_subcommand(1);
  const auto add = [&](const char* name, const char* what, const char* example, int (*run)(const GnnOptions&)) {
    CLI::App* command = gnn->add_subcommand(name, what);
    command->footer(fmt::format("Example:\n  {}", example));
    command
        ->add_option(
            "IN", options->input,
            "Graph: folder of `gnn import`, edge list, .npy, .npz, METIS, GAP, Matrix Market, OGB or GraphBolt folder")
        ->required();
    command->add_flag("--json", options->json, "The result for machines");
    command->add_option("--seed", options->seed, "Seed of every random choice");
    command->callback([options, &chosen, run] { chosen = [options, run] { return run(*options); }; });
    return command;
  };
  const auto add_sampling = [&](CLI::App* command) {
    command->add_option("--fanout", options->fanout, "Neighbours per hop, seeds outwards, e.g. 15,10,5; -1 = all")
        ->delimiter(',');
    command->add_option("--batch", options->batch, "Seeds per batch")
        ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{1} << 32));
  };
  CLI::App* import = add("import", "Reads a graph, names its defects, writes mapped files",
                         "paceline gnn import edges.csv.gz graph/", run_import);
  import->add_option("OUT", options->output, "Folder to write")->required();
  import->add_flag("--directed", options->directed, "Keep directions and duplicates (default: undirected)");
  import->add_flag("--keep-loops", options->keep_loops, "Keep self loops");
  import->add_flag("--one-based", options->one_based, "Node ids of edge lists start at 1");
  import->add_option("--time-unit", options->time_unit, "Unit of the time column")
      ->check(CLI::IsMember({"s", "ms", "us", "ns"}));
  CLI::App* plan = add("plan", "Order, cache policy and the epoch time to expect, before anything runs",
                       "paceline gnn plan graph/ --fanout 15,10,5 --batch 1024 --memory 1GB", run_plan);
  add_sampling(plan);
  plan->add_option("--memory", options->memory, "For cached feature rows, e.g. 512MB")
      ->transform(CLI::AsSizeValue(true))
      ->required();
  plan->add_option("--row-bytes", options->row_bytes, "Bytes of one feature row");
  plan->add_option("--disk-rows", options->disk_rows, "Random feature rows per second the disk gives");
  CLI::App* part = add("partition", "Parts of equal size and training nodes with few edges between them",
                       "paceline gnn partition graph/ --parts 8 -o graph.part.8", run_partition);
  part->add_option("--parts", options->parts, "Number of parts")->check(CLI::Range(1, 1 << 20));
  part->add_option("--method", options->method)
      ->check(CLI::IsMember({"multilevel", "streaming", "blocks", "metis", "random"}));
  part->add_option("-o,--output", options->output, "File with one part per line (METIS's form)");
  part->add_option("--dgl-config", options->dgl_config, "Also write DGL's partition configuration here");
  CLI::App* order = add("order", "Compares training orders by unique inputs per batch and label distance",
                        "paceline gnn order graph/ --batch 1024", run_order);
  add_sampling(order);
  order->add_option("-o,--output", options->output, "Keep the locality sequence here (.npy)");
  CLI::App* sample = add("sample", "Samples one epoch and reports its size and speed",
                         "paceline gnn sample graph/ --fanout 10,5", run_sample);
  add_sampling(sample);
  sample->add_flag("--replace", options->replace, "With replacement");
  sample->add_option("--sampler", options->sampler)->check(CLI::IsMember({"uniform", "weighted", "labor", "layer"}));
}

}  // namespace paceline::cli
