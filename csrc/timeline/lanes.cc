#include "timeline/lanes.h"

#include <algorithm>

namespace hvdtune {

void Lane::allocate(size_t records) {
  // Zeroed, hence touched: a first touch while recording would cost more than the record.
  ring_ = std::make_unique<Record[]>(records);
  size_ = records;
}

Lane& Lanes::add() {
  const std::lock_guard lock(mutex_);
  lanes_.push_back(std::make_unique<Lane>(sampling));
  if (lane_records_ > 0) lanes_.back()->allocate(lane_records_);
  return *lanes_.back();
}

void Lanes::claim(const void* consumer, size_t records) {
  const std::lock_guard lock(mutex_);
  consumer_ = consumer;
  lane_records_ = records;
  for (const auto& lane : lanes_) {
    if (lane->ring_ == nullptr) lane->allocate(records);
    // A record() that overlapped the end of the last recording may have left its record behind.
    lane->tail_.store(lane->head_.load(std::memory_order_acquire), std::memory_order_release);
  }
}

void Lanes::open(const void* consumer, const StepWindow& window) {
  const std::lock_guard lock(mutex_);
  if (consumer_ == consumer) sampling.open(window);
}

void Lanes::close(const void* consumer) {
  const std::lock_guard lock(mutex_);
  if (consumer_ == consumer) sampling.close();
}

bool Lanes::take(const void* consumer, size_t index, size_t most, std::vector<Record>& block) {
  block.clear();
  const std::lock_guard lock(mutex_);
  if (consumer_ != consumer) return false;
  Lane& lane = *lanes_[index];
  const uint64_t head = lane.head_.load(std::memory_order_acquire);
  const uint64_t tail = lane.tail_.load(std::memory_order_relaxed);
  if (tail == head) return false;
  const uint64_t at = tail & (lane.size_ - 1);
  const uint64_t count = std::min({head - tail, lane.size_ - at, uint64_t{most}});
  block.assign(lane.ring_.get() + at, lane.ring_.get() + at + count);
  lane.tail_.store(tail + count, std::memory_order_release);
  return true;
}

size_t Lanes::count() const {
  const std::lock_guard lock(mutex_);
  return lanes_.size();
}

uint64_t Lanes::dropped() const {
  const std::lock_guard lock(mutex_);
  uint64_t total = 0;
  for (const auto& lane : lanes_) total += lane->dropped_.load(std::memory_order_relaxed);
  return total;
}

}  // namespace hvdtune
