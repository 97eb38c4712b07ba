#include "paceline/base/statistics.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "paceline/base/error.h"

namespace paceline::base {

double mean(std::span<const double> values) {
  PL_CHECK(!values.empty());
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double standard_deviation(std::span<const double> values) {
  if (values.size() < 2) return 0.0;
  const double center = mean(values);
  double sum = 0.0;
  for (const double value : values) sum += (value - center) * (value - center);
  return std::sqrt(sum / static_cast<double>(values.size() - 1));
}

double quantile(std::span<const double> values, double q) {
  PL_CHECK(!values.empty() && q >= 0.0 && q <= 1.0);
  std::vector<double> sorted(values.begin(), values.end());
  const double position = q * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(position);
  std::nth_element(sorted.begin(), sorted.begin() + static_cast<std::ptrdiff_t>(below), sorted.end());
  const double low = sorted[below];
  if (position == static_cast<double>(below)) return low;
  const double high = *std::min_element(sorted.begin() + static_cast<std::ptrdiff_t>(below) + 1, sorted.end());
  return low + (high - low) * (position - static_cast<double>(below));
}

double median(std::span<const double> values) {
  return quantile(values, 0.5);
}

namespace {
std::vector<double> mean_ranks(std::span<const double> values) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return values[a] < values[b]; });
  std::vector<double> ranks(values.size());
  for (std::size_t begin = 0; begin < order.size();) {
    std::size_t end = begin;
    while (end < order.size() && values[order[end]] == values[order[begin]]) ++end;
    const double shared = static_cast<double>(begin + end - 1) / 2.0;
    for (std::size_t i = begin; i < end; ++i) ranks[order[i]] = shared;
    begin = end;
  }
  return ranks;
}
}  // namespace

double spearman(std::span<const double> a, std::span<const double> b) {
  PL_CHECK(a.size() == b.size() && a.size() > 1);
  const std::vector<double> ranks_a = mean_ranks(a);
  const std::vector<double> ranks_b = mean_ranks(b);
  const double center = static_cast<double>(a.size() - 1) / 2.0;
  double ab = 0, aa = 0, bb = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double da = ranks_a[i] - center, db = ranks_b[i] - center;
    ab += da * db, aa += da * da, bb += db * db;
  }
  return aa == 0 || bb == 0 ? 0.0 : ab / std::sqrt(aa * bb);
}

Line theil_sen(std::span<const double> x, std::span<const double> y) {
  PL_CHECK(x.size() == y.size() && !x.empty());
  std::vector<double> slopes;
  slopes.reserve(x.size() * (x.size() - 1) / 2);
  for (std::size_t i = 0; i < x.size(); ++i) {
    for (std::size_t j = i + 1; j < x.size(); ++j) {
      if (x[i] != x[j]) slopes.push_back((y[j] - y[i]) / (x[j] - x[i]));
    }
  }
  Line line;
  line.slope = slopes.empty() ? 0.0 : median(slopes);
  std::vector<double> intercepts(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) intercepts[i] = y[i] - line.slope * x[i];
  line.intercept = median(intercepts);
  return line;
}

}  // namespace paceline::base
