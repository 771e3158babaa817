#include "transport/socket.h"

#include <linux/sockios.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <limits>
#include <string>
#include <thread>

#include "base/failpoint.h"
#include "base/status.h"
#include "transport/endpoint.h"

namespace hvdtune {
namespace {

// Until expect_answers() sets another.
constexpr unsigned kUserTimeoutMs = 30'000;
// The highest priority that needs no privilege.
constexpr unsigned kInteractivePriority = 6;
constexpr int kMostTurnedAway = 64;

void set_option(int fd, int level, int name, unsigned value) {
  if (setsockopt(fd, level, name, &value, sizeof value) != 0) {
    throw system_failure("setsockopt", errno);
  }
}

void set_up_connection(int fd) {
  set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, kUserTimeoutMs);
  // Without traffic only keepalive probes let the user timeout see a vanished machine.
  set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, 10);
  set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, 5);
}

SocketFd new_socket(const Endpoint& at) {
  SocketFd fd = SocketFd::make(at.family());
  if (!fd.open()) throw system_failure("socket", errno);
  return fd;
}

bool is_would_block(int error_number) {
  return error_number == EAGAIN || error_number == EWOULDBLOCK || error_number == EINTR;
}

// Errors of a connection that ended before it was accepted; accept(2) asks to treat them alike.
bool is_stillborn(int error_number) {
  constexpr std::array kErrors = {ECONNABORTED, ENETDOWN, EPROTO,       ENOPROTOOPT,
                                  EHOSTDOWN,    ENONET,   EHOSTUNREACH, ENETUNREACH};
  for (const int error : kErrors) {
    if (error == error_number) return true;
  }
  return false;
}

[[noreturn]] void fail_connect(const std::string& address, uint16_t port, int error_number) {
  throw Error(ErrorCode::kRendezvous,
              system_message("cannot connect to " + endpoint_name(address, port), error_number));
}

}  // namespace

void Socket::fail(const char* what, int error_number) const {
  const std::string who = peer_ >= 0 ? "rank " + std::to_string(peer_) : "the peer";
  throw Error(ErrorCode::kRankLost,
              error_number == 0
                  ? who + " closed its connection"
                  : system_message("connection to " + who + ": " + what, error_number),
              peer_);
}

size_t Socket::try_send(const void* data, size_t bytes) {
  if (bytes == 0) return 0;
  FAILPOINT_ON("socket/send", fd_.get());
  const ssize_t sent = ::send(fd_.get(), data, bytes, MSG_NOSIGNAL);
  FAILPOINT_ON("socket/sent", fd_.get());
  if (sent >= 0) return static_cast<size_t>(sent);
  if (!is_would_block(errno)) fail("send", errno);
  return 0;
}

size_t Socket::try_recv(void* data, size_t bytes) {
  if (bytes == 0) return 0;
  FAILPOINT_ON("socket/recv", fd_.get());
  const ssize_t got = ::recv(fd_.get(), data, bytes, 0);
  FAILPOINT_ON("socket/received", fd_.get());
  if (got > 0) return static_cast<size_t>(got);
  if (got == 0) fail("recv", 0);
  if (!is_would_block(errno)) fail("recv", errno);
  return 0;
}

void Socket::send_all(const void* data, size_t bytes, Deadline deadline, const StopSignal& stop) {
  const auto* from = static_cast<const uint8_t*>(data);
  while (bytes > 0) {
    const size_t sent = try_send(from, bytes);
    from += sent;
    bytes -= sent;
    if (sent == 0) wait_ready(fd(), POLLOUT, deadline, stop, "send");
  }
}

void Socket::expect_answers(Traffic traffic, std::chrono::nanoseconds timeout) {
  silence_timeout_ = timeout;
  if (traffic == Traffic::kData) {
    // The kernel's timeout also counts a window that stays full, however lively the peer.
    set_option(fd(), IPPROTO_TCP, TCP_USER_TIMEOUT, 0);
    return;
  }
  // The kernel counts from its first retransmission, 200 ms after the message.
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(timeout * 4 / 5).count();
  set_option(fd(), IPPROTO_TCP, TCP_USER_TIMEOUT,
             static_cast<unsigned>(std::clamp<int64_t>(ms, 1, std::numeric_limits<int>::max())));
  // A message that was dropped is sent again every 200 ms instead of ever more rarely, and does not
  // queue behind data.
  set_option(fd(), IPPROTO_TCP, TCP_THIN_LINEAR_TIMEOUTS, 1);
  set_option(fd(), SOL_SOCKET, SO_PRIORITY, kInteractivePriority);
}

