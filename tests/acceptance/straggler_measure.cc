// straggler_measure FILE: reads an ndtimeline, asks for its stragglers, replays it again and again; prints JSON with
// what came out and the CPU seconds of each part.
#include <algorithm>
#include <cstdio>
#include <ctime>
#include <nlohmann/json.hpp>

#include "paceline/base/error.h"
#include "paceline/replay/replay.h"
#include "paceline/replay/roles.h"

using namespace paceline;

namespace {

double cpu_seconds() {
  timespec time{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

nlohmann::json slowdowns(const std::vector<replay::Slowdown>& rows) {
  nlohmann::json result = nlohmann::json::object();
  for (const replay::Slowdown& row : rows) result[row.name] = row.factor;
  return result;
}

}  // namespace

int main(int count, char** arguments) try {
  if (count != 2) {
    std::fprintf(stderr, "usage: straggler_measure FILE\n");
    return 2;
  }
  const double begin = cpu_seconds();
  const auto recording = trace::ndtimeline::load(arguments[1]);
  if (!recording) throw Error(ErrorKind::kBadInput, arguments[1], "no ndtimeline");
  const auto job = trace::ndtimeline::build_graph(*recording);
  const double read = cpu_seconds();
  const replay::Stragglers found = replay::find_stragglers(job.graph, replay::roles_of(*recording, job));
  const double analysed = cpu_seconds();

  constexpr int kRuns = 7;
  double fastest = 1e9;
  for (int run = 0; run < kRuns; ++run) {
    const double start = cpu_seconds();
    const replay::Timeline timeline = replay::replay(job.graph);
    fastest = std::min(fastest, cpu_seconds() - start);
    PL_CHECK(timeline.makespan > 0);
  }

  nlohmann::json steps = nlohmann::json::object();
  for (std::size_t i = 0; i < found.steps.size(); ++i) {
    const replay::StepTimes& step = found.steps[i];
    steps[std::to_string(step.number)] = {{"recorded_s", static_cast<double>(job.steps[i].recorded) / 1e9},
                                          {"replayed_s", static_cast<double>(step.replayed) / 1e9},
                                          {"without_delays_s", static_cast<double>(step.without_delays) / 1e9},
                                          {"ideal_s", static_cast<double>(step.ideal) / 1e9}};
  }
  nlohmann::json result = {{"slowdown", found.slowdown},
                           {"groups", slowdowns(found.groups)},
                           {"worst_share", found.worst_share.value_or(0)},
                           {"last_share", found.last_share.value_or(0)},
                           {"worst", found.workers[found.worst.front()].name},
                           {"steps", steps},
                           {"left_out", job.left_out},
                           {"events", recording->operations.size()},
                           {"read_s", read - begin},
                           {"analysis_s", analysed - read},
                           {"replay_s", fastest}};
  for (const auto& [name, places] : found.dimensions) result[name] = slowdowns(places);
  std::printf("%s\n", result.dump().c_str());
  return 0;
} catch (const Error& error) {
  std::fprintf(stderr, "straggler_measure: %s\n", error.what());
  return error.exit_code();
}
