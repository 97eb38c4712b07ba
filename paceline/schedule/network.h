#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "paceline/base/json.h"

namespace paceline::schedule {

/// A small dense network: hidden layers with tanh or ReLU, a linear last layer, and optionally a linear path from the
/// input straight to the output. Inference only; learning is a helper program.
struct Network {
  enum class Activation : std::uint8_t { kTanh, kRelu };

  std::vector<int> sizes;  // input, hidden ..., output
  Activation activation = Activation::kTanh;
  bool skip = false;
  std::vector<float> parameters;  // per layer: weights by [out][in], then biases; last the skip's weights [out][in]

  static std::size_t parameter_count(const std::vector<int>& sizes, bool skip);
  /// `scratch` is reused between calls. O(parameters).
  void run(std::span<const float> input, std::span<float> output, std::vector<float>& scratch) const;
};

base::Json to_json(const Network& network);
/// Throws Error(kBadInput) naming `where` when sizes and parameters do not agree.
Network network_from_json(const base::Json& json, const std::string& where);

}  // namespace paceline::schedule
