#include "paceline/gnn/reference.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <map>
#include <set>
#include <unordered_set>

namespace paceline::gnn::reference {

void FusedSampler::sample(std::span<const std::uint32_t> seeds, Sample<std::uint32_t>& out) {
  out.nodes.clear();
  out.source.clear();
  out.target.clear();
  out.edge_ids.clear();
  ++stamp_;
  const auto number = [&](std::uint32_t node) {
    if (stamps_[node] != stamp_) {
      stamps_[node] = stamp_;
      ids_[node] = static_cast<std::uint32_t>(out.nodes.size());
      out.nodes.push_back(node);
    }
    return ids_[node];
  };
  for (const std::uint32_t seed : seeds) number(seed);
  std::size_t begin = 0;
  for (const int fanout : fanout_) {
    const std::size_t end = out.nodes.size();
    for (std::size_t i = begin; i < end; ++i) {
      const std::uint64_t first = rows_.offsets[out.nodes[i]];
      const auto degree = static_cast<std::uint32_t>(rows_.offsets[out.nodes[i] + 1] - first);
      const auto add = [&](std::uint32_t at) {
        out.source.push_back(number(rows_.neighbours[first + at]));
        out.target.push_back(static_cast<std::uint32_t>(i));
        out.edge_ids.push_back(first + at);
      };
      const auto count = static_cast<std::uint32_t>(fanout);
      if (degree <= count) {
        for (std::uint32_t at = 0; at < degree; ++at) add(at);
        continue;
      }
      std::uint32_t picked[64];
      for (std::uint32_t k = 0; k < count; ++k) {
        const std::uint32_t last = degree - count + k;
        state_ ^= state_ << 13, state_ ^= state_ >> 7, state_ ^= state_ << 17;  // xorshift64 (Marsaglia 2003)
        auto pick = static_cast<std::uint32_t>(((state_ >> 32) * (last + 1)) >> 32);
        for (std::uint32_t j = 0; j < k; ++j)
          if (picked[j] == pick) {
            pick = last;
            break;
          }
        picked[k] = pick;
        add(pick);
      }
    }
    begin = end;
  }
}

double chi_square_tail(double value, double degrees) {
  const double a = degrees / 2;
  const double x = value / 2;
  if (x <= 0) return 1;
  const double scale = std::exp(-x + a * std::log(x) - std::lgamma(a));
  if (x < a + 1) {
    double term = 1 / a;
    double sum = term;
    for (double n = a + 1; term > sum * 1e-16; ++n) sum += term *= x / n;
    return 1 - sum * scale;
  }
  double b = x + 1 - a;
  double c = 1e300;
  double d = 1 / b;
  double fraction = d;
  for (int i = 1; i < 100000; ++i) {
    const double step = -i * (i - a);
    b += 2;
    d = 1 / (step * d + b);
    c = b + step / c;
    fraction *= d * c;
    if (std::fabs(d * c - 1) < 1e-15) break;
  }
  return scale * fraction;
}

std::uint64_t fifo_hits(const std::vector<std::vector<std::uint64_t>>& trace, std::uint64_t capacity, int shards) {
  const auto count = static_cast<std::uint64_t>(shards);
  std::vector<std::deque<std::uint64_t>> queues(count);
  std::vector<std::unordered_set<std::uint64_t>> held(count);
  std::uint64_t hits = 0;
  for (const auto& batch : trace) {
    std::vector<std::uint64_t> missing;
    for (const std::uint64_t id : batch) {
      if (held[id % count].contains(id))
        ++hits;
      else
        missing.push_back(id);
    }
    for (const std::uint64_t id : missing) {
      const std::uint64_t shard = id % count;
      const std::uint64_t room = capacity * (shard + 1) / count - capacity * shard / count;
      if (room == 0) continue;
      if (queues[shard].size() == room) {
        held[shard].erase(queues[shard].front());
        queues[shard].pop_front();
      }
      queues[shard].push_back(id);
      held[shard].insert(id);
    }
  }
  return hits;
}

std::uint64_t belady_hits(const std::vector<std::vector<std::uint64_t>>& trace, std::uint64_t capacity) {
  std::map<std::uint64_t, std::deque<std::size_t>> uses;
  for (std::size_t b = 0; b < trace.size(); ++b)
    for (const std::uint64_t id : trace[b]) uses[id].push_back(b);
  std::set<std::uint64_t> held;
  std::uint64_t hits = 0;
  for (const auto& batch : trace) {
    for (const std::uint64_t id : batch) {
      hits += held.contains(id);
      uses[id].pop_front();
    }
    std::set<std::pair<std::size_t, std::uint64_t>> candidates;
    held.insert(batch.begin(), batch.end());
    for (const std::uint64_t id : held)
      candidates.emplace(uses[id].empty() ? std::numeric_limits<std::size_t>::max() : uses[id].front(), id);
    held.clear();
    for (const auto& [next, id] : candidates) {
      if (held.size() == capacity) break;
      held.insert(id);
    }
  }
  return hits;
}

}  // namespace paceline::gnn::reference
