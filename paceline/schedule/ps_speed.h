#pragma once
#include <array>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace paceline::schedule {

/// How fast a parameter-server job trains with so many servers and workers: a linear radial basis function through
/// the measured points, s(x) = sum_i c_i |x - x_i| with s(x_i) = y_i (SciPy's Rbf(function='linear')).
class PsSpeed {
 public:
  struct Sample {
    double servers = 0, workers = 0, speed = 0;
  };
  explicit PsSpeed(std::vector<Sample> samples);

  /// O(samples). In the unit of the samples.
  double at(double servers, double workers) const;
  const std::vector<Sample>& samples() const { return samples_; }

 private:
  std::vector<Sample> samples_;
  std::vector<double> coefficients_;
};

/// DL2's measured table: lines (model, mode, batch, servers, workers, [speed per worker], ...), by model; the speed is
/// the sum over workers, in batches per second.
std::map<std::string, PsSpeed> read_ps_speeds(const std::filesystem::path& path);

}  // namespace paceline::schedule
