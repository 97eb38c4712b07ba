#pragma once
#include <cstddef>
#include <span>
#include <vector>

namespace paceline::base {

double mean(std::span<const double> values);
/// Sample standard deviation (n - 1); 0 for fewer than two values.
double standard_deviation(std::span<const double> values);
/// Linear interpolation between closest ranks (type 7 of Hyndman and Fan 1996, numpy's default). q in [0, 1].
double quantile(std::span<const double> values, double q);
double median(std::span<const double> values);

/// Spearman's rank correlation with mean ranks for ties.
double spearman(std::span<const double> a, std::span<const double> b);

/// y = intercept + slope * x with the median of pairwise slopes (Theil-Sen): one wild point does not move it.
/// O(n^2) pairs; callers thin large inputs.
struct Line {
  double intercept = 0;
  double slope = 0;
};
Line theil_sen(std::span<const double> x, std::span<const double> y);

}  // namespace paceline::base
