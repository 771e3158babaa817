// Ordered bytes between two ranks.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hvdtune {

// A link never blocks: it moves what can be moved and says what to wait for. exchange() is the one
// loop that waits.
//
// Thread rule: one thread on each side uses a link, the cycle thread.
class Link {
 public:
  virtual ~Link() = default;

  // Bytes moved, 0 if none could be. Throw Error(kRankLost, ..., peer()) when the peer is gone;
  // what it had sent before is still received.
  virtual size_t try_send(const void* data, size_t bytes) = 0;
  virtual size_t try_recv(void* data, size_t bytes) = 0;

  // To sleep: call sleep_events(), poll(2) fd() for the events it returns, then call wake_up(),
  // whatever poll(2) said. 0 means that progress became possible: do not sleep (but call
  // wake_up()). REQUIRES: want_send or want_recv.
  virtual int fd() const = 0;
  virtual short sleep_events(bool want_send, bool want_recv) = 0;
  virtual void wake_up() = 0;

  // Callers call this now and then while a transfer waits. Throws Error(kRankLost, ..., peer())
  // when the peer's machine has stopped answering, which neither side's calls would ever say.
  virtual void check_answers(uint64_t /*now_ns*/) {}

  // Bytes that were sent and could still be lost if this side's process ended.
  virtual size_t undelivered_bytes() const { return 0; }

  virtual int peer() const = 0;
};

}  // namespace hvdtune
