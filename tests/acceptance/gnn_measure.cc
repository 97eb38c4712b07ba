// Figures of the gnn room as JSON on standard output: gnn_measure QUESTION [ARGUMENTS]. Graphs are named by a folder or
// file, or made: kronecker:SCALE, blocks:NODES:COMMUNITIES (classes = community mod 8).
#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>

#include "paceline/base/error.h"
#include "paceline/base/json.h"
#include "paceline/base/parallel.h"
#include "paceline/base/rng.h"
#include "paceline/gnn/cache.h"
#include "paceline/gnn/dataset.h"
#include "paceline/gnn/feature_file.h"
#include "paceline/gnn/feature_store.h"
#include "paceline/gnn/generate.h"
#include "paceline/gnn/graph_file.h"
#include "paceline/gnn/order.h"
#include "paceline/gnn/partition.h"
#include "paceline/gnn/reference.h"
#include "paceline/gnn/sampler.h"
#include "paceline/gnn/stream_partition.h"

namespace {
using namespace paceline::gnn;
using paceline::base::Json;
using Arguments = std::vector<std::string>;
namespace fs = std::filesystem;

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}
double cpu() {
  struct rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}
std::int64_t peak_bytes() {
  struct rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss * 1024;
}

Dataset dataset(const std::string& name) {
  Dataset made;
  made.name = name;
  if (name.starts_with("kronecker:")) {
    made.relations.push_back({"node", "edge", "node", kronecker(std::stoi(name.substr(10)), 16, 1)});
  } else if (name.starts_with("blocks:")) {
    const std::size_t colon = name.find(':', 7);
    made.relations.push_back(
        {"node", "edge", "node",
         block_model({.nodes = std::stoull(name.substr(7)), .blocks = std::stoull(name.substr(colon + 1))}, 1,
                     &made.labels)});
    for (std::int64_t& label : made.labels) label %= 8;
  } else {
    Defects defects;
    ImportOptions options;
    options.build = {.symmetric = true, .drop_self_loops = true, .merge_duplicates = true};
    made = import_dataset(name, options, defects);
  }
  return made;
}

/// A random share of the nodes, the same for every question.
std::vector<std::uint64_t> training_nodes(const Graph& graph, double share) {
  paceline::base::Rng rng(5);
  std::vector<std::uint64_t> train;
  for (std::uint64_t v = 0; v < graph.rows(); ++v)
    if (rng.chance(share)) train.push_back(v);
  return train;
}

// CPU time of both samplers on the same seeds, in turn; and the wall time of a stretch of batches on 1 and 2 threads.
Json sampler(const Arguments&) {
  const Graph graph = kronecker(18, 16, 1);
  const auto& rows = graph.narrow_rows();
  std::vector<std::uint32_t> seeds;
  paceline::base::Rng rng(7);
  while (seeds.size() < 64 * 1024)
    if (const auto v = static_cast<std::uint32_t>(rng.below(graph.rows())); rows.degree(v) > 0) seeds.push_back(v);
  reference::FusedSampler plain(rows, {15, 10, 5}, 1);
  Sampler<std::uint32_t> ours(rows, graph.columns(), {.fanout = {15, 10, 5}});
  Sample<std::uint32_t> sample;
  // Per round the ratio; the median over rounds is not moved by a neighbour who takes the machine for a moment.
  std::vector<double> ratios;
  double seconds[2] = {0, 0};
  double edges[2] = {0, 0};
  double nodes[2] = {0, 0};
  for (int round = 0; round < 9; ++round) {
    double spent[2] = {0, 0};
    double drawn[2] = {0, 0};
    for (std::uint64_t b = 0; b < 64; ++b) {
      const auto batch = std::span(seeds).subspan(b * 1024, 1024);
      for (int which = 0; which < 2; ++which) {
        const double start = cpu();
        if (which == 0)
          plain.sample(batch, sample);
        else
          ours.sample(batch, {static_cast<std::uint64_t>(round), b}, sample);
        spent[which] += cpu() - start;
        drawn[which] += static_cast<double>(sample.source.size());
        nodes[which] += static_cast<double>(sample.nodes.size());
      }
    }
    ratios.push_back(drawn[1] / spent[1] * spent[0] / drawn[0]);
    for (int which = 0; which < 2; ++which) seconds[which] += spent[which], edges[which] += drawn[which];
  }
  std::sort(ratios.begin(), ratios.end());
  double best[2] = {1e9, 1e9};
  const std::span<const std::uint32_t> all(seeds);
  for (int round = 0; round < 5; ++round) {
    for (int threads = 1; threads <= 2; ++threads) {
      paceline::base::set_threads(threads);
      const double start = now();
      sample_batches<std::uint32_t>(rows, graph.columns(), {.fanout = {15, 10, 5}}, all, 1024, 0,
                                    [](std::size_t, const auto&) {});
      best[threads - 1] = std::min(best[threads - 1], now() - start);
    }
  }
  return {{"ratio", ratios[4]},
          {"plain_medges_per_cpu_s", edges[0] / seconds[0] / 1e6},
          {"ours_medges_per_cpu_s", edges[1] / seconds[1] / 1e6},
          {"edges_per_batch", {edges[0] / 576, edges[1] / 576}},
          {"nodes_per_batch", {nodes[0] / 576, nodes[1] / 576}},
          {"two_threads", best[0] / best[1]}};
}

