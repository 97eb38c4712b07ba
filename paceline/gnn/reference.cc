#include "paceline/gnn/reference.h"

#include <algorithm>
#include <cmath>

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

}  // namespace paceline::gnn::reference
