#include "device/gpu_clock.h"

#include <limits>
#include <thread>
#include <utility>

#include "base/clock.h"

namespace hvdtune {
namespace {

// The time since an event is a float of milliseconds: within this time it is good to 0.5 us, and
// two clocks that differ by 1 in 100,000 drift apart by 50 us.
constexpr uint64_t kLongestNs = 5'000'000'000;
// An event passes some microseconds after it is recorded, unless the GPU is shared.
constexpr int kTries = 5;
constexpr uint64_t kGoodNs = 20'000;
constexpr uint64_t kTryNs = 1'000'000;

}  // namespace

GpuClock::GpuClock(std::shared_ptr<const Gpu> gpu) : gpu_(std::move(gpu)), stream_(gpu_) {
  compare();
}

std::optional<uint64_t> GpuClock::ns_of(const GpuEvent& event) const {
  if (!base_) return std::nullopt;
  const auto since = static_cast<int64_t>(event.ms_since(*base_) * 1e6);
  return static_cast<uint64_t>(static_cast<int64_t>(base_ns_) + since);
}

void GpuClock::keep_in_step() {
  if (now_ns() >= next_ns_) compare();
}

// An event passes between two looks at the host's clock. The shortest try counts.
void GpuClock::compare() {
  uint64_t best = std::numeric_limits<uint64_t>::max();
  for (int i = 0; i < kTries && best > kGoodNs; ++i) {
    auto event = std::make_unique<GpuEvent>(gpu_, GpuEvent::Timing::kOn);
    const uint64_t before = now_ns();
    event->record(stream_.get());
    while (!event->has_passed() && now_ns() - before < kTryNs) std::this_thread::yield();
    const uint64_t took = now_ns() - before;
    // Longer where this thread did not run meanwhile, which says too little of when it passed.
    if (!event->has_passed() || took > kTryNs || took >= best) continue;
    best = took;
    base_ = std::move(event);
    base_ns_ = before + took / 2;
    residual_ns_ = took / 2;
  }
  next_ns_ = base_ ? now_ns() + kLongestNs : 0;
}

}  // namespace hvdtune
