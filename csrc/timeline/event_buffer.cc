#include "timeline/event_buffer.h"

#include <algorithm>

namespace hvdtune {

void EventBuffer::allocate(size_t records) {
  // Zeroed, hence touched: a first touch while recording would cost more than the record.
  ring_ = std::make_unique<Record[]>(records);
  size_ = records;
}

EventBuffer& EventBuffers::add() {
  const std::lock_guard lock(mutex_);
  buffers_.push_back(std::make_unique<EventBuffer>(sampling));
  if (lane_records_ > 0) buffers_.back()->allocate(lane_records_);
  return *buffers_.back();
}

void EventBuffers::claim(const void* consumer, size_t records) {
  const std::lock_guard lock(mutex_);
  consumer_ = consumer;
  lane_records_ = records;
  for (const auto& lane : buffers_) {
    if (lane->ring_ == nullptr) lane->allocate(records);
    // A record() that overlapped the end of the last recording may have left its record behind.
    lane->tail_.store(lane->head_.load(std::memory_order_acquire), std::memory_order_release);
  }
}

void EventBuffers::open(const void* consumer, const StepWindow& window) {
  const std::lock_guard lock(mutex_);
  if (consumer_ == consumer) sampling.open(window);
}

void EventBuffers::close(const void* consumer) {
  const std::lock_guard lock(mutex_);
  if (consumer_ == consumer) sampling.close();
}

bool EventBuffers::take(const void* consumer, size_t index, size_t most,
                        std::vector<Record>& block) {
  block.clear();
  const std::lock_guard lock(mutex_);
  if (consumer_ != consumer) return false;
  EventBuffer& lane = *buffers_[index];
  const uint64_t head = lane.head_.load(std::memory_order_acquire);
  const uint64_t tail = lane.tail_.load(std::memory_order_relaxed);
  if (tail == head) return false;
  const uint64_t at = tail & (lane.size_ - 1);
  const uint64_t count = std::min({head - tail, lane.size_ - at, uint64_t{most}});
  block.assign(lane.ring_.get() + at, lane.ring_.get() + at + count);
  lane.tail_.store(tail + count, std::memory_order_release);
  return true;
}

size_t EventBuffers::count() const {
  const std::lock_guard lock(mutex_);
  return buffers_.size();
}

uint64_t EventBuffers::dropped() const {
  const std::lock_guard lock(mutex_);
  uint64_t total = 0;
  for (const auto& lane : buffers_) total += lane->dropped_.load(std::memory_order_relaxed);
  return total;
}

}  // namespace hvdtune
