// Allgather: every rank gets every rank's block; blocks may differ in size and be empty.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/knob.h"
#include "collective/choose.h"
#include "collective/group.h"

namespace hvdtune {

// `output` receives the blocks in rank order; block_bytes holds the size of each. `input` is this
// rank's block, or its place in the output.
void allgather(Group& group, const uint8_t* input, uint8_t* output,
               std::span<const size_t> block_bytes, const Setting& setting);
void allgather_by(Algorithm algorithm, Group& group, const uint8_t* input, uint8_t* output,
                  std::span<const size_t> block_bytes, size_t chunk_bytes);

// The algorithms find this rank's block at its place in `output`. With n ranks, h hosts and D bytes
// of output, over links each receives D less its own block.

// One step: every rank sends its block to every other, n-1 messages.
void allgather_direct(Group& group, uint8_t* output, std::span<const size_t> block_bytes);

// ceil(log2 n) steps of one message: at distance 1, 2, 4 ... a rank hands on all it has. Source:
// Bruck et al., Efficient Algorithms for All-to-All Communications (1997), without the rotation:
// blocks are received in place.
void allgather_doubling(Group& group, uint8_t* output, std::span<const size_t> block_bytes);

// n-1 steps along the canonical order of ranks, so that a host's blocks cross its link once,
// whatever the number of ranks there. Blocks move in pieces of a chunk: a rank hands one on
// while it receives the next.
void allgather_ring(Group& group, uint8_t* output, std::span<const size_t> block_bytes,
                    size_t chunk_bytes);

// One host: each copies a piece of its block into its slot, they meet, each copies the others'.
void allgather_shared(Group& group, uint8_t* output, std::span<const size_t> block_bytes,
                      size_t chunk_bytes);

// Several hosts of equal size with an arena each: ranks of equal local rank exchange their blocks,
// straight into the arena, where the other ranks of the host get them. A block crosses to each
// host once: D (h-1)/h per host and direction, a local_size-th of what direct moves.
void allgather_hierarchical(Group& group, uint8_t* output, std::span<const size_t> block_bytes,
                            size_t chunk_bytes);

}  // namespace hvdtune
