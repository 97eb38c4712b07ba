#include "paceline/diagnose/next.h"

#include <fmt/core.h>

#include <algorithm>

namespace paceline::diagnose {
namespace {

class Commands {
 public:
  Commands(const Diagnosis& diagnosis, const std::string& job) : diagnosis_(diagnosis), job_(job) {}

  std::string next(const Finding& finding) const {
    if (finding.kind == "late_rank") {
      const auto rank = static_cast<std::uint32_t>(finding.rank);
      return look_at(finding, {peer_of(rank), rank});
    }
    if (finding.kind == "late_host" || (finding.kind == "slow_link" && finding.measured)) {
      return fmt::format("paceline convert {} {} --finding {} --anonymise", job_, finding.id, finding.id);
    }
    if (finding.kind == "slow_link") return fmt::format("paceline diagnose {} --hosts HOSTS", job_);
    if (finding.kind == "no_culprit") return fmt::format("paceline diagnose {} --save baseline.json", job_);
    if (finding.kind == "rotating_late_rank") return fmt::format("paceline diagnose {} --every-step", job_);
    if (finding.kind == "missing_ranks") return "paceline record -- COMMAND";
    if (finding.kind == "mismatch" || finding.kind == "causality") {
      return fmt::format("paceline diagnose {} --json", job_);
    }
    // What all ranks have in common shows on one of them, and who only waits shows beside whom it waits for.
    if (finding.rank >= 0) {
      const auto rank = static_cast<std::uint32_t>(finding.rank);
      return look_at(finding, {rank, peer_of(rank)});
    }
    return look_at(finding, {diagnosis_.ranks.empty() ? 0 : diagnosis_.ranks.front().rank});
  }

 private:
  const RankDiagnosis* row_of(std::uint32_t rank) const {
    const auto row = std::find_if(diagnosis_.ranks.begin(), diagnosis_.ranks.end(),
                                  [&](const RankDiagnosis& each) { return each.rank == rank; });
    return row == diagnosis_.ranks.end() ? nullptr : &*row;
  }

  /// The other end of the collective in which the rank waited longest, or was waited for longest: whoever came last or
  /// waited most.
  std::uint32_t peer_of(std::uint32_t rank) const {
    std::uint32_t peer = rank;
    std::int64_t most = -1;
    for (const CollectiveRow& row : diagnosis_.collectives) {
      for (std::size_t m = 0; m < row.members.size(); ++m) {
        if (row.members[m] == row.last_rank || (row.members[m] != rank && row.last_rank != rank)) continue;
        if (row.waits[m] <= most) continue;
        most = row.waits[m];
        peer = row.last_rank == rank ? row.members[m] : row.last_rank;
      }
    }
    return peer;
  }

  /// One longest step of these ranks as a picture.
  std::string look_at(const Finding& finding, std::vector<std::uint32_t> ranks) const {
    std::int64_t longest = -1, number = -1;
    for (const std::uint32_t rank : ranks) {
      if (row_of(rank) == nullptr) continue;
      for (const StepParts& step : row_of(rank)->steps) {
        if (step.duration > longest) longest = step.duration, number = step.number;
      }
    }
    std::sort(ranks.begin(), ranks.end());
    ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
    std::string list;
    for (const std::uint32_t rank : ranks) list += fmt::format("{}{}", list.empty() ? "" : ",", rank);
    return fmt::format("paceline convert {} {}.json --ranks {}{} --aligned", job_, finding.id, list,
                       number >= 0 ? fmt::format(" --steps {}", number) : std::string());
  }

  const Diagnosis& diagnosis_;
  const std::string& job_;
};

}  // namespace

void add_next_commands(Diagnosis& diagnosis, const std::string& job) {
  const Commands commands(diagnosis, job);
  for (Finding& finding : diagnosis.findings) finding.next = commands.next(finding);
}

}  // namespace paceline::diagnose
