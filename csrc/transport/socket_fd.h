// The descriptor of a socket that is nobody's but this process's.
#pragma once

#include <utility>

namespace hvdtune {

// When it goes, the connection ends, whoever has a copy of the descriptor: a copy in another
// process would keep a connection that is only closed. A child made by fork() has in its place a
// socket that is connected to nothing.
class SocketFd {
 public:
  SocketFd() = default;
  ~SocketFd() { reset(); }
  SocketFd(SocketFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  SocketFd& operator=(SocketFd&& other) noexcept;

  // Nonblocking and close-on-exec. Where the system has none to give they are not open, and errno
  // says why.
  static SocketFd make(int address_family);
  static SocketFd accept(int listener);

  int get() const { return fd_; }
  bool open() const { return fd_ >= 0; }
  void reset();

 private:
  explicit SocketFd(int fd) : fd_(fd) {}

  int fd_ = -1;
};

}  // namespace hvdtune
