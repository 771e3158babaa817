// Alltoall: every rank has a block for every rank; blocks may differ in size and be empty.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/knob.h"
#include "collective/choose.h"
#include "collective/group.h"

namespace hvdtune {

// Of all ranks' blocks, those for themselves included: what they are together, and the longest one.
struct AllBlocks {
  size_t total_bytes = 0;
  size_t longest_bytes = 0;
};

// `input` holds the blocks for rank 0, 1, ... one after the other, `output` receives those from
// rank 0, 1, ... A rank's send_bytes[j] is rank j's recv_bytes for it. Input and output do not
// overlap.
void alltoall(Group& group, const uint8_t* input, std::span<const size_t> send_bytes,
              uint8_t* output, std::span<const size_t> recv_bytes, const AllBlocks& all,
              const Setting& setting);
void alltoall_by(Algorithm algorithm, Group& group, const uint8_t* input,
                 std::span<const size_t> send_bytes, uint8_t* output,
                 std::span<const size_t> recv_bytes);

// All pairs at once, one exchange: each rank sends and receives every byte but its own block's
// once, which is the least there can be. No copy but the links'.
void alltoall_direct(Group& group, const uint8_t* input, std::span<const size_t> send_bytes,
                     uint8_t* output, std::span<const size_t> recv_bytes);

// One host: each rank shows where its blocks are, they meet, each has the kernel copy those for it
// out of the others' memory, once instead of into a link and out of it, and they meet again. False,
// with nothing done, where some rank cannot reach some other's memory.
bool alltoall_shared(Group& group, const uint8_t* input, std::span<const size_t> send_bytes,
                     uint8_t* output, std::span<const size_t> recv_bytes);

// One host, in rounds: each rank puts a part of each block into its slot, they meet, each takes
// what is for it out of the others'. Two copies, as through links, but no turns between the two.
// False, with nothing done, where a slot has not one line for each rank.
bool alltoall_slots(Group& group, const uint8_t* input, std::span<const size_t> send_bytes,
                    uint8_t* output, std::span<const size_t> recv_bytes, size_t longest_bytes,
                    size_t chunk_bytes);

}  // namespace hvdtune
