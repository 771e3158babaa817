// The memory of another rank of this host, without its help: segments of its pool are mapped,
// anything else is copied by the kernel (process_vm_readv), once instead of twice.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "transport/shm/peer_process.h"
#include "transport/shm/segment.h"

namespace hvdtune {

// How a rank's process is found, and a value to tell it by.
struct ProcessCard {
  int32_t pid = 0;
  uint64_t address = 0;  // of the cookie in that process
  std::array<uint8_t, 16> cookie{};
  uint64_t started = 0;  // as in ProcessStat
  uint64_t pid_namespace = 0;
};

// Addresses are the peer's. Thread rule: the cycle thread.
class PeerMemory {
 public:
  struct RemoteRange {
    uint64_t address;
    size_t bytes;
  };

  PeerMemory(const ProcessCard& card, int rank)
      : card_(card), rank_(rank), process_(card.pid, card.started) {}
  int rank() const { return rank_; }

  // Whether read() and write() are allowed; they can be forbidden by seccomp, yama, or because the
  // peer runs as somebody else or cannot be told from a later process of its number. Tried once.
  // REQUIRES: the peer's process still has its card.
  bool reachable();
  // `from` or `to` have `bytes` bytes together. Throw Error(kRankLost) naming the rank when the
  // peer, or this part of its memory, is gone.
  //
  // The kernel takes a process's number, which is another's once the peer has ended, been reaped,
  // and the numbers after its own were given away. write() therefore asks first whether the peer
  // lives; what is left is that all of this happens between the answer and the copy.
  void read(std::span<const RemoteRange> from, uint8_t* to) const;
  void write(const uint8_t* from, std::span<const RemoteRange> to);

  // Where the segment of the peer's pool begins here. It stays mapped as long as this lives. Throws
  // Error(kRankLost) where the peer has ended, else Error(kInternal) that says why it cannot be
  // mapped.
  uint8_t* mapped(const SegmentOffer& offer);

 private:
  // Whether the peer is known to have ended. A process gives its memory up before it closes its
  // files, so one whose segment is gone because it ends has no memory any more.
  bool has_ended() const;

  struct Mapping {
    SegmentOffer offer;
    Segment segment;
  };

  ProcessCard card_;
  int rank_;
  PeerProcess process_;
  std::optional<bool> reachable_;
  std::vector<Mapping> mappings_;
};

}  // namespace hvdtune
