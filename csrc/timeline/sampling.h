// Which steps a timeline keeps, and the two gates that producers ask before they record.
#pragma once

#include <atomic>
#include <cstdint>
#include <limits>
#include <mutex>
#include <optional>

namespace hvdtune {

// Every `every`-th of the steps first to end - 1, counted as in EventKind::kStep.
struct StepWindow {
  uint64_t first = 0;
  uint64_t end = std::numeric_limits<uint64_t>::max();
  uint64_t every = 1;  // at least 1

  bool has_all() const { return first == 0 && every == 1 && end == StepWindow{}.end; }
  bool contains(uint64_t step) const {
    return step >= first && step < end && (step - first) % every == 0;
  }
};

// Thread rule: every member may be called from any thread. Reading a gate is one load.
class Sampling {
 public:
  // There is a file; with what is needed to understand the rest, clock measurements say.
  bool recording() const { return recording_.load(std::memory_order_acquire); }
  // And the step under way is wanted. Before the first step that is so where all steps are.
  bool sampled() const { return sampled_.load(std::memory_order_acquire); }

  void open(const StepWindow& window) {
    const std::lock_guard lock(mutex_);
    window_ = window;
    all_ = false;
    recording_.store(true, std::memory_order_release);
    update_locked();
  }
  void close() {
    const std::lock_guard lock(mutex_);
    recording_.store(false, std::memory_order_release);
    update_locked();
  }
  void begin_step(uint64_t step) {
    const std::lock_guard lock(mutex_);
    step_ = step;
    update_locked();
  }
  // All steps are wanted for as long as this is so, whatever the window says.
  void want_all(bool all) {
    const std::lock_guard lock(mutex_);
    all_ = all;
    update_locked();
  }

 private:
  void update_locked() {
    const bool wanted = all_ || window_.has_all() || (step_ && window_.contains(*step_));
    sampled_.store(recording_.load(std::memory_order_relaxed) && wanted, std::memory_order_release);
  }

  std::atomic<bool> recording_{false};
  std::atomic<bool> sampled_{false};
  std::mutex mutex_;  // guards what follows, for nanoseconds
  StepWindow window_;
  bool all_ = false;
  std::optional<uint64_t> step_;
};

}  // namespace hvdtune
