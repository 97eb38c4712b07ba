#include "paceline/schedule/triangulation.h"

#include <gtest/gtest.h>

#include "paceline/base/rng.h"

namespace paceline::schedule {
namespace {

TEST(LinearInterpolator, ReproducesAPlaneEverywhereInsideAndNothingOutside) {
  base::Rng rng(7);
  const auto plane = [](const LinearInterpolator::Point& p) {
    return LinearInterpolator::Value{1 + 2 * p[0] - 3 * p[1] + 0.5 * p[2], p[0] + p[1] + p[2]};
  };
  std::vector<LinearInterpolator::Point> points;
  std::vector<LinearInterpolator::Value> values;
  for (int x = 0; x < 5; ++x)
    for (int y = 0; y < 5; ++y)
      for (int z = 0; z < 5; ++z) points.push_back({x * 1.0, y * 2.0, z * 3.0}), values.push_back(plane(points.back()));
  const LinearInterpolator interpolator(points, values);
  for (int i = 0; i < 1000; ++i) {
    const LinearInterpolator::Point p{rng.uniform() * 4, rng.uniform() * 8, rng.uniform() * 12};
    const auto value = interpolator.at(p);
    ASSERT_TRUE(value.has_value());
    EXPECT_NEAR((*value)[0], plane(p)[0], 1e-9);
    EXPECT_NEAR((*value)[1], plane(p)[1], 1e-9);
  }
  EXPECT_FALSE(interpolator.at({4.1, 1, 1}).has_value());
}

TEST(LinearInterpolator, HitsEveryPoint) {
  base::Rng rng(11);
  std::vector<LinearInterpolator::Point> points;
  std::vector<LinearInterpolator::Value> values;
  for (int i = 0; i < 200; ++i) {
    points.push_back({rng.uniform(), rng.uniform(), rng.uniform()});
    values.push_back({rng.uniform(), rng.uniform()});
  }
  const LinearInterpolator interpolator(points, values);
  for (std::size_t i = 0; i < points.size(); ++i) {
    const auto value = interpolator.at(points[i]);
    ASSERT_TRUE(value.has_value());
    EXPECT_NEAR((*value)[0], values[i][0], 1e-9);
  }
}

}  // namespace
}  // namespace paceline::schedule
