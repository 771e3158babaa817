#include "transport/control_tree.h"

#include <cstddef>

namespace hvdtune {

std::vector<int> control_parents(const std::vector<std::vector<int>>& hosts, int fanout) {
  size_t size = 0;
  for (const std::vector<int>& host : hosts) size += host.size();
  std::vector<int> parents(size, -1);
  const auto k = static_cast<size_t>(fanout);
  for (size_t h = 0; h < hosts.size(); ++h) {
    const std::vector<int>& host = hosts[h];
    if (h > 0) parents[static_cast<size_t>(host[0])] = hosts[(h - 1) / k][0];
    for (size_t i = 1; i < host.size(); ++i) {
      parents[static_cast<size_t>(host[i])] = host[(i - 1) / k];
    }
  }
  return parents;
}

std::vector<std::vector<int>> control_branches(std::span<const int> parents, int rank) {
  std::vector<std::vector<int>> branches;
  for (int child = 0; child < static_cast<int>(parents.size()); ++child) {
    if (parents[static_cast<size_t>(child)] != rank) continue;
    std::vector<int> below = {child};
    for (const std::vector<int>& branch : control_branches(parents, child)) {
      below.insert(below.end(), branch.begin(), branch.end());
    }
    branches.push_back(std::move(below));
  }
  return branches;
}

}  // namespace hvdtune
