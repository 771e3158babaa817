// TCP sockets: connected ones and listeners. Addresses are numeric IPv4 or IPv6; nothing here asks
// a name server.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/stop.h"
#include "transport/socket_fd.h"

namespace hvdtune {

enum class Traffic : uint8_t {
  kMessages,  // few and small; whoever gets them reads them at once
  kData,      // its reader may be busy with others for any time
};

// Owns a nonblocking, close-on-exec TCP socket with TCP_NODELAY and TCP_USER_TIMEOUT.
//
// Every call that finds the peer gone (end of stream, reset, user timeout) throws
// Error(kRankLost, ..., peer()).
class Socket {
 public:
  Socket() = default;
  explicit Socket(SocketFd fd) : fd_(std::move(fd)) {}

  // Bytes moved, 0 if none could be.
  size_t try_send(const void* data, size_t bytes);
  size_t try_recv(void* data, size_t bytes);
  // Throws Error(kTimeout) at the deadline and Error(kShutdown) once stop is raised.
  void send_all(const void* data, size_t bytes, Deadline deadline, const StopSignal& stop);

  // From here on the peer is lost once its machine leaves what is sent unanswered for `timeout`.
  // For messages the kernel sees to it; for data check_answers() does.
  void expect_answers(Traffic traffic, std::chrono::nanoseconds timeout);
  // Callers call this now and then while a transfer waits. A full window is not silence: a reader
  // that is slow, or waits for another rank, is alive. Throws Error(kTimeout). REQUIRES:
  // expect_answers(kData).
  void check_answers(uint64_t now_ns);
  // Bytes that the peer's machine has not acknowledged, 0 once the connection is gone.
  size_t undelivered_bytes() const;
  // The other end's numeric address, "" once the connection is gone.
  std::string peer_address() const;

  int fd() const { return fd_.get(); }
  bool open() const { return fd_.open(); }
  void close() { fd_.reset(); }
  int peer() const { return peer_; }
  void set_peer(int rank) { peer_ = rank; }

 private:
  [[noreturn]] void fail(const char* what, int error_number) const;

  SocketFd fd_;
  int peer_ = -1;
  std::chrono::nanoseconds silence_timeout_{};
  uint64_t unanswered_since_ns_ = 0;  // 0: nothing is unanswered
};

class Listener {
 public:
  // Port 0 lets the kernel choose. Throws Error(kRendezvous) naming address and port, Error(kUsage)
  // for an address that stands for every interface.
  explicit Listener(const std::string& address, uint16_t port = 0);

  uint16_t port() const { return port_; }
  int fd() const { return fd_.get(); }
  std::optional<Socket> try_accept();

  // Cuts off who has connected and was not accepted. For times in which nobody is wanted: a port
  // where nobody listened could be taken by another user. False when that cannot be done now for
  // lack of descriptors or memory; then the socket stays readable.
  bool turn_away();
  void close() { fd_.reset(); }

 private:
  SocketFd fd_;
  uint16_t port_ = 0;
};

// Connecting in two halves, for callers that wait for several things at once: poll(2) the socket
// for POLLOUT, then finish. Throw Error(kRendezvous) naming address and port.
Socket start_connect(const std::string& address, uint16_t port);
void finish_connect(Socket& socket, const std::string& address, uint16_t port);

// A socket that closes while it holds unread bytes resets its connection, and what it had sent and
// the network had dropped is never sent again: so whoever leaves waits for this first. Returns when
// `undelivered_bytes` gives 0, or gives nothing less for `timeout`.
void await_delivery(const std::function<size_t()>& undelivered_bytes,
                    std::chrono::nanoseconds timeout);

// Sleeps until fd is ready for events (poll(2) bits); wakes for the signal and the deadline too
// and throws then as Socket::send_all does. `what` goes into the text of Error(kTimeout).
void wait_ready(int fd, short events, Deadline deadline, const StopSignal& stop, const char* what);

}  // namespace hvdtune
