// Reducescatter: the ranks' inputs are reduced and each rank gets one block of the result.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/knob.h"
#include "collective/choose.h"
#include "collective/group.h"
#include "collective/reduce/reduce.h"

namespace hvdtune {

// `counts` holds the elements of each rank's block, which may be 0; `input` has all blocks one
// after the other, `output` this rank's. The bits are those of the same part of an allreduce. Input
// and output do not overlap.
void reducescatter(Group& group, const Reduction& reduction, const uint8_t* input, uint8_t* output,
                   std::span<const size_t> counts, const Setting& setting);
void reducescatter_by(Algorithm algorithm, Group& group, const Reduction& reduction,
                      const uint8_t* input, uint8_t* output, std::span<const size_t> counts,
                      size_t chunk_bytes);

// Each rank sends block j to rank j and reduces the n contributions to its own in canonical order:
// n-1 messages a round, all of the input but its own block sent per rank, n-1 times that block
// received. Several rounds are under way at once.
void reducescatter_direct(Group& group, const Reduction& reduction, const uint8_t* input,
                          uint8_t* output, std::span<const size_t> counts, size_t chunk_bytes);

// One host: each copies a piece of every block into its slot, they meet, each reduces its own
// block's pieces from all slots into its output: one copy, one meeting a round.
void reducescatter_shared(Group& group, const Reduction& reduction, const uint8_t* input,
                          uint8_t* output, std::span<const size_t> counts, size_t chunk_bytes);

}  // namespace hvdtune
