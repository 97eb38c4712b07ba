#include "paceline/replay/straggler.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>
#include <span>

#include "paceline/base/error.h"
#include "paceline/base/statistics.h"
#include "paceline/replay/replay.h"

namespace paceline::replay {
namespace {

constexpr std::size_t kAtOnce = 8;

/// A question: which tasks keep their own time, those of these workers in these groups. All others are ideal.
struct Question {
  std::vector<bool> workers, groups;
  bool delays = false;  // whether what the comparison leaves out is kept
};

struct Answer {
  std::vector<std::int64_t> steps;  // ns
  double mean = 0;
};

class Questions {
 public:
  Questions(const TaskGraph& graph, const Roles& roles) : graph_(graph), roles_(roles) {
    own_.resize(graph.size());
    for (std::uint32_t task = 0; task < graph.size(); ++task) {
      const CollectiveId collective = graph.collective(TaskId{task});
      own_[task] = graph.duration(TaskId{task});
      if (collective != base::kNone<CollectiveId>) own_[task] += graph.collective(collective).transfer;
    }
    find_ideals();
  }

  Question everything() const { return {all(roles_.workers), all(roles_.groups)}; }
  Question nothing() const { return {none(roles_.workers), none(roles_.groups)}; }

  std::size_t ask(Question question) {
    questions_.push_back(std::move(question));
    return questions_.size() - 1;
  }

  /// Those that have no answer yet.
  void answer() {
    VariantEnds ends;
    while (answers_.size() < questions_.size()) {
      const std::size_t begin = answers_.size();
      const std::size_t count = std::min(kAtOnce, questions_.size() - begin);
      const std::size_t lanes = std::bit_ceil(count);
      replay_variants(graph_, variants({questions_.data() + begin, count}, lanes), ends);
      for (std::size_t k = 0; k < count; ++k) answers_.push_back(measure(ends, lanes, k));
    }
  }

  const Answer& operator[](std::size_t question) const { return answers_[question]; }

 private:
  static std::vector<bool> all(const std::vector<std::string>& names) { return std::vector<bool>(names.size(), true); }
  static std::vector<bool> none(const std::vector<std::string>& names) {
    return std::vector<bool>(names.size(), false);
  }

  /// Of a member of a collective its own time is the transfer and what follows it.
  void find_ideals() {
    std::vector<std::uint32_t> rows(roles_.classes.size() + 1, 0);
    for (const std::uint32_t of : roles_.class_of) {
      if (of != kNobody) ++rows[of + 1];
    }
    std::partial_sum(rows.begin(), rows.end(), rows.begin());
    std::vector<double> times(rows.back());
    std::vector<std::uint32_t> at(rows.begin(), rows.end() - 1);
    for (std::uint32_t task = 0; task < graph_.size(); ++task) {
      const std::uint32_t of = roles_.class_of[task];
      if (of != kNobody) times[at[of]++] = static_cast<double>(own_[task]);
    }
    std::vector<double> values;
    for (std::size_t of = 0; of < roles_.classes.size(); ++of) {
      const TaskClass& task_class = roles_.classes[of];
      values.assign(times.begin() + rows[of], times.begin() + rows[of + 1]);
      values.resize(values.size() + task_class.absent, 0.0);
      double ideal = 0;
      if (!values.empty() && task_class.ideal == Ideal::kMean) ideal = base::mean(values);
      if (!values.empty() && task_class.ideal == Ideal::kMedian) ideal = base::median(values);
      ideal_.push_back(std::llround(ideal));
    }
  }

  Variants variants(std::span<const Question> questions, std::size_t lanes) const {
    Variants result;
    result.count = lanes;
    result.durations.resize(graph_.size() * lanes);
    result.transfers.resize(graph_.collectives().size() * lanes);
    for (std::uint32_t task = 0; task < graph_.size(); ++task) {
      const std::uint32_t of = roles_.class_of[task], worker = roles_.worker_of[task];
      std::int64_t* row = &result.durations[task * lanes];
      for (std::size_t k = 0; k < lanes; ++k) {
        const Question& question = questions[std::min(k, questions.size() - 1)];
        bool keeps = of == kNobody;
        if (!keeps && roles_.classes[of].ideal == Ideal::kNothing) {
          keeps = question.delays;
        } else if (!keeps) {
          keeps = question.groups[roles_.classes[of].group] && (worker == kNobody || question.workers[worker]);
        }
        row[k] = keeps ? own_[task] : ideal_[of];
      }
    }
    // What all members of a collective need is its transfer again.
    for (std::uint32_t id = 0; id < graph_.collectives().size(); ++id) {
      const auto members = graph_.members(CollectiveId{id});
      if (members.empty()) continue;
      for (std::size_t k = 0; k < lanes; ++k) {
        std::int64_t shortest = result.durations[base::index(members.front()) * lanes + k];
        for (const TaskId member : members) {
          shortest = std::min(shortest, result.durations[base::index(member) * lanes + k]);
        }
        result.transfers[id * lanes + k] = shortest;
        for (const TaskId member : members) result.durations[base::index(member) * lanes + k] -= shortest;
      }
    }
    return result;
  }

