#include "device/memory_pool.h"

#include <algorithm>
#include <bit>

namespace hvdtune {
namespace {

// Few sizes, so that most memory is found again: at most a quarter of it is not used.
size_t rounded(size_t bytes) {
  constexpr size_t kLeast = size_t{1} << 12;
  const size_t step = std::max(std::bit_floor(bytes) / 4, kLeast);
  return std::max((bytes + step - 1) / step * step, kLeast);
}

}  // namespace

template <typename Memory>
std::shared_ptr<Memory> GpuMemoryPool::take_from(FreeMemory<Memory> Shared::* free, size_t bytes) {
  const size_t size = rounded(bytes);
  std::unique_ptr<Memory> memory;
  {
    const std::lock_guard lock(shared_->mutex);
    FreeMemory<Memory>& all = (*shared_).*free;
    const auto found = all.find(size);
    if (found != all.end()) {
      memory = std::move(found->second);
      all.erase(found);
    }
  }
  if (!memory) memory = std::make_unique<Memory>(shared_->gpu, size);
  return {memory.release(), [shared = shared_, free](Memory* returned) {
            const std::lock_guard lock(shared->mutex);
            ((*shared).*free).emplace(returned->bytes(), returned);
          }};
}

std::shared_ptr<GpuMemory> GpuMemoryPool::take(size_t bytes) {
  {
    std::vector<Kept> passed;  // goes back when no lock is held any more
    const std::lock_guard lock(mutex_);
    const auto rest =
        std::ranges::partition(kept_, [](const Kept& kept) { return !kept.second->has_passed(); });
    std::ranges::move(rest, std::back_inserter(passed));
    kept_.erase(rest.begin(), rest.end());
  }
  return take_from(&Shared::free, bytes);
}

std::shared_ptr<PinnedMemory> GpuMemoryPool::take_pinned(size_t bytes) {
  return take_from(&Shared::free_pinned, bytes);
}

void GpuMemoryPool::keep(std::shared_ptr<GpuMemory> memory, std::unique_ptr<GpuEvent> read) {
  const std::lock_guard lock(mutex_);
  kept_.emplace_back(std::move(memory), std::move(read));
}

}  // namespace hvdtune
