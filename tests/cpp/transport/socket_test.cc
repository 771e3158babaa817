// How connections and listeners end, also where another process has copies of their descriptors.
#include "transport/socket.h"

#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdio>

#include "base/clock.h"
#include "base/status.h"
#include "base/stop.h"
#include "check.h"
#include "transport/blocking_socket.h"
#include "transport/soon.h"

using namespace hvdtune;
using hvdtune::testing::soon;
using testing::connect_to;

namespace {

const StopSignal kNeverStopped;

// A pipe whose end a process waits for: it lives until this goes.
class Leash {
 public:
  Leash() { CHECK_EQ(pipe(ends_.data()), 0); }
  ~Leash() {
    close(ends_[0]);
    close(ends_[1]);
  }
  // In the child; does not return.
  [[noreturn]] void hold() {
    close(ends_[1]);
    char byte = 0;
    [[maybe_unused]] const ssize_t end = read(ends_[0], &byte, 1);
    _exit(0);
  }

 private:
  std::array<int, 2> ends_{};
};

struct Connection {
  Socket near;
  Socket far;
};

Connection connect_through(Listener& listener) {
  Connection both;
  both.near = connect_to("127.0.0.1", listener.port(), soon(), kNeverStopped);
  wait_ready(listener.fd(), POLLIN, soon(), kNeverStopped, "accept");
  both.far = std::move(listener.try_accept().value());
  return both;
}

void expect_end(Socket& socket) {
  wait_ready(socket.fd(), POLLIN, soon(), kNeverStopped, "see the end");
  char byte = 0;
  CHECK_THROWS(ErrorCode::kRankLost, socket.try_recv(&byte, 1));
}

// Copies every descriptor, as a child does that was made without the C library's fork().
class Copies {
 public:
  void keep(int fd) { fds_.push_back(dup(fd)); }
  ~Copies() {
    for (const int fd : fds_) close(fd);
  }

 private:
  std::vector<int> fds_;
};

}  // namespace

TEST(a_connection_ends_although_somebody_has_a_copy_of_it) {
  Listener listener("127.0.0.1");
  Connection both = connect_through(listener);
  Copies copies;
  copies.keep(both.far.fd());
  both.far.close();
  expect_end(both.near);
}

TEST(a_listener_ends_although_somebody_has_a_copy_of_it) {
  Copies copies;
  uint16_t port = 0;
  {
    Listener listener("127.0.0.1");
    port = listener.port();
    copies.keep(listener.fd());
  }
  CHECK_THROWS(ErrorCode::kRendezvous, connect_to("127.0.0.1", port, soon(), kNeverStopped));
}

TEST(a_killed_process_ends_its_connections_although_its_child_lives) {
  Leash leash;
  Listener listener("127.0.0.1");
  const pid_t rank = fork();
  CHECK(rank >= 0);
  if (rank == 0) {
    Socket socket = connect_to("127.0.0.1", listener.port(), soon(), kNeverStopped);
    if (fork() == 0) leash.hold();
    const char here = 1;
    socket.send_all(&here, 1, soon(), kNeverStopped);
    kill(getpid(), SIGKILL);
  }
  wait_ready(listener.fd(), POLLIN, soon(), kNeverStopped, "accept");
  Socket socket = std::move(listener.try_accept().value());
  char byte = 0;
  testing::recv_all(socket, &byte, 1, soon(), kNeverStopped);
  CHECK_EQ(waitpid(rank, nullptr, 0), rank);
  expect_end(socket);
}

TEST(what_a_child_does_to_its_copies_does_not_reach_its_parent) {
  Listener listener("127.0.0.1");
  Connection both = connect_through(listener);
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    const int fd = both.near.fd();
    const bool is_connected = send(fd, "x", 1, MSG_NOSIGNAL) == 1;
    both.near.close();
    // The number is free only now.
    _exit(is_connected || dup(listener.fd()) != fd ? 1 : 0);
  }
  int status = -1;
  CHECK_EQ(waitpid(child, &status, 0), child);
  CHECK_EQ(status, 0);
  const char sent = 7;
  char received = 0;
  both.near.send_all(&sent, 1, soon(), kNeverStopped);
  testing::recv_all(both.far, &received, 1, soon(), kNeverStopped);
  CHECK_EQ(int{received}, 7);
}

TEST(who_is_turned_away_when_no_descriptor_is_left_is_so_later) {
  Listener listener("127.0.0.1");
  Socket socket = connect_to("127.0.0.1", listener.port(), soon(), kNeverStopped);
  wait_ready(listener.fd(), POLLIN, soon(), kNeverStopped, "accept");
  rlimit before{};
  CHECK_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{0, before.rlim_max};
  CHECK_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  const bool at_once = listener.turn_away();
  CHECK_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  CHECK(!at_once);
  CHECK(listener.turn_away());
  expect_end(socket);
}
