// Which rank negotiates through which: a tree with rank 0 at its root.
#pragma once

#include <span>
#include <vector>

namespace hvdtune {

// The parent of every rank, -1 for rank 0. The first ranks of the hosts form a tree in which each
// has at most `fanout` children, and so do the ranks of each host below their first: messages cross
// the network once per host, and no rank has more than 2 * fanout children.
//
// REQUIRES: `hosts` as in Topology; fanout >= 1.
std::vector<int> control_parents(const std::vector<std::vector<int>>& hosts, int fanout);

// For each child of `rank`, ascending, the ranks from there down, the child first.
std::vector<std::vector<int>> control_branches(std::span<const int> parents, int rank);

}  // namespace hvdtune
