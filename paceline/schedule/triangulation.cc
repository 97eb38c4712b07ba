#include "paceline/schedule/triangulation.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <memory>

#include "paceline/base/error.h"

extern "C" {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpedantic"
#include <libqhull_r/qhull_ra.h>
#pragma GCC diagnostic pop
}

namespace paceline::schedule {
namespace {

constexpr int kDimension = 3;
// SciPy accepts a point whose barycentric coordinates are above -100 epsilon.
constexpr double kInside = 100 * std::numeric_limits<double>::epsilon();

/// Frees what Qhull allocated, also when it gave up.
struct QhullDeleter {
  void operator()(qhT* qh) const {
    qh_freeqhull(qh, !qh_ALL);
    int short_memory = 0, total_memory = 0;
    qh_memfreeshort(qh, &short_memory, &total_memory);
    delete qh;
  }
};

/// The inverse of the matrix whose columns are the edges; nothing for a flat simplex.
std::optional<std::array<LinearInterpolator::Point, 3>> invert(
    const std::array<LinearInterpolator::Point, 3>& columns) {
  const auto& [a, b, c] = columns;
  const auto cross = [](const auto& u, const auto& v) {
    return LinearInterpolator::Point{u[1] * v[2] - u[2] * v[1], u[2] * v[0] - u[0] * v[2], u[0] * v[1] - u[1] * v[0]};
  };
  const auto bc = cross(b, c), ca = cross(c, a), ab = cross(a, b);
  const double determinant = a[0] * bc[0] + a[1] * bc[1] + a[2] * bc[2];
  // The points are integers, so a simplex that is not flat has a determinant of at least 1.
  if (std::abs(determinant) < 1e-9) return std::nullopt;
  std::array<LinearInterpolator::Point, 3> rows{bc, ca, ab};
  for (auto& row : rows)
    for (double& x : row) x /= determinant;
  return rows;
}

}  // namespace

LinearInterpolator::LinearInterpolator(std::span<const Point> points, std::span<const Value> values)
    : values_(values.begin(), values.end()) {
  PL_CHECK(points.size() == values.size());
  std::unique_ptr<qhT, QhullDeleter> qh(new qhT);
  qh_zero(qh.get(), stderr);
  std::vector<double> coordinates;
  for (const Point& point : points) coordinates.insert(coordinates.end(), point.begin(), point.end());
  char options[] = "qhull d Qt Qbb Qc Qz Q12";
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> quiet(std::fopen("/dev/null", "w"), std::fclose);
  if (qh_new_qhull(qh.get(), kDimension, static_cast<int>(points.size()), coordinates.data(), False, options, nullptr,
                   quiet.get()) != 0)
    throw Error(ErrorKind::kBadInput, "profile", "its points cannot be triangulated (too few or all in one plane)");

  for (facetT* facet = qh->facet_list; facet && facet->next; facet = facet->next) {
    if (facet->upperdelaunay || !facet->simplicial) continue;
    Simplex simplex;
    std::size_t count = 0;
    for (void** entry = reinterpret_cast<void**>(&facet->vertices->e[0].p); *entry && count < 4; ++entry)
      simplex.vertices[count++] =
          static_cast<std::uint32_t>(qh_pointid(qh.get(), static_cast<vertexT*>(*entry)->point));
    // "Qz" adds a point at infinity that belongs to no interpolation.
    if (count < 4 ||
        std::any_of(
            simplex.vertices.begin(), simplex.vertices.end(), [&](std::uint32_t v) { return v >= points.size(); }))
      continue;
    simplex.origin = points[simplex.vertices[3]];
    std::array<Point, 3> edges;
    for (std::size_t i = 0; i < 3; ++i)
      for (std::size_t d = 0; d < 3; ++d) edges[i][d] = points[simplex.vertices[i]][d] - simplex.origin[d];
    const auto inverse = invert(edges);
    if (!inverse) continue;
    simplex.inverse = *inverse;
    simplices_.push_back(simplex);
  }
}

std::optional<LinearInterpolator::Value> LinearInterpolator::at(const Point& point) const {
  for (const Simplex& simplex : simplices_) {
    std::array<double, 4> weight{0, 0, 0, 1};
    for (std::size_t i = 0; i < 3; ++i) {
      for (std::size_t d = 0; d < 3; ++d) weight[i] += simplex.inverse[i][d] * (point[d] - simplex.origin[d]);
      weight[3] -= weight[i];
    }
    if (*std::min_element(weight.begin(), weight.end()) < -kInside) continue;
    Value value{0, 0};
    for (std::size_t i = 0; i < 4; ++i)
      for (std::size_t k = 0; k < value.size(); ++k) value[k] += weight[i] * values_[simplex.vertices[i]][k];
    return value;
  }
  return std::nullopt;
}

}  // namespace paceline::schedule
