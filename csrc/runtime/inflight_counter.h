// Counts operations whose end is reported by a callback, and knows since when the script waits for
// all of them to end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <utility>

namespace hvdtune {

// Thread rule: every member may be called from any thread; mutex_ guards all state.
class InflightCounter {
 public:
  void started() {
    const std::lock_guard lock(mutex_);
    ++in_flight_;
  }

  // False if nothing is in flight, or if it is awaited already.
  bool begin(uint64_t now_ns) {
    const std::lock_guard lock(mutex_);
    if (in_flight_ == 0 || begin_ns_ != 0) return false;
    begin_ns_ = now_ns;
    return true;
  }

  // One operation has ended. Returns when the wait that it ends had begun, 0 if it ends none.
  uint64_t ended() {
    const std::lock_guard lock(mutex_);
    return --in_flight_ == 0 ? std::exchange(begin_ns_, 0) : 0;
  }

 private:
  std::mutex mutex_;
  size_t in_flight_ = 0;
  uint64_t begin_ns_ = 0;  // 0: nobody waits
};

}  // namespace hvdtune
