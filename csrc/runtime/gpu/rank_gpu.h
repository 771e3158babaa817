// The GPU of this rank, which is that of its first tensor.
#pragma once

#include <memory>
#include <mutex>

#include "device/gpu.h"
#include "device/memory_pool.h"

namespace hvdtune {

// Thread rule: every member may be called from any thread; mutex_ guards the pointer to the
// resources, which never change afterwards.
class RankGpu {
 public:
  struct Resources {
    explicit Resources(const std::shared_ptr<const Gpu>& its) : gpu(its), stream(its), pool(its) {}
    const std::shared_ptr<const Gpu> gpu;
    GpuStream stream;
    GpuMemoryPool pool;
  };

  RankGpu(std::shared_ptr<CudaDriver> driver, int local_rank);

  // For a tensor on GPU `number`. Throws Error(kUsage) if the rank uses another GPU.
  Resources& of_tensor(int number) { return make(number); }
  // A rank that has joined may have no tensor yet: its local rank then selects the GPU.
  Resources& get() { return make(-1); }
  // Null before the first call of the above.
  Resources* find() const;

 private:
  Resources& make(int number);

  const std::shared_ptr<CudaDriver> driver_;
  const int local_rank_;
  mutable std::mutex mutex_;
  std::unique_ptr<Resources> resources_;
};

}  // namespace hvdtune
