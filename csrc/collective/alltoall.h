// Alltoall: every rank has a block for every rank; blocks may differ in size and be empty.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "collective/group.h"

namespace hvdtune {

// `input` holds the blocks for rank 0, 1, ... one after the other, `output` receives those from
// rank 0, 1, ... A rank's send_bytes[j] is rank j's recv_bytes for it. Input and output do not
// overlap.
//
// All pairs at once, one exchange: each rank sends and receives every byte but its own block's
// once, which is the least there can be. No copy but the links'.
void alltoall(Group& group, const uint8_t* input, std::span<const size_t> send_bytes,
              uint8_t* output, std::span<const size_t> recv_bytes);

}  // namespace hvdtune
