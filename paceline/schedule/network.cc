#include "paceline/schedule/network.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "paceline/base/error.h"

namespace paceline::schedule {
namespace {

/// tanh within 3e-4 by a rational function; four times as fast as the library's.
float fast_tanh(float x) {
  x = std::clamp(x, -4.97f, 4.97f);
  const float y = x * x;
  return x * (135135.0f + y * (17325.0f + y * (378.0f + y))) / (135135.0f + y * (62370.0f + y * (3150.0f + y * 28.0f)));
}

}  // namespace

std::size_t Network::parameter_count(const std::vector<int>& sizes, bool skip) {
  std::size_t count = 0;
  for (std::size_t i = 0; i + 1 < sizes.size(); ++i)
    count += static_cast<std::size_t>(sizes[i] + 1) * static_cast<std::size_t>(sizes[i + 1]);
  if (skip) count += static_cast<std::size_t>(sizes.front()) * static_cast<std::size_t>(sizes.back());
  return count;
}

void Network::run(std::span<const float> input, std::span<float> output, std::vector<float>& scratch) const {
  const auto widest = static_cast<std::size_t>(*std::max_element(sizes.begin(), sizes.end()));
  scratch.resize(2 * widest);
  const float* from = input.data();
  const float* weight = parameters.data();
  for (std::size_t layer = 0; layer + 1 < sizes.size(); ++layer) {
    const auto in = static_cast<std::size_t>(sizes[layer]), out = static_cast<std::size_t>(sizes[layer + 1]);
    const bool last = layer + 2 == sizes.size();
    float* to = last ? output.data() : scratch.data() + (layer % 2) * widest;
    const float* bias = weight + in * out;
    for (std::size_t o = 0; o < out; ++o, weight += in) {
      float sum = bias[o];
      for (std::size_t i = 0; i < in; ++i) sum += weight[i] * from[i];
      to[o] = last ? sum : activation == Activation::kTanh ? fast_tanh(sum) : std::max(sum, 0.0f);
    }
    weight += out;
    from = to;
  }
  if (!skip) return;
  for (float& value : output)
    for (const float x : input) value += *weight++ * x;
}

base::Json to_json(const Network& network) {
  base::Json json;
  json["sizes"] = network.sizes;
  json["activation"] = network.activation == Network::Activation::kTanh ? "tanh" : "relu";
  json["skip"] = network.skip;
  json["parameters"] = network.parameters;
  return json;
}

Network network_from_json(const base::Json& json, const std::string& where) {
  Network network;
  try {
    network.sizes = json.at("sizes").get<std::vector<int>>();
    network.activation =
        json.at("activation").get<std::string>() == "relu" ? Network::Activation::kRelu : Network::Activation::kTanh;
    network.skip = json.at("skip").get<bool>();
    network.parameters = json.at("parameters").get<std::vector<float>>();
  } catch (const nlohmann::json::exception& error) {
    throw Error(ErrorKind::kBadInput, where, fmt::format("is not a network: {}", error.what()));
  }
  const bool sane = network.sizes.size() >= 2 && std::all_of(network.sizes.begin(), network.sizes.end(),
                                                             [](int n) { return n > 0 && n <= 100'000; });
  if (!sane || network.parameters.size() != Network::parameter_count(network.sizes, network.skip))
    throw Error(ErrorKind::kBadInput, where,
                fmt::format("has {} parameters, which its layer sizes do not ask for", network.parameters.size()));
  return network;
}

}  // namespace paceline::schedule
