#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

#include "paceline/taskgraph/task_graph.h"
#include "paceline/trace/understand/names.h"

namespace paceline::cost {

/// A message of S bytes takes latency + S * ns_per_byte.
struct LinkCost {
  double latency_ns = 0;
  double ns_per_byte = 0;
  double time(double bytes) const { return latency_ns + ns_per_byte * bytes; }
};

/// Ranks on nodes of equal size, node by node.
struct Network {
  std::uint32_t ranks = 1;
  std::uint32_t ranks_per_node = 1;    // divides ranks, or all ranks are on one node
  LinkCost inside = {}, between = {};  // of one rank's link inside a node, and between nodes
};

/// How a collective moves its bytes.
enum class Algorithm : std::uint8_t {
  kRing,          // n ranks pass parts of 1/n around
  kTree,          // up a binary tree and down again, in chunks that follow each other
  kHierarchical,  // reduce-scatter inside nodes, all-reduce between them, all-gather inside
  kSwitch,        // the switch adds up and multicasts (NVLink SHARP): every rank sends once and receives once
  kDirect         // every rank sends to every other by itself
};
std::string_view algorithm_name(Algorithm algorithm);

/// ns of a collective of `bytes` (the larger side of a rank: what an all-reduce reduces, what an all-gather ends with)
/// once all ranks are ready. With S bytes, n ranks and t(x) = latency + x * ns_per_byte of the slowest link on the way:
/// ring all-reduce 2 (n-1) t(S/n), all-gather and reduce-scatter half of it (Patarasuk and Yuan 2009); broadcast by a
/// chain in c chunks, (n-2+c) t(S/c); tree all-reduce (2 depth - 1 + c) t(2S/c) with depth = ceil(log2 n), since in two
/// trees that complement each other every link carries S up and S down (Sanders, Speck and Traeff 2009); all-to-all
/// (n-1) t(S/n); send and receive t(S). An algorithm that a kind does not have is taken as kRing. `chunks` = 0: as many
/// as give the least time.
std::int64_t collective_time(trace::CollectiveKind kind, Algorithm algorithm, std::int64_t bytes,
                             const Network& network, std::uint32_t chunks = 0);

/// The same as tasks: each rank's sends on its own lane of `links` (one per rank), chunk by chunk and step by step, in
/// rings, for kAllReduce, kAllGather and kReduceScatter. `ready[r]` is what rank r waits for (kNone: nothing). Gives
/// for each rank its last receipt. Replayed alone it takes collective_time(); on links that others use it shows who
/// waits.
std::vector<taskgraph::TaskId> add_ring(taskgraph::Builder& builder, trace::CollectiveKind kind, std::int64_t bytes,
                                        const Network& network, const std::vector<taskgraph::LaneId>& links,
                                        const std::vector<taskgraph::TaskId>& ready);

/// A push and a pull of `bytes` in parts between workers and parameter servers (dPRO, MLSys 2022; BytePS): each part
/// goes from every worker to its server over the worker's uplink, the server adds the parts up in the order of their
/// arrival, and the sum goes back over the worker's downlink. Parts take servers in turn.
struct ParameterServer {
  std::uint32_t workers = 2, servers = 1, parts = 1;
  LinkCost link;               // of a worker's uplink and downlink
  double sum_ns_per_byte = 0;  // on a server's lane
  std::vector<taskgraph::LaneId> uplinks = {}, downlinks = {},
                                 server_lanes = {};  // by worker, by worker, by server (LaneOrder::kReady)
};
/// Gives for each worker the last receipt of each part, worker by worker.
std::vector<taskgraph::TaskId> add_push_pull(taskgraph::Builder& builder, const ParameterServer& plan,
                                             std::int64_t bytes, const std::vector<taskgraph::TaskId>& ready);

}  // namespace paceline::cost
