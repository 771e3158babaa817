#include "runtime/gpu/rank_gpu.h"

#include <string>
#include <utility>

#include "base/status.h"

namespace hvdtune {

RankGpu::RankGpu(std::shared_ptr<CudaDriver> driver, int local_rank)
    : driver_(std::move(driver)), local_rank_(local_rank) {}

RankGpu::Resources* RankGpu::find() const {
  const std::lock_guard lock(mutex_);
  return resources_.get();
}

RankGpu::Resources& RankGpu::make(int number) {
  const std::lock_guard lock(mutex_);
  if (!resources_) {
    const int count = driver_->count();
    if (count == 0) throw Error(ErrorCode::kUsage, "this process sees no GPU");
    const int chosen = number >= 0 ? number : local_rank_ % count;
    resources_ = std::make_unique<Resources>(std::make_shared<const Gpu>(driver_, chosen));
  }
  const int own = resources_->gpu->number();
  if (number >= 0 && number != own) {
    throw Error(ErrorCode::kUsage, "it is on GPU " + std::to_string(number) +
                                       ", but this rank's first tensor was on GPU " +
                                       std::to_string(own) + "; a rank uses one GPU");
  }
  return *resources_;
}

}  // namespace hvdtune