// Hit ratios of all policies on one recorded trace, epochs 2 and 3, 10 % of the rows.
Json cache(const Arguments& arguments) {
  const Dataset data = dataset(arguments.at(0));
  const std::size_t batch = std::stoul(arguments.at(1));
  const Graph& graph = data.graph();
  const std::vector<std::uint64_t> train = training_nodes(graph, std::stod(arguments.at(2)));
  Trace trace;
  std::size_t epoch_batches = 0;
  for (std::uint64_t epoch = 0; epoch < 3; ++epoch) {
    const Trace part = record_trace(graph, random_order(train, epoch, 1), batch, {15, 10, 5}, epoch, 1);
    epoch_batches = part.size();
    trace.insert(trace.end(), part.begin(), part.end());
  }
  const std::uint64_t capacity = graph.rows() / 10;
  const std::vector<float> presampled = presample_scores(trace, epoch_batches, graph.rows());
  Json result;
  const auto run = [&](const char* name, Policy policy, const std::vector<float>& scores, std::size_t window) {
    const auto made =
        make_cache({.policy = policy, .nodes = graph.rows(), .capacity = capacity, .shards = 1, .scores = scores});
    result[name] = simulate(*made, trace, window, epoch_batches).ratio();
  };
  run("fifo", Policy::kFifo, {}, 0);
  run("lru", Policy::kLru, {}, 0);
  run("clock", Policy::kClock, {}, 0);
  run("sieve", Policy::kSieve, {}, 0);
  run("s3fifo", Policy::kS3Fifo, {}, 0);
  run("degree", Policy::kStatic, degree_scores(graph), 0);
  run("presample", Policy::kStatic, presampled, 0);
  run("vip", Policy::kStatic, vip_scores(graph, train, batch, {15, 10, 5}), 0);
  run("lookahead", Policy::kLookahead, presampled, 16);
  run("belady", Policy::kBelady, {}, trace.size());
  std::uint64_t differences = 0;
  for (const int shards : {1, 4}) {
    const auto fifo = make_cache(
        {.policy = Policy::kFifo, .nodes = graph.rows(), .capacity = capacity, .shards = shards, .scores = {}});
    const auto hits = static_cast<std::int64_t>(simulate(*fifo, trace, 0).hits);
    differences += static_cast<std::uint64_t>(
        std::abs(hits - static_cast<std::int64_t>(reference::fifo_hits(trace, capacity, shards))));
  }
  result["fifo_differences"] = differences;
  return result;
}

// CPU nanoseconds per id of find() alone, and per missing id of insert(), on a trace with 10 % of the rows.
Json cache_cost(const Arguments&) {
  const Graph graph = kronecker(18, 16, 1);
  const std::vector<std::uint64_t> train = training_nodes(graph, 0.5);
  const Trace trace = record_trace(graph, random_order(train, 0, 1), 1024, {15, 10, 5}, 0, 1);
  const std::vector<float> scores = presample_scores(trace, trace.size(), graph.rows());
  Json result;
  for (const auto& [name, policy] : std::map<std::string, Policy>{{"fifo", Policy::kFifo},
                                                                  {"sieve", Policy::kSieve},
                                                                  {"s3fifo", Policy::kS3Fifo},
                                                                  {"static", Policy::kStatic},
                                                                  {"lookahead", Policy::kLookahead}}) {
    double find_best = 1e9;
    double insert_best = 1e9;
    for (int round = 0; round < 3; ++round) {
      const auto made = make_cache(
          {.policy = policy, .nodes = graph.rows(), .capacity = graph.rows() / 10, .shards = 1, .scores = scores});
      double find = 0;
      double insert = 0;
      double ids = 0;
      double missed = 0;
      std::size_t announced = 0;
      for (std::size_t b = 0; b < trace.size(); ++b) {
        for (; announced < trace.size() && announced <= b + 16; ++announced) made->announce(trace[announced]);
        std::vector<Slot> slots(trace[b].size());
        double start = cpu();
        made->find(trace[b], slots);
        find += cpu() - start;
        ids += static_cast<double>(slots.size());
        std::vector<std::uint64_t> missing;
        for (std::size_t i = 0; i < slots.size(); ++i)
          if (slots[i] == kNoSlot) missing.push_back(trace[b][i]);
        made->release(slots);
        slots.resize(missing.size());
        start = cpu();
        made->insert(missing, slots);
        insert += cpu() - start;
        missed += static_cast<double>(missing.size());
        made->release(slots);
      }
      find_best = std::min(find_best, find / ids);
      insert_best = std::min(insert_best, insert / missed);
    }
    result[name] = {{"find_ns", find_best * 1e9}, {"insert_ns", insert_best * 1e9}};
  }
  return result;
}

