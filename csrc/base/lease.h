// Until when the other ranks count on this one.
#pragma once

#include <atomic>
#include <cstdint>
#include <limits>

#include "base/clock.h"
#include "base/stop.h"

namespace hvdtune {

// A rank whose process was stopped may have been given up by the others when it goes on, before it
// hears of that. So it changes nothing of theirs, and reports nothing that they would have to agree
// with, unless it holds the lease: nobody gives a rank up whom it has heard so recently.
//
// Thread rule: extend() belongs to the health thread, the others to any thread.
class RankLease {
 public:
  static constexpr uint64_t kForEver = std::numeric_limits<uint64_t>::max();

  // By now_ns(). Never shortened.
  void extend(uint64_t until_ns) {
    if (until_ns > until_ns_.load(std::memory_order_relaxed)) {
      until_ns_.store(until_ns, std::memory_order_release);
    }
  }
  bool is_held() const { return now_ns() < until_ns_.load(std::memory_order_acquire); }
  // Returns once it is held, which is at once but for a rank that was stopped or starved. Throws
  // Error(kShutdown) once `stop` is raised: a rank that was given up is told so.
  void await(const StopSignal& stop) const;

 private:
  std::atomic<uint64_t> until_ns_{0};
};

}  // namespace hvdtune
