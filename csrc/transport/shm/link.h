// A link over memory shared by two ranks of one host.
#pragma once

#include <cstddef>
#include <memory>

#include "transport/link.h"
#include "transport/shm/segment.h"
#include "transport/socket.h"

namespace hvdtune {

// The size of a segment that holds the pair's two rings.
size_t shm_link_bytes();

// The segment holds one ring for each direction; ring 0 is written by the lower rank. The socket,
// whose peer is set, is the doorbell: a byte wakes a peer that sleeps, end of stream says that it
// is gone. REQUIRES: the segment is fresh and both ends call this once, one of them with `lower`.
std::unique_ptr<Link> make_shm_link(Segment segment, Socket doorbell, bool lower);

}  // namespace hvdtune
