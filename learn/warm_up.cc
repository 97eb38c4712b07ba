#include <ATen/core/ivalue.h>
#include <torch/torch.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "learn/learn.h"
#include "paceline/base/error.h"
#include "paceline/schedule/network.h"
#include "paceline/schedule/ps_generator.h"
#include "paceline/schedule/windowed.h"

namespace paceline::learn {
namespace {

using schedule::Grant;
using schedule::SlottedCluster;

struct Decisions {
  std::vector<float> states;
  std::vector<float> masks;  // 0 open, -1e9 closed
  std::vector<std::int64_t> actions;
};

std::unique_ptr<schedule::SlottedPolicy> make_teacher(const std::string& name) {
  using schedule::MisfitRule;
  if (name == "DRF") return schedule::make_ps_drf(MisfitRule::kStop);
  if (name == "DRF-repaired") return schedule::make_ps_drf(MisfitRule::kGoOn);
  if (name == "Optimus") return schedule::make_ps_optimus(MisfitRule::kStop);
  if (name == "Optimus-repaired") return schedule::make_ps_optimus(MisfitRule::kGoOn);
  throw Error(ErrorKind::kUsage, "--teacher", "'" + name + "' is none of DRF, DRF-repaired, Optimus, Optimus-repaired");
}

/// Everything that the teacher grants within the window, and that it closes the slot.
void watch(const schedule::PsTrace& trace, const schedule::PsSpeedTable& speeds, const Setting& setting, int window,
           schedule::SlottedPolicy& teacher, Decisions& decisions) {
  SlottedCluster cluster(trace, speeds, setting.cluster);
  const auto note = [&](std::optional<int> action, const std::vector<std::uint32_t>& jobs) {
    if (!action) return;
    const auto state = window_state(cluster, jobs, window);
    const auto open = window_mask(cluster, jobs, window);
    decisions.states.insert(decisions.states.end(), state.begin(), state.end());
    for (const bool is_open : open) decisions.masks.push_back(is_open ? 0.0f : -1e9f);
    decisions.actions.push_back(*action);
  };
  cluster.on_grant([&](std::uint32_t job, Grant grant) {
    const auto jobs = window_jobs(cluster, window);
    note(window_action(jobs, job, grant), jobs);
  });
  while (cluster.begin_slot()) {
    teacher.allocate(cluster);
    note(3 * window, window_jobs(cluster, window));
    cluster.finish_slot();
  }
}

}  // namespace

base::Json warm_up_windowed(const Setting& setting, const WarmUpOptions& options) {
  torch::manual_seed(static_cast<std::int64_t>(setting.seed));
  const schedule::PsSpeedTable speeds(schedule::read_ps_speeds(setting.speeds), 16);
  schedule::PsGenerator generator;
  generator.arrivals = schedule::read_arrival_pattern(setting.arrivals, 3);
  const auto teacher = make_teacher(options.teacher);
  Decisions seen, held_out;
  for (int i = 0; i < options.traces + options.held_out; ++i)
    watch(generate_ps_trace(generator, setting.seed * 1000 + static_cast<std::uint64_t>(i)), speeds, setting,
          options.window, *teacher, i < options.traces ? seen : held_out);

  const std::int64_t inputs = 6 * options.window, outputs = 3 * options.window + 1;
  const auto tensors = [&](Decisions& d) {
    const auto rows = static_cast<std::int64_t>(d.actions.size());
    return std::tuple{torch::from_blob(d.states.data(), {rows, inputs}),
                      torch::from_blob(d.masks.data(), {rows, outputs}),
                      torch::from_blob(d.actions.data(), {rows}, torch::kInt64)};
  };
  auto [x, mask, y] = tensors(seen);
  auto [held_x, held_mask, held_y] = tensors(held_out);
  // Inputs are raw as published; scaling them to unit variance is folded into the first layer afterwards.
  const torch::Tensor scale = x.std(0).clamp_min(1e-3);
  torch::nn::Sequential net(torch::nn::Linear(inputs, options.hidden), torch::nn::ReLU(),
                            torch::nn::Linear(options.hidden, options.hidden), torch::nn::ReLU(),
                            torch::nn::Linear(options.hidden, outputs));
  torch::optim::Adam optimizer(net->parameters(), torch::optim::AdamOptions(options.rate));
  constexpr std::int64_t kBatch = 256;
  for (int pass = 0; pass < options.passes; ++pass) {
    if (pass == options.passes * 2 / 3)
      for (auto& group : optimizer.param_groups())
        static_cast<torch::optim::AdamOptions&>(group.options()).lr(options.rate / 5);
    const torch::Tensor order = torch::randperm(x.size(0), torch::kInt64);
    for (std::int64_t from = 0; from < x.size(0); from += kBatch) {
      const torch::Tensor rows = order.slice(0, from, std::min(from + kBatch, x.size(0)));
      const torch::Tensor logits = net->forward(x.index_select(0, rows) / scale) + mask.index_select(0, rows);
      const torch::Tensor loss = torch::nn::functional::cross_entropy(logits, y.index_select(0, rows));
      optimizer.zero_grad();
      loss.backward();
      optimizer.step();
    }
  }
  torch::NoGradGuard no_gradients;
  const torch::Tensor chosen = (net->forward(held_x / scale) + held_mask).argmax(1);
  const double agreement = chosen.eq(held_y).to(torch::kFloat64).mean().item<double>();

  schedule::Network network;
  network.sizes = {static_cast<int>(inputs), options.hidden, options.hidden, static_cast<int>(outputs)};
  network.activation = schedule::Network::Activation::kRelu;
  bool first = true;
  for (const auto& parameter : net->parameters()) {
    torch::Tensor values = parameter.detach();
    if (first) values = values / scale;
    first = false;
    values = values.contiguous();
    network.parameters.insert(network.parameters.end(), values.data_ptr<float>(),
                              values.data_ptr<float>() + values.numel());
  }
  base::Json json;
  json["network"] = to_json(network);
  json["window"] = options.window;
  json["teacher"] = options.teacher;
  json["agreement"] = agreement;
  json["decisions"] = seen.actions.size();
  json["held_out_decisions"] = held_out.actions.size();
  return json;
}

}  // namespace paceline::learn
