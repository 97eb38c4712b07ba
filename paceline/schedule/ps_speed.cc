#include "paceline/schedule/ps_speed.h"

#include <fmt/core.h>

#include <Eigen/Dense>
#include <cmath>

#include "paceline/base/error.h"
#include "paceline/schedule/csv.h"

namespace paceline::schedule {
namespace {

double distance(const PsSpeed::Sample& a, double servers, double workers) {
  return std::hypot(a.servers - servers, a.workers - workers);
}

}  // namespace

PsSpeed::PsSpeed(std::vector<Sample> samples) : samples_(std::move(samples)) {
  const auto count = static_cast<Eigen::Index>(samples_.size());
  Eigen::MatrixXd distances(count, count);
  Eigen::VectorXd speeds(count);
  for (Eigen::Index i = 0; i < count; ++i) {
    const Sample& sample = samples_[static_cast<std::size_t>(i)];
    speeds(i) = sample.speed;
    for (Eigen::Index j = 0; j < count; ++j)
      distances(i, j) = distance(samples_[static_cast<std::size_t>(j)], sample.servers, sample.workers);
  }
  const Eigen::VectorXd solution = distances.partialPivLu().solve(speeds);
  coefficients_.assign(solution.begin(), solution.end());
}

double PsSpeed::at(double servers, double workers) const {
  double speed = 0;
  for (std::size_t i = 0; i < samples_.size(); ++i) speed += coefficients_[i] * distance(samples_[i], servers, workers);
  return speed;
}

std::map<std::string, PsSpeed> read_ps_speeds(const std::filesystem::path& path) {
  std::map<std::string, std::vector<PsSpeed::Sample>> samples;
  const std::string text = read_document_text(path);
  int line = 0;
  for (std::string_view content : split(text, '\n')) {
    ++line;
    content = trim(content);
    if (content.empty()) continue;
    const auto bad = [&] {
      return Error(ErrorKind::kBadInput, fmt::format("{}:{}", path.string(), line),
                   "expected ('model', 'mode', batch, servers, workers, [speed per worker], ...)");
    };
    const std::size_t open = content.find('['), close = content.find(']');
    if (open == std::string_view::npos || close == std::string_view::npos) throw bad();
    const auto fields = split(content.substr(0, open), ',');
    if (fields.size() < 5 || trim(fields[0]).size() < 4) throw bad();
    const std::string_view model = trim(fields[0]);  // ('name'
    const auto servers = parse_number(trim(fields[3])), workers = parse_number(trim(fields[4]));
    if (!servers || !workers) throw bad();
    PsSpeed::Sample sample{*servers, *workers, 0};
    for (std::string_view part : split(content.substr(open + 1, close - open - 1), ',')) {
      const auto speed = parse_number(trim(part));
      if (!speed) throw bad();
      sample.speed += *speed;
    }
    samples[std::string(model.substr(2, model.size() - 3))].push_back(sample);
  }
  std::map<std::string, PsSpeed> speeds;
  for (auto& [model, points] : samples) speeds.emplace(model, PsSpeed(std::move(points)));
  return speeds;
}

}  // namespace paceline::schedule
