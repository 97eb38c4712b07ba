#include "pipeline_job.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <tuple>

namespace paceline::test_support {
namespace {

/// One step, worked out backwards: when an operation ends is asked of what it waits for.
class Step {
 public:
  Step(const PipelineJob& job, std::int32_t number, std::int64_t begin) : job_(job), number_(number), begin_(begin) {
    for (std::uint32_t stage = 0; stage < job.stages; ++stage) passes_.push_back(order_of(stage));
  }

  std::vector<PipelineOperation> run() {
    for (std::uint32_t dp = 0; dp < job_.dp_ranks; ++dp) {
      for (std::uint32_t stage = 0; stage < job_.stages; ++stage) {
        for (const auto& [name, count] : counts(stage)) {
          for (std::int32_t n = 0; n < count; ++n) end_of({name, stage, dp, n});
        }
      }
    }
    std::vector<PipelineOperation> result;
    for (const auto& [key, operation] : done_) result.push_back(operation);
    return result;
  }

 private:
  struct Key {
    std::string_view name;
    std::uint32_t stage, dp;
    std::int32_t n;
    auto operator<=>(const Key&) const = default;
  };
  struct Pass {
    bool forward;
    std::int32_t chunk, n;
  };

  /// 1F1B, interleaved when there are several model chunks.
  std::vector<Pass> order_of(std::uint32_t stage) const {
    const auto p = static_cast<std::int32_t>(job_.stages), v = static_cast<std::int32_t>(job_.chunks);
    const std::int32_t total = static_cast<std::int32_t>(job_.micro_batches) * v;
    const std::int32_t behind = p - static_cast<std::int32_t>(stage) - 1;
    const std::int32_t warmup = std::min(v == 1 ? behind : behind * 2 + (v - 1) * p, total);
    const auto chunk = [&](std::int32_t n) { return n / p % v; };
    std::vector<Pass> passes;
    std::int32_t forward = 0, backward = 0;
    for (; forward < warmup; ++forward) passes.push_back({true, chunk(forward), forward});
    while (forward < total || backward < total) {
      if (forward < total) passes.push_back({true, chunk(forward), forward}), ++forward;
      passes.push_back({false, v - 1 - chunk(backward), backward}), ++backward;
    }
    return passes;
  }

  std::int32_t chunk_of(std::uint32_t stage, bool forward, std::int32_t n) const {
    for (const Pass& pass : passes_[stage]) {
      if (pass.forward == forward && pass.n == n) return pass.chunk;
    }
    return -1;
  }
  /// Whether the n-th pass hands its result on (send), or takes another's (recv).
  bool has_peer(std::uint32_t stage, bool forward, bool send, std::int32_t n) const {
    const auto place = chunk_of(stage, forward, n) * static_cast<std::int32_t>(job_.stages) + static_cast<int>(stage);
    const std::int32_t peer = place + (forward == send ? 1 : -1);
    return peer >= 0 && peer < static_cast<std::int32_t>(job_.stages * job_.chunks);
  }
  bool is_written(std::uint32_t stage, bool forward, bool send, std::int32_t n) const {
    return has_peer(stage, forward, send, n) || (job_.chunks > 1 && job_.idle_transfers);
  }
  std::int32_t total() const { return static_cast<std::int32_t>(job_.micro_batches * job_.chunks); }

  /// The pass of the n-th transfer that is written, or that has a peer; and the other way round.
  std::int32_t pass_of(std::uint32_t stage, bool forward, bool send, std::int32_t n, bool only_peers) const {
    for (std::int32_t pass = 0; pass < total(); ++pass) {
      const bool counts = only_peers ? has_peer(stage, forward, send, pass) : is_written(stage, forward, send, pass);
      if (counts && n-- == 0) return pass;
    }
    return -1;
  }
  std::int32_t count_before(std::uint32_t stage, bool forward, bool send, std::int32_t pass, bool only_peers) const {
    std::int32_t count = 0;
    for (std::int32_t i = 0; i < pass; ++i) {
      count += only_peers ? has_peer(stage, forward, send, i) : is_written(stage, forward, send, i);
    }
    return count;
  }

  std::vector<std::pair<std::string_view, std::int32_t>> counts(std::uint32_t stage) const {
    const auto chunks = static_cast<std::int32_t>(job_.chunks);
    const bool ends = stage == 0 || stage + 1 == job_.stages;
    return {{"forward-compute", total()},
            {"backward-compute", total()},
            {"forward-send", count_before(stage, true, true, total(), false)},
            {"forward-recv", count_before(stage, true, false, total(), false)},
            {"backward-send", count_before(stage, false, true, total(), false)},
            {"backward-recv", count_before(stage, false, false, total(), false)},
            {"params-all-gather", chunks},
            {"grads-reduce-scatter", chunks},
            {"gc", 1},
            {"layernorm-grads-all-reduce", 1},
            {"embedding-grads-all-reduce", ends ? 1 : 0},
            {"separate-grads-all-reduce", job_.overlapped_reduction ? 1 : 0},
            {"optimizer-clip-main-grad", 1},
            {"optimizer", 1}};
  }

