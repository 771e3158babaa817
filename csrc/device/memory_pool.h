// Memory of a GPU that is used again: making it anew may wait, and freeing it waits, for whatever
// the GPU does, also for what another rank holds up.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "device/gpu.h"

namespace hvdtune {

// All of it is used on one stream, so that whoever gets memory again comes after whoever had it;
// what another stream reads is kept until that has read it.
//
// Thread rule: every member may be called from any thread. Memory that is out may outlive the pool.
class GpuMemoryPool {
 public:
  explicit GpuMemoryPool(std::shared_ptr<const Gpu> gpu)
      : shared_(std::make_shared<Shared>(std::move(gpu))) {}

  // At least `bytes`, aligned to 256, until the last copy of the pointer is gone.
  std::shared_ptr<GpuMemory> take(size_t bytes);
  // The same of the host's. REQUIRES: whoever gives it back knows that no stream uses it any more.
  std::shared_ptr<PinnedMemory> take_pinned(size_t bytes);
  // Keeps memory of this pool until `read` has passed.
  void keep(std::shared_ptr<GpuMemory> memory, std::unique_ptr<GpuEvent> read);

 private:
  template <typename Memory>  // by bytes
  using FreeMemory = std::multimap<size_t, std::unique_ptr<Memory>>;
  struct Shared {
    explicit Shared(std::shared_ptr<const Gpu> its) : gpu(std::move(its)) {}
    const std::shared_ptr<const Gpu> gpu;
    std::mutex mutex;  // guards what follows
    FreeMemory<GpuMemory> free;
    FreeMemory<PinnedMemory> free_pinned;
  };
  using Kept = std::pair<std::shared_ptr<GpuMemory>, std::unique_ptr<GpuEvent>>;
  template <typename Memory>
  std::shared_ptr<Memory> take_from(FreeMemory<Memory> Shared::* free, size_t bytes);

  std::shared_ptr<Shared> shared_;
  std::mutex mutex_;  // guards kept_
  std::vector<Kept> kept_;
};

}  // namespace hvdtune
