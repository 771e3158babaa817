// Allreduce among the ranks of one host.
#pragma once

#include <cstddef>

#include "collective/allreduce/shared_limits.h"
#include "collective/group.h"
#include "collective/payload.h"
#include "collective/reduce/reduce.h"

namespace hvdtune {

// One host. Ranks show each other where their payloads lie and meet; each reduces its share from
// all payloads, in pieces that stay in the cache, and writes it to all; they meet again. A payload
// in the pool is read and written in place, one elsewhere through process_vm_readv.
//
// Where the kernel allows no such copies, a payload goes through the arena in chunks: each rank
// packs what the others reduce, at most chunk_bytes, into its exchange area, they meet, each
// reduces its share and writes it over what it has read, and once they have met again each unpacks
// its exchange area. So does one that `limits` send there, unless some rank has it in the pool.
//
// REQUIRES: limits are equal on all ranks.
void allreduce_shared(Group& group, const Reduction& reduction, const Payload& payload,
                      size_t chunk_bytes, const SharedLimits& limits);

}  // namespace hvdtune
