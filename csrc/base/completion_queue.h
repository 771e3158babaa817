// Tells one thread which of many operations have ended.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

#include "base/clock.h"

namespace hvdtune {

// Thread rule: put() from any thread, take() by one; mutex_ guards all state.
class CompletionQueue {
 public:
  void put(uint64_t token) {
    {
      const std::lock_guard lock(mutex_);
      tokens_.push_back(token);
    }
    added_.notify_one();
  }

  // What has been put since the last call, in order; waits for it, at most `time`.
  std::vector<uint64_t> take(std::chrono::nanoseconds time) {
    std::unique_lock lock(mutex_);
    added_.wait_until(lock, wait_limit(time), [this] { return !tokens_.empty(); });
    return std::exchange(tokens_, {});
  }

 private:
  std::mutex mutex_;
  std::condition_variable added_;
  std::vector<uint64_t> tokens_;
};

}  // namespace hvdtune
