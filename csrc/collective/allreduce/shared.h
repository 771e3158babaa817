// Allreduce among the ranks of one host.
#pragma once

#include <cstddef>

#include "collective/group.h"
#include "collective/payload.h"
#include "collective/reduce/reduce.h"

namespace hvdtune {

// Sizes at which one way of doing it becomes better than another; measured by
// studies/bench/collectives.py.
struct SharedLimits {
  // Up to here every rank reduces everything: one meeting.
  size_t whole_bytes = 0;
  // Up to here a payload that lies in no pool is packed into the slot; above, the kernel copies it
  // from process to process, which has a price per call and per page.
  size_t pack_bytes = 0;

  bool operator==(const SharedLimits&) const = default;
};

// Pure.
SharedLimits shared_limits(int local_size);

// One host. Ranks show each other where their payloads lie and meet; each reduces its share from
// all payloads, in pieces that stay in the cache, and writes it to all; they meet again. A payload
// in the pool is read and written in place, one elsewhere through process_vm_readv or a slot.
//
// Where the kernel allows no such copies, a payload in chunks of at most chunk_bytes goes
// through the arena: packed into the slot, shared out, reduced into the common result and unpacked,
// the next chunk being packed before the first meeting is awaited.
//
// REQUIRES: limits are equal on all ranks.
void allreduce_shared(Group& group, const Reduction& reduction, const Payload& payload,
                      size_t chunk_bytes, const SharedLimits& limits);

}  // namespace hvdtune