  std::int64_t after(std::string_view name, const Key& key, std::int32_t n) {
    return n < 0 ? begin_ : end_of({name, key.stage, key.dp, n});
  }
  /// When the pass at `place` of the stage's order ended.
  std::int64_t after_pass(const Key& key, std::ptrdiff_t place) {
    if (place < 0) return begin_;
    const Pass& pass = passes_[key.stage][static_cast<std::size_t>(place)];
    return after(pass.forward ? "forward-compute" : "backward-compute", key, pass.n);
  }

  std::int64_t end_of(const Key& key) {
    if (const auto found = done_.find(key); found != done_.end()) return found->second.end;
    PipelineOperation operation{key.name, key.stage, key.dp, number_, chunk(key), key.n, 0, 0};
    operation.begin = ready(key);
    std::int64_t start = operation.begin;
    for (const Key& other : together(key)) start = std::max(start, ready(other));
    operation.end = start + job_.duration(operation);
    done_[key] = operation;
    return operation.end;
  }

  std::int32_t chunk(const Key& key) const {
    if (key.name == "forward-compute") return chunk_of(key.stage, true, key.n);
    if (key.name == "backward-compute") return chunk_of(key.stage, false, key.n);
    if (key.name == "params-all-gather") return key.n;
    if (key.name == "grads-reduce-scatter") return static_cast<std::int32_t>(job_.chunks) - 1 - key.n;
    return -1;
  }

  std::int64_t ready(const Key& key) {
    if (const auto found = done_.find(key); found != done_.end()) return found->second.begin;
    if (const auto found = ready_.find(key); found != ready_.end()) return found->second;
    std::int64_t time = after(key.name, key, key.n - 1);
    const auto wait = [&](std::int64_t end) { time = std::max(time, end); };
    const bool forward = key.name.starts_with("forward"), send = key.name.ends_with("-send");
    const auto passes = static_cast<std::ptrdiff_t>(passes_[key.stage].size());
    const auto chunks = static_cast<std::int32_t>(job_.chunks);
    if (key.name.ends_with("-compute")) {
      const auto& order = passes_[key.stage];
      const auto at = std::find_if(order.begin(), order.end(),
                                   [&](const Pass& pass) { return pass.forward == forward && pass.n == key.n; });
      wait(after_pass(key, std::distance(order.begin(), at) - 1));
      if (is_written(key.stage, forward, false, key.n)) {
        const std::int32_t n = count_before(key.stage, forward, false, key.n, false);
        wait(after(forward ? "forward-recv" : "backward-recv", key, n));
      }
      // Its model chunk's first forward pass.
      const bool first =
          std::none_of(order.begin(), at, [&](const Pass& pass) { return pass.forward && pass.chunk == at->chunk; });
      if (forward && first) wait(after("params-all-gather", key, at->chunk));
    } else if (send || key.name.ends_with("-recv")) {
      const std::string_view compute = forward ? "forward-compute" : "backward-compute";
      const std::int32_t pass = pass_of(key.stage, forward, send, key.n, false);
      wait(after(compute, key, send ? pass : pass - 1));
      const auto& order = passes_[key.stage];
      const auto first = std::find_if(order.begin(), order.end(), [](const Pass& one) { return !one.forward; });
      if (!forward && key.n == 0 && first - order.begin() >= 2) wait(after_pass(key, first - order.begin() - 2));
    } else if (key.name == "grads-reduce-scatter") {
      if (key.n == 0) wait(after("params-all-gather", key, chunks - 1));
      if (job_.overlapped_reduction) {
        const auto& order = passes_[key.stage];
        for (std::ptrdiff_t place = 0; place < passes; ++place) {
          const Pass& pass = order[static_cast<std::size_t>(place)];
          if (!pass.forward && pass.chunk == chunk(key)) wait(after_pass(key, place));
        }
      } else {
        wait(behind_embedding(key));
      }
    } else if (key.name == "gc") {
      wait(after_pass(key, passes - 1));
    } else if (key.name == "layernorm-grads-all-reduce") {
      wait(after("gc", key, 0));
      wait(job_.overlapped_reduction ? after("grads-reduce-scatter", key, chunks - 1)
                                     : after("params-all-gather", key, chunks - 1));
    } else if (key.name == "embedding-grads-all-reduce") {
      wait(after("layernorm-grads-all-reduce", key, 0));
    } else if (key.name == "separate-grads-all-reduce") {
      wait(behind_embedding(key));
    } else if (key.name == "optimizer-clip-main-grad") {
      wait(job_.overlapped_reduction ? after("separate-grads-all-reduce", key, 0)
                                     : after("grads-reduce-scatter", key, chunks - 1));
    } else if (key.name == "optimizer") {
      wait(after("optimizer-clip-main-grad", key, 0));
    }
    ready_[key] = time;
    return time;
  }
  std::int64_t behind_embedding(const Key& key) {
    const bool ends = key.stage == 0 || key.stage + 1 == job_.stages;
    return after(ends ? "embedding-grads-all-reduce" : "layernorm-grads-all-reduce", key, 0);
  }

