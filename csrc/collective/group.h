// What a collective needs of its surroundings. N ranks can run as N threads: there is nothing
// global here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/stop.h"
#include "transport/exchange.h"
#include "transport/mesh.h"

namespace hvdtune {

enum class Phase : uint8_t { kPack, kReduce, kExchange, kUnpack, kWait };

// Told of every piece of work, so that the runtime can record it.
class Observer {
 public:
  virtual ~Observer() = default;
  virtual void phase(Phase phase, uint64_t begin_ns, uint64_t end_ns, size_t bytes) = 0;
};

// Memory that is kept between operations: touching fresh pages is slower than any copy.
class Scratch {
 public:
  // At least `bytes`, 64-byte aligned, valid until the next call for this index.
  uint8_t* take(size_t index, size_t bytes);

 private:
  struct Free {
    void operator()(uint8_t* memory) const;
  };
  struct Area {
    std::unique_ptr<uint8_t, Free> memory;
    size_t bytes = 0;
  };
  std::vector<Area> areas_;
};

// Thread rule: the cycle thread.
class Group {
 public:
  Group(Mesh& mesh, const StopSignal& stop, Observer& observer, int spins);

  const Topology& topology() const { return mesh_.topology; }
  int rank() const { return mesh_.topology.rank; }
  int size() const { return mesh_.topology.size; }
  Link& link(int rank) { return *mesh_.links[static_cast<size_t>(rank)]; }
  Arena* arena() { return mesh_.arena.get(); }
  Scratch& scratch() { return scratch_; }
  // All ranks, host after host, and how many each host has.
  std::span<const int> canonical_ranks() const { return canonical_ranks_; }
  std::span<const int> host_sizes() const { return host_sizes_; }
  // Every host has the same number of ranks.
  bool homogeneous() const { return homogeneous_; }

  // Meets the other ranks of this host: what each wrote to the arena before is seen after.
  void post();
  void await_local();
  void meet() {
    post();
    await_local();
  }
  // Alternates between the arena's two sets of slots; all local ranks turn together.
  int next_parity() { return parity_ ^= 1; }

  void exchange(std::span<Transfer> transfers);

  // Runs `work` and tells the observer.
  template <typename Work>
  void observe(Phase phase, size_t bytes, Work work) {
    const uint64_t begin = now_ns();
    work();
    observer_.phase(phase, begin, now_ns(), bytes);
  }

 private:
  Mesh& mesh_;
  const StopSignal& stop_;
  Observer& observer_;
  int spins_;
  Scratch scratch_;
  std::vector<int> canonical_ranks_;
  std::vector<int> host_sizes_;
  bool homogeneous_ = true;
  uint64_t meetings_ = 0;
  int parity_ = 0;
};

}  // namespace hvdtune
