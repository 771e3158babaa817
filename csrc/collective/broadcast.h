// Broadcast: the root sends to every rank. Its link carries n-1 times the data.
#pragma once

#include "collective/group.h"

namespace hvdtune {

void broadcast(Group& group, int root, const uint8_t* input, uint8_t* output, size_t bytes);

}  // namespace hvdtune
