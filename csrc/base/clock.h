// Time of this host: CLOCK_MONOTONIC in nanoseconds, and points in it.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <limits>
#include <string>

namespace hvdtune {

// Deciding code never calls this: it takes the time as an argument.
inline uint64_t now_ns() {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                   std::chrono::steady_clock::now().time_since_epoch())
                                   .count());
}

// When a blocking call gives up.
class Deadline {
 public:
  static Deadline in(std::chrono::nanoseconds time) {
    return Deadline(now_ns() + static_cast<uint64_t>(std::max<int64_t>(time.count(), 0)));
  }
  static Deadline at(uint64_t at_ns) { return Deadline(at_ns); }
  static Deadline never() { return Deadline(std::numeric_limits<uint64_t>::max()); }

  bool passed() const { return now_ns() >= at_ns_; }
  uint64_t at_ns() const { return at_ns_; }

  // Time left for poll(2): rounded up, -1 for never, at most limit_ms where one is given.
  int poll_ms(int limit_ms = -1) const {
    if (at_ns_ == std::numeric_limits<uint64_t>::max()) return limit_ms;
    const uint64_t now = now_ns();
    if (now >= at_ns_) return 0;
    const uint64_t left_ms = (at_ns_ - now + 999'999) / 1'000'000;
    const int capped = static_cast<int>(std::min<uint64_t>(left_ms, 1'000'000'000));
    return limit_ms < 0 ? capped : std::min(capped, limit_ms);
  }

 private:
  explicit Deadline(uint64_t at_ns) : at_ns_(at_ns) {}
  uint64_t at_ns_;
};

// Longer than anything here runs, and short enough for sums of a few such times in 64 bits.
constexpr std::chrono::nanoseconds kLongestWait = std::chrono::years(10);

// Limits longer waits, which mean "without a limit", to the longest.
inline std::chrono::nanoseconds to_nanoseconds(double seconds) {
  const double ns = seconds * 1e9;
  if (ns >= static_cast<double>(kLongestWait.count())) return kLongestWait;
  return std::chrono::nanoseconds(static_cast<int64_t>(ns));
}

// "2 s", "0.25 s": for messages, to the millisecond.
std::string seconds_text(std::chrono::nanoseconds time);

// The end of a timed wait of a condition variable that may take `time`, on a clock that is never
// set.
inline std::chrono::steady_clock::time_point wait_limit(std::chrono::nanoseconds time) {
  return std::chrono::steady_clock::now() + std::min(time, kLongestWait);
}

}  // namespace hvdtune
