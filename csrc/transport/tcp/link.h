// Links over sockets.
#pragma once

#include <memory>
#include <vector>

#include "transport/link.h"
#include "transport/socket.h"

namespace hvdtune {

// REQUIRES: the socket's peer is set.
std::unique_ptr<Link> make_tcp_link(Socket socket);

// Several streams to one peer, for networks that limit each. REQUIRES: the sockets' peer is set,
// and their order is the same on both sides.
std::unique_ptr<Link> make_striped_link(std::vector<Socket> streams);

}  // namespace hvdtune
