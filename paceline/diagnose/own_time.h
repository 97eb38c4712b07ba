#pragma once
#include <cstdint>
#include <vector>

#include "paceline/diagnose/diagnosis.h"

namespace paceline::diagnose {

/// What ranks do themselves, all but collectives, like compared with like: with ranks that take part in the same
/// collectives and transfers (kinds, sizes, numbers), such as the same stage of a pipeline in other replicas. Where a
/// rank has no such peer, kernel by kernel with ranks of other roles: their number may differ, their pace may not.
class OwnTime {
 public:
  /// O(collectives + ranks steps log ranks).
  OwnTime(const trace::Trace& trace, const Diagnosis& diagnosis);

  /// Other ranks of the same role, by index; all others when there is none.
  std::vector<std::uint32_t> peers(std::uint32_t rank) const;
  bool has_peers(std::uint32_t rank) const { return ranks_of_[role_[rank]].size() > 1; }
  bool same_role(std::uint32_t a, std::uint32_t b) const { return role_[a] == role_[b]; }
  /// Whether ranks differ in role at all.
  bool has_roles() const { return ranks_of_.size() > 1; }

  /// ns that the rank takes longer in each step than the median of its peers.
  const std::vector<double>& by_step(std::uint32_t rank) const { return by_step_[rank]; }
  /// Of that, with an idle device whose host is late, or that has not begun.
  const std::vector<double>& host_by_step(std::uint32_t rank) const { return host_by_step_[rank]; }
  /// The mean of by_step().
  double excess(std::uint32_t rank) const { return excess_[rank]; }
  const std::vector<double>& excesses() const { return excess_; }

  /// ns per step that the rank's kernels take longer than the same kernels, by name and shape, on ranks of other roles.
  /// Kernel by kernel its pace is the ratio of means; half of its computation is slower than this says.
  /// O(slot items log slot items).
  std::vector<double> slower_than_other_roles() const;

 private:
  void find_roles();
  /// Of every rank and step, a part of it less its median over the peers.
  template <class Part>
  std::vector<std::vector<double>> beyond_peers(Part part_of) const;

  const trace::Trace& trace_;
  const Diagnosis& diagnosis_;
  std::vector<std::uint32_t> role_;                   // of each rank
  std::vector<std::vector<std::uint32_t>> ranks_of_;  // by role
  std::vector<std::vector<double>> by_step_, host_by_step_;
  std::vector<double> excess_;
};

}  // namespace paceline::diagnose
