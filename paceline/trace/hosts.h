#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace paceline::trace {

/// "node[01-03,7],login" -> node01, node02, node03, node7, login, as Slurm writes lists of nodes. Several brackets in
/// one name multiply. Throws Error(kBadInput) naming `where`.
std::vector<std::string> expand_node_list(std::string_view list, const std::string& where);

/// The host of every rank, empty where unknown. `text` is one of
///   lines "RANK HOST" ("12 node02"),
///   lines of a host file "HOST", "HOST slots=8" or "HOST:8", ranks one after the other,
///   a list of nodes as Slurm writes it, with the same number of ranks on each.
/// '#' starts a comment. Throws Error(kBadInput) that names `where` and the line.
std::vector<std::string> hosts_of_ranks(std::string_view text, std::size_t ranks, const std::string& where);

}  // namespace paceline::trace
