#include "base/stop.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

#include "base/status.h"

namespace hvdtune {
namespace {

int new_eventfd() {
  const int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (fd < 0) throw system_failure("eventfd", errno);
  return fd;
}

void add_one(int fd) {
  const uint64_t one = 1;
  // A full counter (EAGAIN) is readable already, which is all that a sleeper needs.
  [[maybe_unused]] const ssize_t written = write(fd, &one, sizeof one);
}

}  // namespace

StopSignal::StopSignal() : fd_(new_eventfd()) {}
StopSignal::~StopSignal() { close(fd_); }

void StopSignal::raise() {
  raised_.store(true, std::memory_order_release);
  add_one(fd_);
}

WakeSignal::WakeSignal() : fd_(new_eventfd()) {}
WakeSignal::~WakeSignal() { close(fd_); }

void WakeSignal::notify() { add_one(fd_); }

void WakeSignal::drain() {
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t got = read(fd_, &count, sizeof count);
}

}  // namespace hvdtune
