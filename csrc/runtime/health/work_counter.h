// Whether anything moves: what tells a slow collective from a hung one.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace hvdtune {

// Counts pieces of work by process set; sets whose numbers differ by kSlots share a count, which
// only makes their hangs go unnoticed while the other moves.
//
// Thread rule: begin() and moved() belong to the cycle thread, count() to any.
class WorkCounter {
 public:
  // Operations of a process set are carried out from here on.
  void begin(uint32_t process_set) {
    slot_ = process_set % kSlots;
    moved();
  }
  // A part of them has been. Costs a nanosecond.
  void moved() {
    std::atomic<uint64_t>& count = counts_[slot_];
    count.store(count.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }

  uint64_t count(uint32_t process_set) const {
    return counts_[process_set % kSlots].load(std::memory_order_relaxed);
  }

 private:
  static constexpr size_t kSlots = 64;
  std::array<std::atomic<uint64_t>, kSlots> counts_{};
  size_t slot_ = 0;
};

}  // namespace hvdtune
