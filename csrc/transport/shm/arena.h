// Memory shared by all ranks of one host, for collectives that copy in, meet, and read each
// other's data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "base/stop.h"
#include "transport/shm/segment.h"

namespace hvdtune {

// Each local rank has two slots (parity 0 and 1, so that one round can be filled while the last is
// still read) and a counter that only it moves. There are two result areas for all. What a rank
// wrote before post(v) is seen by one whose await(rank, v) returned.
//
// The memory lives as long as the arena: its first touch is slow.
//
// Thread rule: one thread of each rank, the cycle thread.
class Arena {
 public:
  // `ranks` holds the world ranks of this host, ascending. Local rank 0 creates, the others open.
  // Throws as Segment does.
  static Arena create(size_t slot_bytes, std::vector<int> ranks);
  static Arena open(const SegmentOffer& offer, int local_rank, std::vector<int> ranks);
  // For the other ranks, until all have opened it.
  SegmentOffer offer() const { return segment_.offer(); }
  void close_offer() { segment_.close_fd(); }

  int local_rank() const { return local_rank_; }
  int local_size() const { return static_cast<int>(ranks_.size()); }
  size_t slot_bytes() const { return slot_bytes_; }

  // Page aligned.
  uint8_t* slot(int local_rank, int parity) const;
  uint8_t* result(int parity) const;

  // Sets this rank's counter and wakes those who wait for it. REQUIRES: value never falls.
  void post(uint64_t value);
  // Returns once local_rank's counter is at least value: spins `spins` rounds, yields a few times,
  // then sleeps. Throws Error(kTimeout) naming the rank, Error(kShutdown) once stop is raised
  // (seen within 20 ms). It does not see a dead rank: whoever watches the ranks raises stop.
  void await(int local_rank, uint64_t value, Deadline deadline, const StopSignal& stop, int spins);
  // The same for all local ranks but this one.
  void await_all(uint64_t value, Deadline deadline, const StopSignal& stop, int spins);

 private:
  struct Counter;
  Arena(Segment segment, size_t slot_bytes, int local_rank, std::vector<int> ranks);
  Counter& counter(int local_rank) const;
  uint8_t* area(size_t index) const;

  Segment segment_;
  size_t slot_bytes_;
  int local_rank_;
  std::vector<int> ranks_;
};

}  // namespace hvdtune
