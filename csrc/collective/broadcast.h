// Broadcast: every rank gets the root's bytes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/knob.h"
#include "collective/choose.h"
#include "collective/group.h"

namespace hvdtune {

// `input` is read on the root only, where it may be `output`.
void broadcast(Group& group, int root, const uint8_t* input, uint8_t* output, size_t bytes,
               const Setting& setting);
void broadcast_by(Algorithm algorithm, Group& group, int root, const uint8_t* input,
                  uint8_t* output, size_t bytes, size_t chunk_bytes);

// The algorithms find the root's bytes in its `output`. With n ranks, h hosts and D bytes, every
// rank but the root receives D.

// ceil(log2 n) steps down a binomial tree; the root sends D log2 n.
void broadcast_tree(Group& group, int root, uint8_t* output, size_t bytes);

// Along a chain from the root, host after host: each rank hands one chunk on while it receives the
// next, so that no link carries more than D: n-2 chunks and D in time.
void broadcast_chain(Group& group, int root, uint8_t* output, size_t bytes, size_t chunk_bytes);

// One host: the root copies a chunk into its slot, they meet, the others copy it out.
void broadcast_shared(Group& group, int root, uint8_t* output, size_t bytes, size_t chunk_bytes);

// Several hosts of equal size with an arena each: a chain of one rank per host, which shares each
// chunk out through the arena.
void broadcast_hierarchical(Group& group, int root, uint8_t* output, size_t bytes,
                            size_t chunk_bytes);

}  // namespace hvdtune