Json order(const Arguments& arguments) {
  const Dataset data = dataset(arguments.at(0));
  const std::vector<std::uint64_t> train = training_nodes(data.graph(), std::stod(arguments.at(2)));
  const OrderChoice choice =
      choose_order(data.graph(), train, data.labels, std::stoul(arguments.at(1)), {15, 10, 5}, 1.5, 1);
  const auto to_json = [](const OrderChoice::Candidate& each) {
    return Json{{"order", each.size == 0 ? "random"
                          : each.pieces  ? "pieces"
                                         : "sequences"},
                {"size", each.size},
                {"inputs", each.inputs},
                {"distance", each.distance}};
  };
  Json result = to_json(choice.tried[choice.best]);
  for (const auto& each : choice.tried) result["tried"].push_back(to_json(each));
  return result;
}

// Arguments: graph, parts, method, seeds to look at.
Json partition_graph(const Arguments& arguments) {
  const std::map<std::string, PartitionMethod> methods{
      {"multilevel", PartitionMethod::kMultilevel}, {"streaming", PartitionMethod::kStreaming},
      {"blocks", PartitionMethod::kBlocks},         {"metis", PartitionMethod::kMetis},
      {"metis_plain", PartitionMethod::kMetis},     {"random", PartitionMethod::kRandom}};
  const int parts = std::stoi(arguments.at(1));
  const std::string& method = arguments.at(2);
  const Graph graph = [&] {
    if (is_graph_file(arguments.at(0))) return open_graph(arguments.at(0));
    Dataset data = dataset(arguments.at(0));
    return std::move(data.relations[0].graph);
  }();
  std::vector<std::uint8_t> is_train(graph.rows(), 0);
  for (const std::uint64_t v : training_nodes(graph, 0.6)) is_train[v] = 1;
  const double start = now();
  const double cpu_start = cpu();
  const bool plain = method == "metis_plain";  // gpmetis as it comes: no training nodes, 3 % imbalance
  const auto part = partition(graph, plain ? std::span<const std::uint8_t>{} : is_train,
                              {.parts = parts, .method = methods.at(method)});
  const double wall = now() - start;
  const double spent = cpu() - cpu_start;
  const std::int64_t peak = peak_bytes();
  Json result{{"seconds", wall}, {"cpu_seconds", spent}, {"peak_bytes", peak}, {"csr_bytes", graph.bytes()}};
  const std::size_t seeds = std::stoul(arguments.at(3));
  if (seeds == 0) return result;
  const PartitionQuality quality = partition_quality(graph, part, parts, is_train, {15, 10, 5}, seeds);
  result["cut"] = quality.cut;
  result["cross"] = quality.cross_requests;
  result["node_imbalance"] = quality.node_imbalance;
  result["train_imbalance"] = quality.train_imbalance;
  return result;
}

Json make_graph(const Arguments& arguments) {
  const Dataset data = dataset(arguments.at(0));
  write_graph(arguments.at(1), data.graph());
  return {{"edges", data.graph().edges()}, {"nodes", data.graph().rows()}, {"csr_bytes", data.graph().bytes()}};
}

