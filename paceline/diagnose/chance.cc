#include "paceline/diagnose/chance.h"

#include <cmath>

#include "paceline/base/statistics.h"

namespace paceline::diagnose {
namespace {

/// Upper bound of P(T > t) for Student's T with `freedom` >= 2 degrees: the density integrated with x / t >= 1 under
/// the integral; far out too large by a factor of freedom / (freedom - 1).
double student_tail(double t, double freedom) {
  if (t <= 0) return 1.0;
  constexpr double kPi = 3.14159265358979323846;
  const double log_density = std::lgamma((freedom + 1) / 2) - std::lgamma(freedom / 2) - std::log(freedom * kPi) / 2;
  return std::exp(log_density + std::log(freedom / ((freedom - 1) * t)) -
                  (freedom - 1) / 2 * std::log1p(t * t / freedom));
}

}  // namespace

double binomial_tail(std::uint32_t hits, std::uint32_t trials, double chance) {
  double tail = 0;
  for (std::uint32_t k = hits; k <= trials; ++k) {
    tail += std::exp(std::lgamma(trials + 1.0) - std::lgamma(k + 1.0) - std::lgamma(trials - k + 1.0) +
                     k * std::log(chance) + (trials - k) * std::log1p(-chance));
  }
  return tail;
}

double excess_tail(const std::vector<double>& excess) {
  if (excess.size() < 3) return 1.0;
  const double mean = base::mean(excess);
  const double error = base::standard_deviation(excess) / std::sqrt(static_cast<double>(excess.size()));
  if (error == 0) return mean > 0 ? 0.0 : 1.0;
  return student_tail(mean / error, static_cast<double>(excess.size() - 1));
}

}  // namespace paceline::diagnose
