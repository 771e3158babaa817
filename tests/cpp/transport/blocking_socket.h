// Sockets for tests that have time: a connection, and bytes, that are waited for.
#pragma once

#include <poll.h>

#include <string>

#include "base/clock.h"
#include "base/stop.h"
#include "transport/socket.h"

namespace hvdtune::testing {

// Throws Error(kRendezvous) when nobody listens there, Error(kTimeout), Error(kShutdown).
inline Socket connect_to(const std::string& address, uint16_t port, Deadline deadline,
                         const StopSignal& stop) {
  Socket socket = start_connect(address, port);
  wait_ready(socket.fd(), POLLOUT, deadline, stop, "connect");
  finish_connect(socket, address, port);
  return socket;
}

// Throws as Socket::send_all does.
inline void recv_all(Socket& socket, void* data, size_t bytes, Deadline deadline,
                     const StopSignal& stop) {
  auto* to = static_cast<uint8_t*>(data);
  while (bytes > 0) {
    const size_t got = socket.try_recv(to, bytes);
    to += got;
    bytes -= got;
    if (got == 0) wait_ready(socket.fd(), POLLIN, deadline, stop, "receive");
  }
}

}  // namespace hvdtune::testing
