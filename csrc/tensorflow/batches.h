// Operations after which the step waits, as the gradients of a backward pass.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

namespace hvdtune_tensorflow {

// How many operations of each batch have been started in the latest run of the function that they
// are in, and which wait on a GPU until all have.
//
// TensorFlow has one stream: what it launches after that stream waits for an operation comes after
// the operation. Were each gradient's operation waited for when it is enqueued, the rest of the
// backward pass would come after it, and nothing would overlap.
//
// Thread rule: every member may be called from any thread.
class Batches {
 public:
  using GoOn = std::function<void()>;

  // Counts one that is being started; true if it is the last. `waiting` gets what can go on then.
  bool start(int64_t batch, int64_t size, int64_t run, std::vector<GoOn>& waiting) {
    if (batch == 0) return true;
    const std::lock_guard<std::mutex> lock(mutex_);
    Started& started = started_[batch];
    if (started.run != run || started.all) {  // the run before may have failed halfway
      started.run = run;
      started.count = 0;
      started.all = false;
      started.waiting.swap(waiting);  // to be dropped without the lock
      waiting.clear();
    }
    started.all = ++started.count >= size;
    if (started.all) waiting.swap(started.waiting);
    return started.all;
  }

  // False if all of the batch have been started. Else `go_on` is kept for whoever starts the last
  // one: it is dropped if nobody does.
  bool keep(int64_t batch, int64_t run, GoOn go_on) {
    if (batch == 0) return false;
    const std::lock_guard<std::mutex> lock(mutex_);
    Started& started = started_[batch];
    if (started.run != run || started.all) return false;
    started.waiting.push_back(std::move(go_on));
    return true;
  }

 private:
  struct Started {
    int64_t run = -1;
    int64_t count = 0;
    bool all = false;
    std::vector<GoOn> waiting;
  };
  std::mutex mutex_;
  std::unordered_map<int64_t, Started> started_;  // guarded by mutex_
};

inline Batches& batches() {
  static Batches all;
  return all;
}

}  // namespace hvdtune_tensorflow
