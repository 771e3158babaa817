// The way into a Runtime for threads that may outlive it, as those of a framework do.
#pragma once

#include <mutex>
#include <shared_mutex>

namespace hvdtune {

class Runtime;

// Thread rule: every member may be called from any thread, close() by the runtime's owner.
class Gate {
 public:
  explicit Gate(Runtime& runtime) : runtime_(&runtime) {}

  // Calls visit(runtime), which meanwhile does not end. False if it has ended before.
  template <typename Visit>
  bool enter(const Visit& visit) const {
    const std::shared_lock lock(mutex_);
    if (runtime_ == nullptr) return false;
    visit(*runtime_);
    return true;
  }

  // Returns when nobody is inside, after which nobody enters.
  void close() {
    const std::unique_lock lock(mutex_);
    runtime_ = nullptr;
  }

 private:
  mutable std::shared_mutex mutex_;
  Runtime* runtime_;  // guarded by mutex_
};

}  // namespace hvdtune
