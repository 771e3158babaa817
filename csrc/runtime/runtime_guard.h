// The way into a Runtime for threads that may outlive it, as those of a framework do.
#pragma once

#include <condition_variable>
#include <mutex>

namespace hvdtune {

class Runtime;

// Thread rule: every member may be called from any thread, close() by the runtime's owner; mutex_
// guards all state.
class RuntimeGuard {
 public:
  explicit RuntimeGuard(Runtime& runtime) : runtime_(&runtime) {}

  // Calls visit(runtime), which meanwhile does not end; it may call with_runtime() again. False if
  // it has ended before.
  template <typename Visit>
  bool with_runtime(const Visit& visit) const {
    Runtime* runtime = nullptr;
    {
      const std::lock_guard lock(mutex_);
      if (runtime_ == nullptr) return false;
      runtime = runtime_;
      ++inside_;
    }
    const Leaving leaving(*this);
    visit(*runtime);
    return true;
  }

  // Returns when nobody is inside, after which nobody enters.
  void close() {
    std::unique_lock lock(mutex_);
    runtime_ = nullptr;
    left_.wait(lock, [this] { return inside_ == 0; });
  }

 private:
  class Leaving {
   public:
    explicit Leaving(const RuntimeGuard& guard) : guard_(guard) {}
    ~Leaving() {
      const std::lock_guard lock(guard_.mutex_);
      if (--guard_.inside_ == 0) guard_.left_.notify_all();
    }
    Leaving(const Leaving&) = delete;
    Leaving& operator=(const Leaving&) = delete;

   private:
    const RuntimeGuard& guard_;
  };

  mutable std::mutex mutex_;
  mutable std::condition_variable left_;
  mutable int inside_ = 0;
  Runtime* runtime_;
};

}  // namespace hvdtune