  /// With whom an operation meets.
  std::vector<Key> together(const Key& key) const {
    std::vector<Key> others;
    const bool forward = key.name.starts_with("forward"), send = key.name.ends_with("-send");
    if (send || key.name.ends_with("-recv")) {
      const std::int32_t pass = pass_of(key.stage, forward, send, key.n, false);
      if (!has_peer(key.stage, forward, send, pass)) return {};
      const std::int32_t n = count_before(key.stage, forward, send, pass, true);
      const std::uint32_t peer = (key.stage + job_.stages + (forward == send ? 1 : job_.stages - 1)) % job_.stages;
      const std::int32_t peer_pass = pass_of(peer, forward, !send, n, true);
      const std::string_view names[2][2] = {{"backward-send", "backward-recv"}, {"forward-send", "forward-recv"}};
      others.push_back({names[forward][send], peer, key.dp, count_before(peer, forward, !send, peer_pass, false)});
      return others;
    }
    const bool same_stage = key.name == "params-all-gather" || key.name == "grads-reduce-scatter" ||
                            key.name == "separate-grads-all-reduce";
    for (std::uint32_t dp = 0; dp < job_.dp_ranks; ++dp) {
      for (std::uint32_t stage = 0; stage < job_.stages; ++stage) {
        const bool meets =
            key.name == "optimizer-clip-main-grad" || (same_stage && stage == key.stage) ||
            (key.name == "embedding-grads-all-reduce" && dp == key.dp && (stage == 0 || stage + 1 == job_.stages));
        if (meets) others.push_back({key.name, stage, dp, key.n});
      }
    }
    return others;
  }

  const PipelineJob& job_;
  std::int32_t number_;
  std::int64_t begin_;
  std::vector<std::vector<Pass>> passes_;  // by stage
  std::map<Key, PipelineOperation> done_;
  std::map<Key, std::int64_t> ready_;
};

}  // namespace

std::vector<PipelineOperation> PipelineJob::operations() const {
  std::vector<PipelineOperation> all;
  std::int64_t begin = 1000;
  for (std::int32_t step = 0; step < steps; ++step) {
    for (const PipelineOperation& operation : Step(*this, step, begin).run()) all.push_back(operation);
    for (const PipelineOperation& operation : all) begin = std::max(begin, operation.end);
    begin += 500;
  }
  return all;
}

std::string to_ndtimeline(const std::vector<PipelineOperation>& operations) {
  std::string text = "[";
  std::set<std::tuple<std::uint32_t, std::uint32_t, int>> threads;
  const auto out = std::back_inserter(text);
  for (const PipelineOperation& operation : operations) {
    const std::string_view name = operation.name;
    const bool transfer = name.ends_with("-send") || name.ends_with("-recv");
    const bool compute = name.ends_with("-compute") || name == "gc" || name == "optimizer";
    const int stream = compute ? 0 : transfer ? 1 : 3;
    threads.insert({operation.stage, operation.dp_rank, stream});
    fmt::format_to(
        out,
        "{{\"name\":\"{}\",\"cat\":\"{}\",\"pid\":{},\"tid\":{},\"ts\":{}.0,\"dur\":{}.0,\"ph\":\"X\",\"args\":"
        "{{\"step\":{},\"model_chunk\":{},\"mb_id\":-1,\"seq_id\":{}}}}},",
        name, name, operation.dp_rank, operation.stage * 1000 + operation.dp_rank * 5 + static_cast<unsigned>(stream),
        operation.begin, operation.end - operation.begin, operation.step, operation.model_chunk, operation.sequence);
  }
  for (const auto& [stage, dp, stream] : threads) {
    const char* names[] = {"compute", "pp-comm", "tp-comm", "dp-comm"};
    fmt::format_to(out,
                   "{{\"name\":\"thread_name\",\"pid\":{},\"tid\":{},\"ph\":\"M\",\"args\":{{\"name\":\"PP rank {}, TP "
                   "rank 0, {}\"}}}},",
                   dp, stage * 1000 + dp * 5 + static_cast<unsigned>(stream), stage, names[stream]);
  }
  text.back() = ']';
  return text;
}

}  // namespace paceline::test_support
