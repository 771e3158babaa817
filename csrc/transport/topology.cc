#include <algorithm>
#include <map>

#include "transport/mesh.h"

namespace hvdtune {

Topology make_topology(int rank, std::span<const std::string> hosts) {
  Topology topology;
  topology.rank = rank;
  topology.size = static_cast<int>(hosts.size());
  std::map<std::string_view, size_t> index;
  for (size_t i = 0; i < hosts.size(); ++i) {
    const auto [at, fresh] = index.try_emplace(hosts[i], topology.hosts.size());
    if (fresh) topology.hosts.emplace_back();
    topology.hosts[at->second].push_back(static_cast<int>(i));
  }
  const size_t my_host = index.at(hosts[static_cast<size_t>(rank)]);
  const std::vector<int>& mine = topology.hosts[my_host];
  const auto local_rank = static_cast<size_t>(std::ranges::find(mine, rank) - mine.begin());
  topology.local_rank = static_cast<int>(local_rank);
  topology.local_size = static_cast<int>(mine.size());
  topology.cross_size = 0;
  for (size_t i = 0; i < topology.hosts.size(); ++i) {
    if (topology.hosts[i].size() <= local_rank) continue;
    topology.cross_size += 1;
    if (i < my_host) topology.cross_rank += 1;
  }
  return topology;
}

}  // namespace hvdtune