// Partitions a graph file under an address-space limit of half its CSR.
Json out_of_core(const Arguments& arguments) {
  const std::uint64_t csr = [&] {
    const GraphReader reader(arguments.at(0));
    return (reader.rows() + 1) * 8 + reader.edges() * 4;
  }();
  const rlimit limit{csr / 2, csr / 2};
  paceline::base::set_threads(1);
  if (::setrlimit(RLIMIT_AS, &limit) != 0) throw std::runtime_error("cannot set the limit");
  const double start = now();
  const auto part = stream_partition_file(arguments.at(0), {},
                                          {.parts = std::stoi(arguments.at(1)), .method = PartitionMethod::kStreaming});
  return {{"nodes", part.size()},
          {"limit_bytes", csr / 2},
          {"csr_bytes", csr},
          {"seconds", now() - start},
          {"peak_bytes", peak_bytes()}};
}

Json write_features(const Arguments& arguments) {
  FeatureWriter writer(arguments.at(0), 128, RowCodec::kFloat32);
  std::vector<float> row(128);
  const std::uint64_t rows = std::stoull(arguments.at(1));
  paceline::base::Rng rng(1);
  for (std::uint64_t r = 0; r < rows; ++r) {
    for (float& value : row) value = static_cast<float>(rng.next() >> 40);
    writer.add(row);
  }
  writer.finish();
  return {{"bytes", fs::file_size(arguments.at(0))}};
}

// Random rows per second of the disk tier and of a mapping with a cold page cache.
Json disk(const Arguments& arguments) {
  const std::string path = arguments.at(0);
  const std::size_t count = std::stoul(arguments.at(1));
  FeatureReader reader(path, 64);
  paceline::base::Rng rng(std::stoull(arguments.at(2)));
  constexpr std::size_t kBatch = 4096;
  std::vector<std::uint64_t> ids(kBatch);
  std::vector<float> out(kBatch * reader.columns());
  const std::int64_t before = peak_bytes();
  double start = now();
  for (std::size_t done = 0; done < count; done += kBatch) {
    for (std::uint64_t& id : ids) id = rng.below(reader.rows());
    reader.read(ids, out);
  }
  const double ring = now() - start;
  const std::int64_t grown = peak_bytes() - before;
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  ::posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
  const std::uint64_t size = fs::file_size(path);
  auto* const mapped = static_cast<const char*>(::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file, 0));
  ::madvise(const_cast<char*>(mapped), size, MADV_RANDOM);
  const std::size_t few = count / 8;
  start = now();
  for (std::size_t i = 0; i < few; ++i) std::memcpy(out.data(), mapped + 4096 + rng.below(reader.rows()) * 512, 512);
  const double map = now() - start;
  ::close(file);
  return {{"rows_per_s", static_cast<double>(count) / ring},
          {"reads_per_s", static_cast<double>(reader.reads()) / ring},
          {"mmap_rows_per_s", static_cast<double>(few) / map},
          {"method", reader.method()},
          {"resident_growth", grown},
          {"buffer_bytes", reader.buffer_bytes()}};
}

