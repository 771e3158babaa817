// When a GPU did what its streams were given, in the host's clock.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "device/gpu.h"

namespace hvdtune {

// Thread rule: one thread.
class GpuClock {
 public:
  explicit GpuClock(std::shared_ptr<const Gpu> gpu);

  // When the event passed, as base/clock.h counts; nothing while the clocks could not be compared
  // yet. REQUIRES: it has passed, and is timed.
  std::optional<uint64_t> ns_of(const GpuEvent& event) const;

  // Compares the two clocks anew if that was long ago. Takes at most some milliseconds.
  void keep_in_step();
  // How far ns_of may be off.
  uint64_t residual_ns() const { return residual_ns_; }

 private:
  void compare();

  const std::shared_ptr<const Gpu> gpu_;
  GpuStream stream_;                // has nothing else to do
  std::unique_ptr<GpuEvent> base_;  // passed at base_ns_; null: never compared
  uint64_t base_ns_ = 0;
  uint64_t residual_ns_ = 0;
  uint64_t next_ns_ = 0;  // when to compare again
};

}  // namespace hvdtune