void Socket::check_answers(uint64_t now_ns) {
  tcp_info info{};
  socklen_t bytes = sizeof info;
  if (getsockopt(fd(), IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0) return;
  if (info.tcpi_unacked == 0 && info.tcpi_probes == 0) {
    unanswered_since_ns_ = 0;
    return;
  }
  const uint64_t answer_age_ns = uint64_t{info.tcpi_last_ack_recv} * 1'000'000;
  if (unanswered_since_ns_ == 0 || answer_age_ns < now_ns - unanswered_since_ns_) {
    unanswered_since_ns_ = now_ns;
  }
  if (now_ns - unanswered_since_ns_ >= static_cast<uint64_t>(silence_timeout_.count())) {
    throw Error(ErrorCode::kTimeout,
                "the host of rank " + std::to_string(peer_) + " has acknowledged no data for " +
                    seconds_text(silence_timeout_),
                peer_);
  }
}

size_t Socket::undelivered_bytes() const {
  tcp_info info{};
  socklen_t bytes = sizeof info;
  int queued = 0;
  if (getsockopt(fd(), IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0) return 0;
  if (info.tcpi_state == TCP_CLOSE || ioctl(fd(), SIOCOUTQ, &queued) != 0) return 0;
  return static_cast<size_t>(std::max(queued, 0));
}

std::string Socket::peer_address() const {
  Endpoint other;
  other.bytes = sizeof other.storage;
  std::array<char, NI_MAXHOST> text{};
  if (getpeername(fd(), other.get(), &other.bytes) != 0 ||
      getnameinfo(other.get(), other.bytes, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST)) {
    return "";
  }
  return text.data();
}

Listener::Listener(const std::string& address, uint16_t port) {
  Endpoint at = Endpoint::of(address, port);
  if (at.is_every_interface()) {
    throw Error(ErrorCode::kUsage, "cannot listen on " + address +
                                       ", which means all interfaces; use the address of one");
  }
  fd_ = new_socket(at);
  set_option(fd_.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  if (bind(fd_.get(), at.get(), at.bytes) != 0 || listen(fd_.get(), SOMAXCONN) != 0) {
    throw Error(ErrorCode::kRendezvous,
                system_message("cannot listen on " + endpoint_name(address, port), errno));
  }
  if (getsockname(fd_.get(), at.get(), &at.bytes) != 0) throw system_failure("getsockname", errno);
  // The port stands at the same place in both address families.
  sockaddr_in bound{};
  std::memcpy(&bound, &at.storage, sizeof bound);
  port_ = ntohs(bound.sin_port);
}

bool Listener::turn_away() {
  // A crowd does not keep the caller from what else it has to do.
  for (int i = 0; i < kMostTurnedAway; ++i) {
    const SocketFd fd = SocketFd::accept(fd_.get());
    if (fd.open() || errno == EINTR || is_stillborn(errno)) continue;
    return is_would_block(errno);
  }
  return true;
}

std::optional<Socket> Listener::try_accept() {
  for (;;) {
    SocketFd fd = SocketFd::accept(fd_.get());
    if (fd.open()) {
      set_up_connection(fd.get());
      FAILPOINT_ON("socket/accepted", fd.get());
      return Socket(std::move(fd));
    }
    if (errno == EINTR || is_stillborn(errno)) continue;
    if (is_would_block(errno)) return std::nullopt;
    throw system_failure("accept", errno);
  }
}

Socket start_connect(const std::string& address, uint16_t port) {
  Endpoint to = Endpoint::of(address, port);
  SocketFd fd = new_socket(to);
  FAILPOINT("socket/connect");
  set_up_connection(fd.get());
  if (connect(fd.get(), to.get(), to.bytes) != 0 && errno != EINPROGRESS && errno != EINTR) {
    fail_connect(address, port, errno);
  }
  return Socket(std::move(fd));
}

void finish_connect(Socket& socket, const std::string& address, uint16_t port) {
  int error_number = 0;
  socklen_t bytes = sizeof error_number;
  if (getsockopt(socket.fd(), SOL_SOCKET, SO_ERROR, &error_number, &bytes) != 0) {
    error_number = errno;
  }
  if (error_number != 0) fail_connect(address, port, error_number);
}

void await_delivery(const std::function<size_t()>& undelivered_bytes,
                    std::chrono::nanoseconds timeout) {
  constexpr std::chrono::nanoseconds kLongestNap = std::chrono::milliseconds(10);
  std::chrono::nanoseconds nap = std::chrono::microseconds(50);
  size_t least = std::numeric_limits<size_t>::max();
  Deadline deadline = Deadline::in(timeout);
  while (const size_t left = undelivered_bytes()) {
    if (left < least) deadline = Deadline::in(timeout);
    least = std::min(least, left);
    if (deadline.passed()) return;
    std::this_thread::sleep_for(nap);
    nap = std::min(2 * nap, kLongestNap);
  }
}

void wait_ready(int fd, short events, Deadline deadline, const StopSignal& stop, const char* what) {
  std::array<pollfd, 2> polls = {{{stop.fd(), POLLIN, 0}, {fd, events, 0}}};
  for (;;) {
    const int ready = poll(polls.data(), polls.size(), deadline.poll_ms());
    if (ready < 0 && errno != EINTR) throw system_failure("poll", errno);
    if (stop.raised())
      throw Error(ErrorCode::kShutdown, "stopped while waiting to " + std::string(what));
    if (ready > 0) return;
    if (deadline.passed()) {
      throw Error(ErrorCode::kTimeout, "timed out waiting to " + std::string(what));
    }
  }
}

}  // namespace hvdtune
