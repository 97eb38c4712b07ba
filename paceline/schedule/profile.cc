#include "paceline/schedule/profile.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "paceline/base/error.h"
#include "paceline/schedule/csv.h"

namespace paceline::schedule {
namespace {

constexpr int kMostProfiledNodes = 16;

double number(const Csv& csv, const Csv::Row& row, std::size_t column) {
  const auto value = column < row.cells.size() ? parse_number(row.cells[column]) : std::nullopt;
  if (!value) throw Error(ErrorKind::kBadInput, csv.where(row), fmt::format("column {} is not a number", column + 1));
  return *value;
}

std::string placement_id(const Placement& placement) {
  std::string id;
  for (int count : placement) id += static_cast<char>('0' + count);
  return id;
}

/// The lexicographically smallest rotation.
Placement normalise(const Placement& placement) {
  Placement best = placement, rotated = placement;
  for (std::size_t i = 1; i < placement.size(); ++i) {
    std::rotate(rotated.begin(), rotated.begin() + 1, rotated.end());
    best = std::min(best, rotated);
  }
  return best;
}

}  // namespace

Placement placement_of(const Allocation& allocation) {
  Placement placement;
  for (std::size_t i = 0; i < allocation.size(); ++i) {
    if (i > 0 && allocation[i] == allocation[i - 1])
      ++placement.back();
    else
      placement.push_back(1);
  }
  return placement;
}

Placement packed_placement(int replicas, int per_node) {
  Placement placement;
  for (; replicas > 0; replicas -= per_node) placement.push_back(std::min(replicas, per_node));
  return placement;
}

Application::Application(const std::filesystem::path& folder, Limits limits) : name_(folder.filename().string()) {
  struct Sum {
    std::vector<StepTime> times;
  };
  std::map<std::array<int, 3>, Sum> groups;
  const Csv placements = Csv::from_file(folder / "placements.csv");
  const std::size_t placement = placements.column("placement"), local = placements.column("local_bsz"),
                    step = placements.column("step_time"), sync = placements.column("sync_time");
  min_local_batch_ = std::numeric_limits<int>::max();
  for (const Csv::Row& row : placements.rows()) {
    const double batch = number(placements, row, local);
    const StepTime time{number(placements, row, step), number(placements, row, sync)};
    const std::string_view id = row.cells[placement];
    if (id.empty() || id.find_first_not_of("123456789") != std::string_view::npos)
      throw Error(ErrorKind::kBadInput, placements.where(row), fmt::format("placement '{}' is not digits", id));
    Measured& measured = placements_[std::string(id)];
    const auto at = std::upper_bound(measured.local_batch.begin(), measured.local_batch.end(), batch);
    measured.time.insert(measured.time.begin() + (at - measured.local_batch.begin()), time);
    measured.local_batch.insert(at, batch);
    int replicas = 0;
    for (char c : id) replicas += c - '0';
    groups[{static_cast<int>(id.size()), replicas, static_cast<int>(batch)}].times.push_back(time);
    min_local_batch_ = std::min(min_local_batch_, static_cast<int>(batch));
    max_local_batch_ = std::max(max_local_batch_, static_cast<int>(batch));
  }
  if (limits.max_local_batch > 0) max_local_batch_ = limits.max_local_batch;
  for (const auto& [key, sum] : groups) {
    LinearInterpolator::Value mean{0, 0};
    for (const StepTime& time : sum.times) mean[0] += time.step, mean[1] += time.sync;
    for (double& value : mean) value /= static_cast<double>(sum.times.size());
    points_.push_back({static_cast<double>(key[0]), static_cast<double>(key[1]), static_cast<double>(key[2])});
    values_.push_back(mean);
  }
  if (std::filesystem::exists(folder / "scalability.csv")) {
    const Csv scalability = Csv::from_file(folder / "scalability.csv");
    const std::array<std::size_t, 5> columns{scalability.column("num_nodes"), scalability.column("num_replicas"),
                                             scalability.column("local_bsz"), scalability.column("step_time"),
                                             scalability.column("sync_time")};
    for (const Csv::Row& row : scalability.rows()) {
      std::array<double, 5> x;
      for (std::size_t i = 0; i < x.size(); ++i) x[i] = number(scalability, row, columns[i]);
      points_.push_back({x[0], x[1], x[2]});
      values_.push_back({x[3], x[4]});
    }
  }

  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string file = entry.path().filename().string();
    if (!file.starts_with("validation-")) continue;
    const auto batch = parse_integer(std::string_view(file).substr(11, file.find('.') - 11));
    if (!batch) throw Error(ErrorKind::kBadInput, entry.path().string(), "has no batch size in its name");
    const Csv csv = Csv::from_file(entry.path());
    const std::size_t progress = csv.column("progress"), iteration = csv.column("iteration"),
                      squared = csv.column("grad_sqr"), variance = csv.column("grad_var");
    auto& epochs = validation_[static_cast<int>(*batch)];
    for (const Csv::Row& row : csv.rows())
      epochs.push_back({number(csv, row, progress), number(csv, row, iteration), number(csv, row, squared),
                        number(csv, row, variance)});
  }
  if (validation_.empty()) throw Error(ErrorKind::kBadInput, folder.string(), "has no validation-<batch>.csv");
  initial_batch_ = validation_.begin()->first;
  max_batch_ = validation_.rbegin()->first;
  max_epochs_ = limits.max_epochs;
  for (const auto& [batch, epochs] : validation_)
    if (max_epochs_ > static_cast<int>(epochs.size()))
      throw Error(ErrorKind::kBadInput, folder.string(),
                  fmt::format("validation-{}.csv has {} epochs, {} needed", batch, epochs.size(), max_epochs_));
  progress_.assign(static_cast<std::size_t>(max_epochs_) + 1, 0.0);
  for (std::size_t epoch = 1; epoch < progress_.size(); ++epoch) {
    progress_[epoch] = std::numeric_limits<double>::infinity();
    for (const auto& [batch, epochs] : validation_)
      progress_[epoch] = std::min(progress_[epoch], epochs[epoch - 1].progress);
  }
}