  Answer measure(const VariantEnds& ends, std::size_t lanes, std::size_t k) const {
    Answer answer;
    double sum = 0;
    for (const Step& step : roles_.steps) {
      double time = 0;
      for (const Span& span : step.spans) {
        const std::int64_t begin =
            span.begin == base::kNone<TaskId> ? 0 : ends.end[base::index(span.begin) * lanes + k];
        time += static_cast<double>(ends.end[base::index(span.end) * lanes + k] - begin);
      }
      time /= static_cast<double>(step.spans.size());
      answer.steps.push_back(std::llround(time));
      sum += time;
    }
    answer.mean = sum / static_cast<double>(roles_.steps.size());
    return answer;
  }

  const TaskGraph& graph_;
  const Roles& roles_;
  std::vector<std::int64_t> own_;    // per task
  std::vector<std::int64_t> ideal_;  // per class
  std::vector<Question> questions_;
  std::vector<Answer> answers_;
};

void check(const TaskGraph& graph, const Roles& roles) {
  PL_CHECK(roles.class_of.size() == graph.size() && roles.worker_of.size() == graph.size());
  for (const Step& step : roles.steps) PL_CHECK(!step.spans.empty());
  if (roles.steps.empty()) throw Error(ErrorKind::kBadInput, "", "no whole step to compare; record more of the job");
}

/// 3 % of the workers, rounded up, as StragglerAnalysis takes them.
std::vector<std::uint32_t> worst_of(const std::vector<double>& scores) {
  std::vector<std::uint32_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) { return scores[a] > scores[b]; });
  order.resize((scores.size() * 3 + 99) / 100);
  return order;
}

}  // namespace

Stragglers find_stragglers(const TaskGraph& graph, const Roles& roles) {
  check(graph, roles);
  Questions questions(graph, roles);
  Question as_recorded = questions.everything();
  as_recorded.delays = true;
  const std::size_t replayed = questions.ask(as_recorded);
  const std::size_t without_delays = questions.ask(questions.everything());
  const std::size_t ideal = questions.ask(questions.nothing());

  std::vector<std::size_t> of_group;
  for (std::size_t group = 0; group < roles.groups.size(); ++group) {
    Question question = questions.nothing();
    question.workers = questions.everything().workers;
    question.groups[group] = true;
    of_group.push_back(questions.ask(std::move(question)));
  }
  std::vector<std::vector<std::size_t>> of_place;
  for (const Dimension& dimension : roles.dimensions) {
    std::vector<std::size_t>& places = of_place.emplace_back();
    for (std::uint32_t place = 0; place < dimension.places.size(); ++place) {
      Question question = questions.nothing();
      question.groups = questions.everything().groups;
      for (std::size_t worker = 0; worker < roles.workers.size(); ++worker) {
        question.workers[worker] = dimension.place_of[worker] == place;
      }
      places.push_back(questions.ask(std::move(question)));
    }
  }
  std::vector<std::size_t> of_repair;
  for (std::size_t worker = 0; worker < roles.workers.size(); ++worker) {
    Question question = questions.everything();
    question.workers[worker] = false;
    of_repair.push_back(questions.ask(std::move(question)));
  }
  std::size_t without_last = without_delays;
  if (roles.pipeline) {
    const Dimension& stages = roles.dimensions[*roles.pipeline];
    Question question = questions.everything();
    for (std::size_t worker = 0; worker < roles.workers.size(); ++worker) {
      question.workers[worker] = stages.place_of[worker] + 1 != stages.places.size();
    }
    without_last = questions.ask(std::move(question));
  }
  questions.answer();

  Stragglers result;
  const double best = questions[ideal].mean, now = questions[without_delays].mean;
  if (best <= 0) throw Error(ErrorKind::kBadInput, "", "the ideal step takes no time; record a step with work in it");
  for (std::size_t i = 0; i < roles.steps.size(); ++i) {
    result.steps.push_back({roles.steps[i].number, questions[replayed].steps[i], questions[without_delays].steps[i],
                            questions[ideal].steps[i]});
  }
  result.replayed = std::llround(questions[replayed].mean);
  result.without_delays = std::llround(now);
  result.ideal = std::llround(best);
  result.slowdown = now / best;
  for (std::size_t group = 0; group < roles.groups.size(); ++group) {
    result.groups.push_back({roles.groups[group], questions[of_group[group]].mean / best});
  }
  for (std::size_t d = 0; d < roles.dimensions.size(); ++d) {
    auto& [name, places] = result.dimensions.emplace_back(roles.dimensions[d].name, std::vector<Slowdown>{});
    for (std::size_t place = 0; place < of_place[d].size(); ++place) {
      places.push_back({roles.dimensions[d].places[place], questions[of_place[d][place]].mean / best});
    }
  }
  std::vector<double> scores;
  for (std::size_t worker = 0; worker < roles.workers.size(); ++worker) {
    double score = roles.dimensions.empty() ? 1.0 : HUGE_VAL;
    for (std::size_t d = 0; d < roles.dimensions.size(); ++d) {
      score = std::min(score, result.dimensions[d].second[roles.dimensions[d].place_of[worker]].factor);
    }
    scores.push_back(score);
    result.workers.push_back({roles.workers[worker], score, std::llround(now - questions[of_repair[worker]].mean)});
  }
  result.worst = worst_of(scores);
  if (now != best) {
    Question question = questions.everything();
    for (const std::uint32_t worker : result.worst) question.workers[worker] = false;
    const std::size_t without_worst = questions.ask(std::move(question));
    questions.answer();
    result.worst_share = (now - questions[without_worst].mean) / (now - best);
    if (roles.pipeline) result.last_share = (now - questions[without_last].mean) / (now - best);
  }
  return result;
}

