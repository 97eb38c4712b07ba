#pragma once
#include <cstdint>
#include <vector>

namespace paceline::diagnose {

/// P(X >= hits) for X ~ Binomial(trials, chance).
double binomial_tail(std::uint32_t hits, std::uint32_t trials, double chance);

/// How likely chance would make the mean of `excess`, one value for each of n steps, as large as it is: Student's t, an
/// upper bound that far out is too large by a factor of (n - 1) / (n - 2). 1 for fewer than three steps.
double excess_tail(const std::vector<double>& excess);

}  // namespace paceline::diagnose
