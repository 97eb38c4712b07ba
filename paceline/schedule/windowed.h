#pragma once
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "paceline/schedule/network.h"
#include "paceline/schedule/slotted.h"

// DL2's policy as published: a window of J jobs in order of arrival, a state matrix of 6 x J, 3J + 1 actions (one more
// worker, server or both for one job; close the slot), several inferences in a slot.

namespace paceline::schedule {

/// The jobs of the window: unfinished, in order of arrival, not yet at the most workers and servers.
std::vector<std::uint32_t> window_jobs(const SlottedCluster& cluster, int window);

/// Rows: type, slots since arrival, remaining share, dominant share, workers, servers; columns: jobs; zero padded.
std::vector<float> window_state(const SlottedCluster& cluster, std::span<const std::uint32_t> jobs, int window);

/// 3 * place in the window + 0 worker, 1 server, 2 both; nothing when the job is outside the window.
std::optional<int> window_action(std::span<const std::uint32_t> jobs, std::uint32_t job, Grant grant);

/// Which actions are open: jobs that are there, tasks below their most; closing always is.
std::vector<bool> window_mask(const SlottedCluster& cluster, std::span<const std::uint32_t> jobs, int window);

/// Samples from the network's masked softmax as published, or takes the most likely action. Every job first gets one
/// pair; a grant that does not fit on the least used node closes the slot.
std::unique_ptr<SlottedPolicy> make_ps_windowed(Network network, int window, bool sample, std::uint64_t seed);

}  // namespace paceline::schedule