Blame blame(const Stragglers& stragglers) {
  constexpr double kWorthIt = 1.03, kMost = 0.5;
  if (stragglers.slowdown < kWorthIt) return Blame::kNoOne;
  if (stragglers.worst_share.value_or(0) >= kMost) return Blame::kWorkers;
  if (stragglers.last_share.value_or(0) >= kMost) return Blame::kLastStage;
  return Blame::kSpread;
}

std::string_view blame_name(Blame blame) {
  switch (blame) {
    case Blame::kNoOne:
      return "nobody";
    case Blame::kWorkers:
      return "workers";
    case Blame::kLastStage:
      return "last_stage";
    case Blame::kSpread:
      return "spread";
  }
  return "";
}

base::Json to_json(const Stragglers& stragglers) {
  using base::Json;
  Json json = base::make_result("stragglers", 1);
  json["slowdown"] = stragglers.slowdown;
  json["replayed_ns"] = stragglers.replayed;
  json["without_delays_ns"] = stragglers.without_delays;
  json["ideal_ns"] = stragglers.ideal;
  json["blame"] = blame_name(blame(stragglers));
  json["worst_workers"] = Json::array();
  for (const std::uint32_t worker : stragglers.worst) {
    json["worst_workers"].push_back(stragglers.workers[worker].name);
  }
  json["worst_workers_share"] = stragglers.worst_share ? Json(*stragglers.worst_share) : Json();
  json["last_stage_share"] = stragglers.last_share ? Json(*stragglers.last_share) : Json();
  const auto rows = [](const std::vector<Slowdown>& slowdowns) {
    Json result = Json::array();
    for (const Slowdown& row : slowdowns) result.push_back({{"name", row.name}, {"slowdown", row.factor}});
    return result;
  };
  json["operations"] = rows(stragglers.groups);
  json["dimensions"] = Json::array();
  for (const auto& [name, places] : stragglers.dimensions) {
    json["dimensions"].push_back({{"name", name}, {"places", rows(places)}});
  }
  json["workers"] = Json::array();
  for (const WorkerEffect& worker : stragglers.workers) {
    json["workers"].push_back({{"name", worker.name}, {"score", worker.score}, {"repair_ns", worker.repair}});
  }
  json["steps"] = Json::array();
  for (const StepTimes& step : stragglers.steps) {
    json["steps"].push_back({{"number", step.number},
                             {"replayed_ns", step.replayed},
                             {"without_delays_ns", step.without_delays},
                             {"ideal_ns", step.ideal}});
  }
  return json;
}

}  // namespace paceline::replay
