// A link over a socket.
#pragma once

#include <memory>

#include "transport/link.h"
#include "transport/socket.h"

namespace hvdtune {

// REQUIRES: the socket's peer is set.
std::unique_ptr<Link> make_tcp_link(Socket socket);

}  // namespace hvdtune
