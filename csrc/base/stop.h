// A sticky request to stop, visible to polling and to spinning waits alike.
#pragma once

#include <atomic>

namespace hvdtune {

// Thread rule: every member may be called from any thread. Every blocking wait of the core takes
// one, so that a failure seen by one thread wakes all others.
class StopSignal {
 public:
  StopSignal();
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  void raise();
  bool raised() const { return raised_.load(std::memory_order_acquire); }
  // Readable from raise() on, for ever: add it to a poll set, never read it.
  int fd() const { return fd_; }

 private:
  std::atomic<bool> raised_{false};
  int fd_;
};

// Wakes a thread that sleeps in poll(2), once per notify() at least.
// Thread rule: notify() from any thread; drain() and fd() belong to the sleeper.
class WakeSignal {
 public:
  WakeSignal();
  ~WakeSignal();
  WakeSignal(const WakeSignal&) = delete;
  WakeSignal& operator=(const WakeSignal&) = delete;

  void notify();
  void drain();
  int fd() const { return fd_; }

 private:
  int fd_;
};

}  // namespace hvdtune
