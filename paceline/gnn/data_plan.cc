#include "paceline/gnn/data_plan.h"

#include <time.h>

#include <algorithm>
#include <numeric>

#include "paceline/base/error.h"
#include "paceline/gnn/sampler.h"

namespace paceline::gnn {
namespace {

double thread_cpu() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

/// CPU seconds per batch on one thread, the median of a few batches.
double sampling_seconds(const Graph& graph, const Order& order, const DataPlanRequest& request) {
  return graph.visit([&](const auto& rows) {
    using Node = std::remove_cvref_t<decltype(rows.neighbours[0])>;
    Sampler<Node> sampler(rows, graph.columns(), {.fanout = request.fanout, .seed = request.seed});
    Sample<Node> sample;
    std::vector<double> seconds;
    const std::size_t batches = std::min<std::size_t>(16, (order.size() + request.batch - 1) / request.batch);
    for (std::size_t b = 0; b < batches; ++b) {
      std::vector<Node> seeds;
      for (std::size_t i = b * request.batch; i < std::min(order.size(), (b + 1) * request.batch); ++i)
        seeds.push_back(static_cast<Node>(order[i]));
      const double start = thread_cpu();
      sampler.sample(seeds, {0, b}, sample);
      seconds.push_back(thread_cpu() - start);
    }
    std::nth_element(seconds.begin(), seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 2), seconds.end());
    return seconds[seconds.size() / 2];
  });
}

}  // namespace

DataPlan plan_data(const Dataset& dataset, const DataPlanRequest& request) {
  const Graph& graph = dataset.graph();
  std::vector<std::uint64_t> train = dataset.train;
  if (train.empty()) {  // no split: every node trains
    train.resize(graph.rows());
    std::iota(train.begin(), train.end(), 0);
  }
  if (train.empty() || request.batch == 0)
    throw Error(ErrorKind::kInfeasible, dataset.name, "has no training nodes or the batch is empty");
  DataPlan plan;
  const std::size_t batch = std::min(request.batch, train.size());
  plan.order =
      choose_order(graph, train, dataset.labels, batch, request.fanout, request.allowed_label_distance, request.seed);
  const OrderChoice::Candidate& chosen = plan.order.tried[plan.order.best];
  const Order clusters = chosen.pieces ? cluster_sequence(graph, train, request.seed) : Order{};
  const std::vector<Order> sequences =
      chosen.size > 0 && !chosen.pieces
          ? breadth_first_sequences(graph, train, static_cast<int>(chosen.size), request.seed)
          : std::vector<Order>{};
  const auto order_of = [&](std::uint64_t epoch) {
    if (chosen.pieces) return balanced_pieces(clusters, dataset.labels, chosen.size, batch, epoch, request.seed);
    return sequences.empty() ? random_order(train, epoch, request.seed)
                             : interleave(sequences, batch, epoch, request.seed);
  };
  // The first epoch warms up and pre-samples, the second is counted; long epochs are cut to a stretch.
  constexpr std::size_t kMostBatches = 200;
  Trace trace;
  for (std::uint64_t epoch = 0; epoch < 2; ++epoch) {
    Order order = order_of(epoch);
    order.resize(std::min(order.size(), kMostBatches * batch));
    const Trace part = record_trace(graph, order, batch, request.fanout, epoch, request.seed);
    plan.sampled_batches = part.size();
    trace.insert(trace.end(), part.begin(), part.end());
  }
  const std::uint64_t nodes = std::max(graph.rows(), graph.columns());
  plan.cached_rows =
      std::min(nodes, request.feature_row_bytes == 0 ? nodes : request.memory_bytes / request.feature_row_bytes);
  const std::vector<float> presampled = presample_scores(trace, plan.sampled_batches, nodes);
  const auto run = [&](const char* name, Policy policy, const std::vector<float>& scores) {
    const auto cache =
        make_cache({.policy = policy, .nodes = nodes, .capacity = plan.cached_rows, .shards = 1, .scores = scores});
    const CacheResult result = simulate(*cache, trace, request.look_ahead, plan.sampled_batches);
    const auto batches = static_cast<double>(plan.sampled_batches);
    plan.inputs_per_batch = static_cast<double>(result.lookups) / batches;
    plan.policies.push_back({name, result.ratio(), static_cast<double>(result.lookups - result.hits) / batches});
  };
  run("lookahead", Policy::kLookahead, presampled);
  run("presample", Policy::kStatic, presampled);
  run("degree", Policy::kStatic, degree_scores(graph));
  run("sieve", Policy::kSieve, {});
  run("s3fifo", Policy::kS3Fifo, {});
  run("fifo", Policy::kFifo, {});
  std::stable_sort(plan.policies.begin(), plan.policies.end(),
                   [](const auto& a, const auto& b) { return a.hit_ratio > b.hit_ratio; });
  plan.sample_seconds_per_batch = sampling_seconds(graph, order_of(0), request);
  plan.read_seconds_per_batch = plan.policies[0].missed_rows_per_batch / request.disk_rows_per_s;
  const double slower = std::max(plan.sample_seconds_per_batch, plan.read_seconds_per_batch);
  plan.bound = plan.read_seconds_per_batch > plan.sample_seconds_per_batch ? "disk" : "sampling";
  plan.batches_per_s = slower > 0 ? 1 / slower : 0;
  plan.epoch_seconds = slower * static_cast<double>((train.size() + batch - 1) / batch);
  return plan;
}

}  // namespace paceline::gnn
