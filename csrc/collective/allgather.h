// Allgather: every rank sends its block to every other; blocks may differ in size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "collective/group.h"

namespace hvdtune {

// `output` receives the blocks in rank order; block_bytes holds the size of each.
void allgather(Group& group, const uint8_t* input, uint8_t* output,
               std::span<const size_t> block_bytes);

}  // namespace hvdtune
