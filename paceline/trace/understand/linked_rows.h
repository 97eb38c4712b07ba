#pragma once
#include <limits>
#include <vector>

#include "paceline/trace/rank_trace.h"
#include "paceline/trace/understand/intervals.h"
#include "paceline/trace/understand/summary.h"

namespace paceline::trace {

/// What a row occupies its rank with.
enum class Use : std::uint8_t { kNone, kCompute, kCommunication, kCopy };

/// A rank's rows put in relation to each other: what all parts of its summary are made from. `trace` must outlive it.
struct LinkedRows {
  explicit LinkedRows(const RankTrace& rows);

  std::int64_t launch_time(Row row) const;  // kNotLaunched where no launch is known
  /// The annotation nearest around a host row, other than the step itself and those of communication libraries, which
  /// say what is sent and not where in the model.
  NameId span_around(Row row) const;
  Row operator_around(Row row) const;
  /// Why the device idled, by what ends the gap: kHostOp (for all time of the host), kLaunchGap or kHeldBack.
  Activity idle_cause(Interval gap) const;

  const RankTrace& trace;
  std::vector<Row> launcher, parent;  // see launches.h
  std::vector<Use> use;
  std::vector<Row> used;    // rows with a use, by start
  bool has_device = false;  // false: a CPU job, computation is operator time
};
inline constexpr std::int64_t kNotLaunched = std::numeric_limits<std::int64_t>::min();

/// Of a rank's names those that its summary uses.
class KeptNames {
 public:
  KeptNames(const base::InternTable& all, base::InternTable& kept)
      : all_(all), kept_(kept), new_id_(all.size(), base::kNone<NameId>) {}

  NameId keep(NameId id) {
    if (id == base::kNone<NameId>) return id;
    NameId& kept = new_id_[base::index(id)];
    if (kept == base::kNone<NameId>) kept = kept_.intern(all_.text(id));
    return kept;
  }
  NameId add(std::string_view text) { return kept_.intern(text); }

 private:
  const base::InternTable& all_;
  base::InternTable& kept_;
  std::vector<NameId> new_id_;
};

}  // namespace paceline::trace
