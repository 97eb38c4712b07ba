#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace paceline::schedule {

/// Piecewise linear interpolation of values over scattered points in three dimensions, on their Delaunay
/// triangulation by Qhull (options "d Qt Qbb Qc Qz Q12", those of SciPy's LinearNDInterpolator). On grid-like points
/// the triangulation is not unique: the order of the points decides it, so keep the order to reproduce a result.
class LinearInterpolator {
 public:
  using Point = std::array<double, 3>;
  using Value = std::array<double, 2>;

  LinearInterpolator(std::span<const Point> points, std::span<const Value> values);

  /// Nothing outside the convex hull. O(simplices).
  std::optional<Value> at(const Point& point) const;

 private:
  struct Simplex {
    std::array<std::uint32_t, 4> vertices;
    Point origin;                  // the last vertex
    std::array<Point, 3> inverse;  // rows give the first three barycentric coordinates of (point - origin)
  };

  std::vector<Value> values_;
  std::vector<Simplex> simplices_;
};

}  // namespace paceline::schedule
