// The surroundings of a collective. N ranks can run as N threads: there is nothing
// global here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/stop.h"
#include "collective/shared_ways.h"
#include "transport/exchange.h"
#include "transport/mesh.h"

namespace hvdtune {

// kPeer lies within kExchange.
enum class Phase : uint8_t { kPack, kReduce, kExchange, kUnpack, kWait, kPeer };

// Told of every piece of work, so that the runtime can record it.
class Observer {
 public:
  virtual ~Observer() = default;
  // While false no phase is told, and no clock is read.
  virtual bool enabled() const { return true; }
  // `peer` is the world rank that was waited for, -1 where there is none.
  virtual void phase(Phase phase, uint64_t begin_ns, uint64_t end_ns, size_t bytes, int peer) = 0;
};

// Memory that is kept between operations: touching fresh pages is slower than any copy.
class ScratchBuffers {
 public:
  // At least `bytes`, 64-byte aligned, valid until the next call for this index.
  uint8_t* take(size_t index, size_t bytes);

 private:
  struct Free {
    void operator()(uint8_t* memory) const;
  };
  struct ScratchBuffer {
    std::unique_ptr<uint8_t, Free> memory;
    size_t bytes = 0;
  };
  std::vector<ScratchBuffer> buffers_;
};

// A set's part of the arena of its host: local ranks count within the set.
class GroupArena {
 public:
  // `members` are the arena's local ranks of the set's local ranks.
  GroupArena(Arena& arena, std::vector<int> members, int local_rank);

  int local_rank() const { return local_rank_; }
  int local_size() const { return static_cast<int>(members_.size()); }
  size_t slot_bytes() const { return arena_.slot_bytes(); }
  uint8_t* slot(int local_rank, int buffer_index) const {
    return arena_.slot(members_[static_cast<size_t>(local_rank)], buffer_index);
  }
  uint8_t* exchange(int local_rank) const {
    return arena_.exchange(members_[static_cast<size_t>(local_rank)]);
  }
  // Where a rank shows what the others read once they have met it. In a set of all ranks of the
  // host the slots go round, two operations in each: a rank writes where another one has written
  // before. In other sets each keeps to its own slot, since before they meet the others may be in
  // an operation of another set.
  uint8_t* passing_slot(int local_rank, int buffer_index) const {
    if (local_size() < arena_.local_size()) return slot(local_rank, buffer_index);
    const auto turn = static_cast<int>(operations_ / 2 % members_.size());
    return arena_.common_slot((local_rank + turn) % local_size(), buffer_index);
  }
  PeerMemory& memory(int local_rank) {
    return arena_.memory(members_[static_cast<size_t>(local_rank)]);
  }
  // Whether this rank may read and write the memory of all others' processes; finding out writes.
  bool has_peer_access();
  // As those of the arena.
  Arena::WritePhase begin_writes() { return Arena::WritePhase(arena_); }
  bool has_one_pid_namespace() const { return arena_.has_one_pid_namespace(); }
  void check_not_abandoned() const { arena_.check_not_abandoned(); }
  // Common to the set.
  uint8_t* result(int buffer_index) const { return arena_.result(members_.front(), buffer_index); }
  SharedWays& ways() { return ways_; }

 private:
  friend class Group;
  Arena& arena_;
  std::vector<int> members_;
  std::vector<int> peers_;  // members without this rank
  int local_rank_;
  uint64_t subset_;
  uint64_t operations_ = 0;
  SharedWays ways_;
};

// The ranks of one process set, as one of them sees it. Every number here counts within the set.
//
// Groups of one rank share its mesh, and the memory of the arena with it. A collective that uses
// the arena calls next_buffer_index() before it first writes there and leave() after it last read
// there.
//
// REQUIRES: ranks that have several sets in common run collectives on them in the same order.
//
// Thread rule: the cycle thread.
class Group {
 public:
  // `world_ranks` are the set's ranks in the set's order, the mesh's own among them. Sets are equal
  // on all their ranks.
  Group(Mesh& mesh, std::span<const int> world_ranks, ScratchBuffers& scratch,
        const StopSignal& stop, Observer& observer, int spins);

  const Topology& topology() const { return topology_; }
  int rank() const { return topology_.rank; }
  int size() const { return topology_.size; }
  Link& link(int rank) {
    return *mesh_.links[static_cast<size_t>(world_ranks_[static_cast<size_t>(rank)])];
  }
  // Null if this rank is the set's only one on its host, or without shared memory.
  GroupArena* arena() { return arena_ ? &*arena_ : nullptr; }
  const Pool& pool() const { return *mesh_.pool; }
  const HostCosts& costs() const { return mesh_.costs; }
  bool only_costs_decide() const { return mesh_.only_costs_decide; }
  ScratchBuffers& scratch() { return scratch_; }
  const StopSignal& stop() const { return stop_; }
  int spins() const { return spins_; }
  // All ranks, host after host, and how many each host has.
  std::span<const int> canonical_ranks() const { return canonical_ranks_; }
  std::span<const int> host_sizes() const { return host_sizes_; }
  // Every host has the same number of ranks.
  bool homogeneous() const { return homogeneous_; }

  // Meets the other ranks of this host: what each wrote to the arena before is seen after.
  void post();
  void await_local();
  void host_barrier() {
    post();
    await_local();
  }
  // Alternates between the arena's two sets of areas; all local ranks turn together. Waits for
  // those who still read what this rank showed to another set.
  int next_buffer_index();
  // This rank reads nothing more of the arena in this operation.
  void leave();

  void exchange(std::span<Transfer> transfers);

  bool observed() const { return observer_.enabled(); }
  // Tells the observer of work since begin_ns, and for whom of the set it waited.
  void observed(Phase phase, uint64_t begin_ns, size_t bytes, int peer = -1) {
    if (!observer_.enabled()) return;
    const int world_rank = peer < 0 ? -1 : world_ranks_[static_cast<size_t>(peer)];
    observer_.phase(phase, begin_ns, now_ns(), bytes, world_rank);
  }
  // Runs `work` and tells the observer.
  template <typename Work>
  void observe(Phase phase, size_t bytes, Work work) {
    if (!observer_.enabled()) {
      work();
      return;
    }
    const uint64_t begin = now_ns();
    work();
    observed(phase, begin, bytes);
  }

 private:
  Arena::WaitPolicy policy() const { return {Deadline::never(), stop_, spins_}; }

  Mesh& mesh_;
  std::vector<int> world_ranks_;
  Topology topology_;
  ScratchBuffers& scratch_;
  const StopSignal& stop_;
  Observer& observer_;
  int spins_;
  std::optional<GroupArena> arena_;
  std::vector<int> canonical_ranks_;
  std::vector<int> host_sizes_;
  bool homogeneous_ = true;
};

}  // namespace hvdtune
