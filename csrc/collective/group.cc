#include "collective/group.h"

#include <algorithm>
#include <cstdlib>
#include <new>
#include <string>
#include <utility>

namespace hvdtune {

void ScratchBuffers::Free::operator()(uint8_t* memory) const { std::free(memory); }

uint8_t* ScratchBuffers::take(size_t index, size_t bytes) {
  if (buffers_.size() <= index) buffers_.resize(index + 1);
  ScratchBuffer& area = buffers_[index];
  if (area.bytes < bytes) {
    const size_t rounded = (bytes + 4095) / 4096 * 4096;
    area.memory.reset(static_cast<uint8_t*>(std::aligned_alloc(4096, rounded)));
    if (!area.memory) throw std::bad_alloc();
    area.bytes = rounded;
  }
  return area.memory.get();
}

GroupArena::GroupArena(Arena& arena, std::vector<int> members, int local_rank)
    : arena_(arena),
      members_(std::move(members)),
      local_rank_(local_rank),
      subset_(arena.new_subset()) {
  for (const int member : members_) {
    if (member != arena.local_rank()) peers_.push_back(member);
  }
}

bool GroupArena::has_peer_access() {
  const Arena::WritePhase writes = begin_writes();
  for (int rank = 0; rank < local_size(); ++rank) {
    if (rank != local_rank_ && !memory(rank).reachable()) return false;
  }
  return true;
}

namespace {

// The index of each rank's host, as a name.
std::vector<std::string> hosts_of(std::span<const int> world_ranks, const Topology& world) {
  std::vector<std::string> names;
  for (const int rank : world_ranks) {
    const auto host = std::ranges::find_if(
        world.hosts, [&](const auto& ranks) { return std::ranges::count(ranks, rank) > 0; });
    names.push_back(std::to_string(host - world.hosts.begin()));
  }
  return names;
}

Topology topology_of(std::span<const int> world_ranks, const Topology& world) {
  const auto rank = std::ranges::find(world_ranks, world.rank) - world_ranks.begin();
  return make_topology(static_cast<int>(rank), hosts_of(world_ranks, world));
}

// The ranks, ascending, that share the host with `rank`.
const std::vector<int>& host_of(int rank, const Topology& topology) {
  return *std::ranges::find_if(
      topology.hosts, [&](const auto& ranks) { return std::ranges::count(ranks, rank) > 0; });
}

}  // namespace

Group::Group(Mesh& mesh, std::span<const int> world_ranks, ScratchBuffers& scratch,
             const StopSignal& stop, Observer& observer, int spins)
    : mesh_(mesh),
      world_ranks_(world_ranks.begin(), world_ranks.end()),
      topology_(topology_of(world_ranks, mesh.topology)),
      scratch_(scratch),
      stop_(stop),
      observer_(observer),
      spins_(spins) {
  for (const std::vector<int>& host : topology_.hosts) {
    canonical_ranks_.insert(canonical_ranks_.end(), host.begin(), host.end());
    host_sizes_.push_back(static_cast<int>(host.size()));
    homogeneous_ = homogeneous_ && host.size() == topology_.hosts[0].size();
  }
  if (!mesh.arena || topology_.local_size == 1) return;
  const std::vector<int>& neighbours = host_of(mesh.topology.rank, mesh.topology);
  std::vector<int> members;
  for (const int rank : host_of(topology_.rank, topology_)) {
    const int world_rank = world_ranks_[static_cast<size_t>(rank)];
    members.push_back(
        static_cast<int>(std::ranges::find(neighbours, world_rank) - neighbours.begin()));
  }
  arena_.emplace(*mesh.arena, std::move(members), topology_.local_rank);
}

void Group::post() {
  for (const int peer : arena_->peers_) arena_->arena_.post(peer);
}

void Group::await_local() {
  observe(Phase::kWait, 0, [&] {
    for (const int peer : arena_->peers_) arena_->arena_.await(peer, policy());
  });
}

int Group::next_buffer_index() {
  arena_->arena_.enter(arena_->subset_, arena_->peers_, policy());
  return static_cast<int>(++arena_->operations_ % 2);
}

void Group::leave() {
  for (const int peer : arena_->peers_) arena_->arena_.leave(peer);
}

void Group::exchange(std::span<Transfer> transfers) {
  size_t bytes = 0;
  for (const Transfer& transfer : transfers) bytes += transfer.send_bytes + transfer.recv_bytes;
  observe(Phase::kExchange, bytes,
          [&] { hvdtune::exchange(transfers, Deadline::never(), stop_, spins_); });
}

}  // namespace hvdtune
