#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "paceline/base/json.h"
#include "paceline/replay/forecast.h"
#include "paceline/trace/graph/job_graph.h"

namespace paceline::tune {

/// A change that could make the job faster, as an edit of its graph.
struct Strategy {
  std::string name;     // "buckets", "op fusion", ...
  std::string what;     // what to change, in a sentence
  std::string assumes;  // what the edit takes for granted; empty = nothing beyond the recorded times
  taskgraph::Delta delta;
  struct File {
    std::string name, text;
  };
  std::vector<File> files = {};  // the change in the form that a framework reads
};

/// A strategy and what replay says of it.
struct Verdict {
  std::size_t strategy = 0;  // index into Tuned::strategies
  replay::Forecast alone;    // it alone
  bool chosen = false;       // part of the joint plan
  std::int64_t step = 0;     // ns, mean step with all that were chosen up to and with this one
};

struct Tuned {
  std::vector<Strategy> strategies;
  std::vector<Verdict> verdicts;         // largest gain alone first
  replay::Forecast joint;                // all chosen together: never a sum
  std::vector<std::string> passed_over;  // strategies that do not apply, and why
  std::size_t evaluations = 0;           // graphs replayed
  bool cut_short = false;                // by the budget
};

struct TuneOptions {
  std::size_t budget = 20'000;  // evaluations
  double least_gain = 0.002;    // of a step: less is noise
  std::uint64_t seed = 1;
};

/// Looks for strategies on the critical path, verifies each by replay and puts those together that still gain beside
/// the ones before. The result is never slower than the job as it was. Deterministic.
Tuned tune(const trace::LoadedGraph& loaded, const TuneOptions& options = {});

base::Json to_json(const Tuned& tuned, const trace::JobGraph& job);

}  // namespace paceline::tune
