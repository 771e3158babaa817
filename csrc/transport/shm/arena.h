// Memory shared by all ranks of one host, for collectives that copy in, meet, and read each
// other's data.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/stop.h"
#include "transport/host_costs.h"
#include "transport/shm/peer_memory.h"
#include "transport/shm/segment.h"

namespace hvdtune {

// Each local rank has two slots and two result areas (indexes 0 and 1, so that one round can
// be filled while the last is still read), and an exchange area, where the others write their
// results over what it has shown them there. Sets of all local ranks have two slots more for each.
//
// Meetings are counted for each pair of local ranks, so that overlapping sets of ranks can share
// the memory: what a rank wrote before post(b) is seen by b once its await() returned, if both
// have posted to each other equally often. REQUIRES: any two ranks come to their common meetings
// in the same order.
//
// A subset is a set of local ranks that meets here. A rank that has read what it wanted says so
// with leave(); enter() for another subset waits until all of the last one have left, so that
// nobody's memory is overwritten while it is read. Within a subset the meetings see to that.
//
// A rank may write what another has shown it of its own memory, outside the arena, only while it
// holds a WritePhase. A rank that gives the job up calls abandon(), after which its own memory is
// its own again, unless abandon() names a rank: every rank has left its write phase or will not run
// again, and no rank begins another.
//
// The memory lives as long as the arena: its first touch is slow.
//
// Thread rule: one thread of each rank, the cycle thread.
class Arena {
 public:
  // For a process that was killed, or cannot be, to leave its write phase.
  static constexpr std::chrono::seconds kUndeadPatience{10};

  // How a wait ends early: throws Error(kTimeout) naming the rank when the deadline has passed,
  // Error(kShutdown) once stop is raised (seen within 20 ms). It does not see a dead rank: whoever
  // watches the ranks raises stop. `spins` rounds are spun before it sleeps.
  struct WaitPolicy {
    Deadline deadline;
    const StopSignal& stop;
    int spins;
  };

  class WritePhase {
   public:
    // Throws as check_not_abandoned().
    explicit WritePhase(Arena& arena);
    ~WritePhase() { word_.store(0, std::memory_order_release); }
    WritePhase(const WritePhase&) = delete;
    WritePhase& operator=(const WritePhase&) = delete;

   private:
    std::atomic<uint64_t>& word_;
  };

  // `ranks` holds the world ranks of this host, ascending. Local rank 0 creates, the others open.
  // Throws as Segment does.
  static Arena create(size_t slot_bytes, std::vector<int> ranks, const HostCosts& costs = {});
  static Arena open(const SegmentOffer& offer, int local_rank, std::vector<int> ranks);
  // For the other ranks, until all have opened it.
  SegmentOffer offer() const { return segment_.offer(); }
  void close_offer() { segment_.close_fd(); }

  int local_rank() const { return local_rank_; }
  int local_size() const { return static_cast<int>(ranks_.size()); }
  size_t slot_bytes() const { return slot_bytes_; }
  // What local rank 0 has published.
  HostCosts costs() const;

  // Page aligned.
  uint8_t* slot(int local_rank, int buffer_index) const { return area(local_rank, buffer_index); }
  uint8_t* result(int local_rank, int buffer_index) const {
    return area(local_rank, 2 + buffer_index);
  }
  uint8_t* exchange(int local_rank) const { return area(local_rank, 4); }
  // REQUIRES: used by sets of all local ranks only.
  uint8_t* common_slot(int place, int buffer_index) const { return area(place, 5 + buffer_index); }

  // For a thread that is about to wait for the other ranks, where each has a processor: says where
  // it runs, and if a lower local rank's thread ran there when it last waited, moves it to a
  // processor that none of them had. Two that share one compute at half the pace, and what wakes up
  // there waits until the other's time is up. May be called from any thread.
  void move_apart();

  // A name for a subset that no other has had in this arena, on this rank.
  uint64_t new_subset() { return ++subsets_; }
  // Before the first write of an operation. `peers` are the subset's local ranks without this one.
  void enter(uint64_t subset, std::span<const int> peers, const WaitPolicy& policy);
  // This rank comes to its next meeting with `peer`; wakes it if it sleeps.
  void post(int peer);
  // Returns once `peer` has come to as many meetings with this rank as this rank with it.
  void await(int peer, const WaitPolicy& policy);
  // This rank will read nothing more that `peer` has shown it so far.
  void leave(int peer);

  // REQUIRES: every rank has opened the arena.
  PeerMemory& memory(int peer);
  // Whether every rank's process can be found, and so ended, by every other: only then may they
  // write each other's memory. The same on all. REQUIRES: every rank has opened the arena.
  bool has_one_pid_namespace() const;
  // On how many processors the ranks may run, all together, or this one where it cannot find the
  // others' processes. REQUIRES: every rank has opened the arena.
  int processors() const;

  // Ends the job in this arena because of world rank `lost` (-1: none), and waits until no other
  // rank writes the memory of this one. A rank that is still in its write phase after `patience`,
  // the lost one after at most 100 ms, is killed: it may be stopped. Returns "" if this memory is
  // free, else a rank that has not left the phase after a further `undead_patience`: one that
  // cannot be killed, or that does not end while it copies between processes. `warn` takes what
  // was done.
  [[nodiscard]] std::string abandon(int lost, std::chrono::nanoseconds patience,
                                    const std::function<void(const std::string&)>& warn,
                                    std::chrono::nanoseconds undead_patience = kUndeadPatience);
  // Throws Error(kRankLost) once some rank has abandoned the arena; the error names the lost rank,
  // or to that rank itself the one which gave it up.
  void check_not_abandoned() const;

 private:
  struct Header;
  struct Line;
  Arena(Segment segment, size_t slot_bytes, int local_rank, std::vector<int> ranks);
  Header& header() const;
  Line& line(int from, int to) const;
  ProcessCard& card(int local_rank) const;
  uint8_t* area(int local_rank, int index) const;
  void note_meeting(int peer, bool together);
  void await_left(int peer, const WaitPolicy& policy);
  void check(int peer, const WaitPolicy& policy) const;
  std::string await_end_of_writes(int peer, Deadline patience,
                                  std::chrono::nanoseconds undead_patience,
                                  const std::function<void(const std::string&)>& warn) const;

  Segment segment_;
  size_t slot_bytes_;
  int local_rank_;
  std::vector<int> ranks_;
  std::vector<uint64_t> met_;              // meetings of this rank, by local rank
  std::unique_ptr<ProcessCard> own_card_;  // others look for it where it is
  std::vector<std::optional<PeerMemory>> memories_;
  uint64_t subsets_ = 0;
  uint64_t present_ = 0;  // the subset that entered last
  std::vector<int> present_peers_;
  // The lower local rank that last ran on this one's processor, and for how many meetings in a row.
  int together_with_ = -1;
  int meetings_together_ = 0;
};

}  // namespace hvdtune