// The data path of one epoch after one of warm-up: sampling and gathering rows of 512 B with a quarter of them in
// memory, for three ways to do it. Arguments: graph, batch, share of training nodes, folder on the disk.
Json epoch(const Arguments& arguments) {
  const Dataset data = dataset(arguments.at(0));
  const Graph& graph = data.graph();
  const auto& rows = graph.narrow_rows();
  const std::size_t batch = std::stoul(arguments.at(1));
  const std::vector<std::uint64_t> train = training_nodes(graph, std::stod(arguments.at(2)));
  const fs::path path = fs::path(arguments.at(3)) / "features";
  write_features({path.string(), std::to_string(graph.rows())});
  const std::vector<int> fanout{15, 10, 5};
  const std::uint64_t capacity = graph.rows() / 4;
  const Order sequence = cluster_sequence(graph, train, 1);
  const OrderChoice choice = choose_order(graph, train, data.labels, batch, fanout, 1.5, 1);
  const std::size_t piece = choice.tried[choice.best].pieces ? choice.tried[choice.best].size : 2;
  const auto order_of = [&](bool pieces, std::uint64_t epoch) {
    return pieces ? balanced_pieces(sequence, data.labels, piece, batch, epoch, 1) : random_order(train, epoch, 1);
  };
  Json result{{"piece", piece}, {"label_distance", choice.tried[choice.best].distance}};
  struct Way {
    const char* name;
    bool pieces;
    Policy policy;
  };
  for (const Way& way : {Way{"presample", false, Policy::kStatic}, Way{"sieve", false, Policy::kSieve},
                         Way{"ours", true, Policy::kLookahead}}) {
    const std::vector<float> scores = [&] {
      const Trace trace = record_trace(graph, order_of(way.pieces, 9), batch, fanout, 9, 1);
      return presample_scores(trace, trace.size(), graph.rows());
    }();
    FeatureStore store(path,
                       {.fast = {.policy = way.policy, .nodes = 0, .capacity = capacity, .shards = 1, .scores = scores},
                        .host = {.policy = Policy::kSieve, .nodes = 0, .capacity = 0, .shards = 1, .scores = {}}});
    Sampler<std::uint32_t> sampler(rows, graph.columns(), {.fanout = fanout, .seed = 1});
    Sample<std::uint32_t> sample;
    std::vector<float> out;
    double seconds = 0;
    double sampling = 0;
    std::uint64_t read_before = 0;
    std::size_t batches = 0;
    std::uint64_t hits_before = 0;
    for (std::uint64_t epoch_number = 0; epoch_number < 2; ++epoch_number) {
      const Order order = order_of(way.pieces, epoch_number);
      batches = (order.size() + batch - 1) / batch;
      std::vector<std::vector<std::uint64_t>> ahead(batches);
      read_before = store.counts().lookups;
      hits_before = store.counts().fast_hits;
      sampling = 0;
      const double start = now();
      std::size_t sampled = 0;
      for (std::size_t b = 0; b < batches; ++b) {
        const double sampling_start = now();
        for (; sampled < batches && sampled <= b + 16; ++sampled) {
          std::vector<std::uint32_t> seeds;
          for (std::size_t i = sampled * batch; i < std::min(order.size(), (sampled + 1) * batch); ++i)
            seeds.push_back(static_cast<std::uint32_t>(order[i]));
          sampler.sample(seeds, {epoch_number, sampled}, sample);
          ahead[sampled].assign(sample.nodes.begin(), sample.nodes.end());
          store.announce(ahead[sampled]);
        }
        sampling += now() - sampling_start;
        out.resize(ahead[b].size() * store.columns());
        store.gather(ahead[b], out);
        ahead[b].clear();
      }
      seconds = now() - start;
    }
    const auto lookups = static_cast<double>(store.counts().lookups - read_before);
    const auto hits = static_cast<double>(store.counts().fast_hits - hits_before);
    result[way.name] = {{"seconds", seconds},
                        {"sampling_seconds", sampling},
                        {"rows_read", lookups - hits},
                        {"hit_ratio", hits / lookups},
                        {"batches", batches}};
  }
  return result;
}

Json load(const Arguments& arguments) {
  const fs::path folder = arguments.at(0);
  const Graph graph = kronecker(18, 16, 1);
  {
    std::ofstream csv(folder / "edges.csv");
    csv << "src,dst\n";
    std::string text;
    for (std::uint64_t v = 0; v < graph.rows(); ++v) {
      text.clear();
      for (const std::uint32_t u : graph.narrow_rows().row(v)) text += fmt::format("{},{}\n", u, v);
      csv << text;
    }
  }
  double best = 1e9;
  for (int round = 0; round < 3; ++round) {
    Defects defects;
    const double start = cpu();
    const EdgeList edges = read_edge_text(folder / "edges.csv", {}, defects);
    if (edges.size() != graph.edges()) throw std::runtime_error("edges were lost");
    best = std::min(best, cpu() - start);
  }
  return {{"csv_edges_per_cpu_s", static_cast<double>(graph.edges()) / best}, {"edges", graph.edges()}};
}

Json open_file(const Arguments& arguments) {
  const double start = now();
  const Graph graph = open_graph(arguments.at(0));
  return {{"seconds", now() - start}, {"edges", graph.edges()}};
}

}  // namespace

int main(int count, char** values) {
  const std::map<std::string, Json (*)(const Arguments&)> questions{{"sampler", sampler},
                                                                    {"cache", cache},
                                                                    {"cache_cost", cache_cost},
                                                                    {"order", order},
                                                                    {"partition", partition_graph},
                                                                    {"make_graph", make_graph},
                                                                    {"out_of_core", out_of_core},
                                                                    {"write_features", write_features},
                                                                    {"disk", disk},
                                                                    {"epoch", epoch},
                                                                    {"load", load},
                                                                    {"open", open_file}};
  try {
    const Arguments arguments(values + 1, values + count);
    if (arguments.empty() || !questions.contains(arguments[0])) throw std::runtime_error("unknown question");
    std::cout << questions.at(arguments[0])(Arguments(arguments.begin() + 1, arguments.end())).dump() << '\n';
    return 0;
  } catch (const std::exception& error) {
    std::cerr << "gnn_measure: " << error.what() << '\n';
    return 1;
  }
}
