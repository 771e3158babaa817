#include "transport/socket_fd.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include <mutex>
#include <set>

namespace hvdtune {
namespace {

// Never destroyed: fork may come at any time.
class OpenSockets {
 public:
  static OpenSockets& instance() {
    static OpenSockets* const sockets = new OpenSockets();
    return *sockets;
  }

  // A descriptor that is open is listed, and the other way round, whenever fork() may run.
  template <typename Opening>
  int open(Opening opening) {
    const std::lock_guard lock(mutex_);
    const int fd = opening();
    if (fd >= 0) fds_.insert(fd);
    return fd;
  }
  void close(int fd) {
    const std::lock_guard lock(mutex_);
    fds_.erase(fd);
    ::close(fd);
  }

 private:
  OpenSockets() { pthread_atfork(&before, &after_in_parent, &after_in_child); }

  static void before() { instance().mutex_.lock(); }
  static void after_in_parent() { instance().mutex_.unlock(); }
  // The numbers stay taken, so that an object which the child destroys after all closes nothing
  // that the child has opened since, and ends no connection of its parent.
  static void after_in_child() {
    const int nowhere = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    for (const int fd : instance().fds_) {
      if (nowhere < 0 || dup3(nowhere, fd, O_CLOEXEC) < 0) ::close(fd);
    }
    if (nowhere >= 0) ::close(nowhere);
    instance().mutex_.unlock();
  }

  std::mutex mutex_;  // guards fds_
  std::set<int> fds_;
};

}  // namespace

SocketFd SocketFd::make(int address_family) {
  return SocketFd(OpenSockets::instance().open(
      [&] { return ::socket(address_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0); }));
}

SocketFd SocketFd::accept(int listener) {
  return SocketFd(OpenSockets::instance().open(
      [&] { return ::accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC); }));
}

SocketFd& SocketFd::operator=(SocketFd&& other) noexcept {
  if (this != &other) {
    reset();
    fd_ = std::exchange(other.fd_, -1);
  }
  return *this;
}

void SocketFd::reset() {
  if (fd_ < 0) return;
  ::shutdown(fd_, SHUT_RDWR);
  OpenSockets::instance().close(std::exchange(fd_, -1));
}

}  // namespace hvdtune