const LinearInterpolator& Application::interpolator() const {
  if (!interpolator_) interpolator_ = std::make_unique<LinearInterpolator>(points_, values_);
  return *interpolator_;
}

Application::StepTime Application::step_time(const Placement& placement, int local_batch) const {
  const Placement normalised = normalise(placement);
  std::string key = placement_id(normalised);
  key += '/';
  key += std::to_string(local_batch);
  const auto found = memo_.find(key);
  if (found != memo_.end()) return found->second;
  return memo_[std::move(key)] = compute_step_time(normalised, local_batch);
}

Application::StepTime Application::compute_step_time(const Placement& normalised, int local_batch) const {
  const double x = local_batch;
  const auto outside = [&]() -> Error {
    return Error(
        ErrorKind::kBadInput, name_,
        fmt::format("was not measured near placement {} with local batch {}", placement_id(normalised), local_batch));
  };
  const auto found = placements_.find(placement_id(normalised));
  if (found != placements_.end()) {
    const Measured& measured = found->second;
    const auto& xs = measured.local_batch;
    if (x < xs.front() || x > xs.back()) throw outside();
    if (xs.size() == 1) return measured.time.front();
    const auto at = static_cast<std::size_t>(std::lower_bound(xs.begin(), xs.end(), x) - xs.begin());
    const std::size_t high = std::clamp<std::size_t>(at, 1, xs.size() - 1), low = high - 1;
    const auto line = [&](double from, double to) { return (to - from) / (xs[high] - xs[low]) * (x - xs[low]) + from; };
    return {line(measured.time[low].step, measured.time[high].step),
            line(measured.time[low].sync, measured.time[high].sync)};
  }
  const int replicas = std::accumulate(normalised.begin(), normalised.end(), 0);
  const int nodes = std::min(static_cast<int>(normalised.size()), kMostProfiledNodes);
  const auto value = interpolator().at({static_cast<double>(nodes), static_cast<double>(replicas), x});
  if (!value) throw outside();
  return {(*value)[0], (*value)[1]};
}

Application::Between Application::between(int batch) const {
  const auto upper = validation_.lower_bound(batch);
  if (upper == validation_.end() || (upper == validation_.begin() && upper->first != batch))
    throw Error(ErrorKind::kBadInput, name_,
                fmt::format("was validated for batch sizes {} to {}, not {}", initial_batch_, max_batch_, batch));
  const auto lower = upper->first == batch ? upper : std::prev(upper);
  return {&lower->second, &upper->second, static_cast<double>(lower->first), static_cast<double>(upper->first)};
}

Application::GradientNoise Application::gradient_noise(int batch, int epoch) const {
  const Between b = between(batch);
  const Epoch& low = (*b.lower)[static_cast<std::size_t>(epoch)];
  const Epoch& high = (*b.upper)[static_cast<std::size_t>(epoch)];
  if (b.lower == b.upper) return {low.squared, low.variance};
  const double from_low = batch - b.lower_batch, to_high = b.upper_batch - batch, width = b.upper_batch - b.lower_batch;
  return {(from_low * high.squared + to_high * low.squared) / width,
          (from_low * high.variance + to_high * low.variance) / width};
}

double Application::iterations(int batch, int epoch) const {
  const Between b = between(batch);
  const double low = (*b.lower)[static_cast<std::size_t>(epoch)].iteration;
  const double high = (*b.upper)[static_cast<std::size_t>(epoch)].iteration;
  if (b.lower == b.upper) return low;
  return ((batch - b.lower_batch) * high + (b.upper_batch - batch) * low) / (b.upper_batch - b.lower_batch);
}

std::map<std::string, std::unique_ptr<Application>, std::less<>> read_pollux_applications(
    const std::filesystem::path& folder) {
  // Epochs and local batch limit of osdi21-artifact's simulator.
  const std::map<std::string, Application::Limits> known{{"bert", {2, 0}},         {"cifar10", {100, 0}},
                                                         {"ncf", {10, 0}},         {"imagenet", {90, 0}},
                                                         {"deepspeech2", {80, 0}}, {"yolov3", {50, 8}}};
  std::map<std::string, std::unique_ptr<Application>, std::less<>> applications;
  for (const auto& [name, limits] : known) applications[name] = std::make_unique<Application>(folder / name, limits);
  return applications;
}

}  // namespace paceline::schedule
