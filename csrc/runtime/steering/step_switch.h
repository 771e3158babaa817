// The values of a script's own knobs on this rank, which change on all ranks at one step boundary.
//
// A cycle reaches the ranks while their scripts are at different places, so it cannot define the
// instant at which values of the script change. Rank 0 therefore first prepares a version. Each
// rank answers with the number of step boundaries that its script has passed, and holds: it passes
// one more freely, and waits at the one after that until it knows where the values change. Rank 0
// names the second boundary after the most that a rank had passed. No rank can have passed that
// one, and none waits in a job whose messages are faster than its steps.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <utility>
#include <vector>

#include "base/knob.h"

namespace hvdtune {

// Thread rule: every member may be called from any thread; mutex_ guards all state.
class StepSwitch {
 public:
  // How many boundaries after those that it has passed a rank waits at the latest.
  static constexpr uint64_t kFreeSteps = 2;

  explicit StepSwitch(std::vector<ScriptValue> start) : values_(std::move(start)) {}

  // The script passes a step boundary. Waits where this rank holds, at most for the other ranks'
  // cycle threads and never for their scripts.
  void pass() {
    std::unique_lock lock(mutex_);
    ++passed_;
    changed_.wait(lock, [this] { return !holds_ || passed_ < limit_ || is_abandoned_; });
    while (!coming_.empty() && passed_ >= coming_.front().boundary) {
      version_ = coming_.front().version;
      values_ = std::move(coming_.front().values);
      coming_.pop_front();
    }
  }
  // Returns how many boundaries the script has passed.
  uint64_t hold() {
    const std::lock_guard lock(mutex_);
    holds_ = true;
    limit_ = passed_ + kFreeSteps;
    return passed_;
  }
  // The values hold from this boundary on.
  void set(uint32_t version, std::vector<ScriptValue> values, uint64_t boundary) {
    {
      const std::lock_guard lock(mutex_);
      coming_.push_back({version, std::move(values), boundary});
      holds_ = false;
    }
    changed_.notify_all();
  }
  // The job is ending: no switch will be decided, so no script waits here any more.
  void abandon() {
    {
      const std::lock_guard lock(mutex_);
      is_abandoned_ = true;
    }
    changed_.notify_all();
  }

  // The version whose values the script has.
  uint32_t version() const {
    const std::lock_guard lock(mutex_);
    return version_;
  }
  std::vector<ScriptValue> values() const {
    const std::lock_guard lock(mutex_);
    return values_;
  }

 private:
  struct Coming {
    uint32_t version;
    std::vector<ScriptValue> values;
    uint64_t boundary;
  };

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<ScriptValue> values_;
  uint32_t version_ = 0;
  uint64_t passed_ = 0;
  bool holds_ = false;
  uint64_t limit_ = 0;
  bool is_abandoned_ = false;
  std::deque<Coming> coming_;  // boundaries ascend
};

}  // namespace hvdtune
