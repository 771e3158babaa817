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
// It counts cycles as well, all of which every rank carries out: ranks that have carried out as
// many have completed the same operations.
//
// Thread rule: the functions that change it belong to the cycle thread, but for moved_by_gpu(); the
// others to any.
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
  // The GPU has done something for a process set. Either of two such calls at a time may be lost,
  // which a reader, who compares, does not notice.
  void moved_by_gpu(uint32_t process_set) { counts_[process_set % kSlots].fetch_add(1); }

  uint64_t count(uint32_t process_set) const {
    return counts_[process_set % kSlots].load(std::memory_order_relaxed);
  }

  void begin_cycle() { cycles_begun_.fetch_add(1); }
  // All that its operations change on this rank is done.
  void end_cycle() { cycles_done_.fetch_add(1); }
  uint64_t cycles_begun() const { return cycles_begun_.load(); }
  uint64_t cycles_done() const { return cycles_done_.load(); }

 private:
  static constexpr size_t kSlots = 64;
  std::array<std::atomic<uint64_t>, kSlots> counts_{};
  size_t slot_ = 0;
  std::atomic<uint64_t> cycles_begun_ = 0;
  std::atomic<uint64_t> cycles_done_ = 0;
};

}  // namespace hvdtune
