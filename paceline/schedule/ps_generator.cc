#include "paceline/schedule/ps_generator.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "paceline/base/error.h"
#include "paceline/base/json.h"
#include "paceline/base/rng.h"

namespace paceline::schedule {
namespace {

struct Type {
  const char* model;
  double epoch_batches;
  double share_of_epochs;
  int worker_gpu_slots;
};
// Every worker takes 2 CPUs, every server 2 CPUs and no GPU.
constexpr std::array<Type, 8> kTypes{{{"resnet-50", 115, 0.30, 4},
                                      {"vgg-16", 115, 0.96, 4},
                                      {"resnext-110", 390, 0.05, 4},
                                      {"inception-bn", 120, 0.54, 4},
                                      {"seq2seq", 780, 0.95, 4},
                                      {"cnn-text-classification", 193, 0.46, 0},
                                      {"dssm", 349, 0.33, 0},
                                      {"wlm", 165, 0.23, 4}}};

}  // namespace

std::vector<int> read_arrival_pattern(const std::filesystem::path& path, int most_per_slot) {
  const base::Json json = base::parse_json(read_document_text(path), path.string());
  const std::string key = std::to_string(most_per_slot);
  if (!json.is_object() || !json.contains(key) || !json[key].is_array())
    throw Error(ErrorKind::kBadInput, path.string(), fmt::format("has no arrival pattern '{}'", key));
  std::vector<int> arrivals;
  for (const auto& count : json[key]) {
    if (!count.is_number_integer() || count.get<int>() < 0)
      throw Error(ErrorKind::kBadInput, path.string(), fmt::format("pattern '{}' holds what is no count", key));
    arrivals.push_back(count.get<int>());
  }
  return arrivals;
}

PsTrace generate_ps_trace(const PsGenerator& generator, std::uint64_t seed) {
  if (std::none_of(generator.arrivals.begin(), generator.arrivals.end(), [](int count) { return count > 0; }))
    throw Error(ErrorKind::kBadInput, "arrival pattern", "has no arrivals");
  base::Rng rng(seed);
  PsTrace trace{fmt::format("generated-{}", seed), {}, {}};
  std::size_t at = rng.below(5);
  for (int slot = 0; static_cast<int>(trace.jobs.size()) < generator.jobs; ++slot, ++at) {
    const int count = std::min(generator.most_per_slot, generator.arrivals[at % generator.arrivals.size()]);
    for (int i = 0; i < count && static_cast<int>(trace.jobs.size()) < generator.jobs; ++i) {
      const auto index = static_cast<int>(rng.below(kTypes.size()));
      const Type& type = kTypes[static_cast<std::size_t>(index)];
      trace.jobs.push_back({static_cast<int>(trace.jobs.size()) + 1,
                            slot,
                            index + 1,
                            type.model,
                            type.share_of_epochs * generator.most_epochs,
                            type.epoch_batches,
                            {2, type.worker_gpu_slots},
                            {2, 0},
                            0});
    }
  }
  return trace;
}

}  // namespace paceline::schedule
