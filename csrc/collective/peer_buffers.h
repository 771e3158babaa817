// Where the ranks of a host publish the addresses of their payloads, so that each can read and
// write the others' where they lie.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "collective/payload.h"
#include "collective/shared_ways.h"
#include "transport/shm/peer_memory.h"
#include "transport/shm/pool.h"

namespace hvdtune {

enum class BufferLocation : uint32_t {
  kPacked,   // in its exchange area, from where it takes the result, too
  kMapped,   // in the rank's pool
  kPrivate,  // anywhere in its process
};

// Shown at the start of a slot: the header; then the segments and pieces, unless the payload is
// packed; then its exchange area holds all but the rank's own share.
struct PeerBufferHeader {
  uint64_t bytes;
  BufferLocation where;
  uint32_t has_peer_access;  // the rank may read and write the memory of all others
  uint32_t segments;
  uint32_t pieces;
  SharedWays::Agreement ways;  // what local rank 0 proposes for the operations that follow
};
inline constexpr size_t kPeerBufferHeaderBytes = 64;

// Writes all but has_peer_access and ways. A payload that is not in the pool will be packed by the
// caller where it `may_pack`. False when the pieces are too many for the slot.
bool publish_buffers(const Payload& payload, const Pool& pool, bool may_pack, uint8_t* slot,
                     size_t slot_bytes);

// A payload as the ranks of the host reach it: this rank's own, or what a peer has shown.
class PeerBuffers {
 public:
  explicit PeerBuffers(const Payload& own);
  // Throws Error(kInternal) naming the rank when it shows a payload of another size, and without a
  // rank when this one can neither map the memory nor reach it otherwise; Error(kRankLost) naming
  // the rank when its process has ended. REQUIRES: a write phase of the arena, since finding out
  // writes.
  PeerBuffers(const uint8_t* slot, uint8_t* exchange, size_t bytes, PeerMemory& memory);

  BufferLocation where() const { return where_; }
  // Bytes [offset, offset + bytes) of the input: where they are, or a copy in `scratch`.
  const uint8_t* input(size_t offset, size_t bytes, uint8_t* scratch) const;
  // These bytes of the output, if they can be written as one run; null otherwise.
  uint8_t* output(size_t offset, size_t bytes) const;
  // Writes these bytes of the output.
  void deliver(size_t offset, size_t bytes, const uint8_t* from) const;

 private:
  // Addresses are the peer's while private, ours otherwise.
  struct View {
    uint64_t input;
    uint64_t output;
    size_t begin;
    size_t bytes;
  };
  void map(const uint8_t* segments, size_t count);
  std::vector<View> mapped(const uint8_t* segments, size_t count) const;
  size_t find(size_t offset) const;
  template <typename Visit>
  void each(size_t offset, size_t bytes, Visit visit) const;

  BufferLocation where_;
  std::vector<View> views_;
  PeerMemory* memory_ = nullptr;
};

}  // namespace hvdtune
