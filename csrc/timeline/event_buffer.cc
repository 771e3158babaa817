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
  if (buffer_records_ > 0) buffers_.back()->allocate(buffer_records_);
  return *buffers_.back();
}

void EventBuffers::claim(const void* consumer, size_t records) {
  const std::lock_guard lock(mutex_);
  consumer_ = consumer;
  buffer_records_ = records;
  for (const auto& buffer : buffers_) {
    if (buffer->ring_ == nullptr) buffer->allocate(records);
    // A record() that overlapped the end of the last recording may have left its record behind.
    buffer->tail_.store(buffer->head_.load(std::memory_order_acquire), std::memory_order_release);
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
  EventBuffer& buffer = *buffers_[index];
  const uint64_t head = buffer.head_.load(std::memory_order_acquire);
  const uint64_t tail = buffer.tail_.load(std::memory_order_relaxed);
  if (tail == head) return false;
  const uint64_t at = tail & (buffer.size_ - 1);
  const uint64_t count = std::min({head - tail, buffer.size_ - at, uint64_t{most}});
  block.assign(buffer.ring_.get() + at, buffer.ring_.get() + at + count);
  buffer.tail_.store(tail + count, std::memory_order_release);
  return true;
}

size_t EventBuffers::count() const {
  const std::lock_guard lock(mutex_);
  return buffers_.size();
}

uint64_t EventBuffers::dropped() const {
  const std::lock_guard lock(mutex_);
  uint64_t total = 0;
  for (const auto& buffer : buffers_) total += buffer->dropped_.load(std::memory_order_relaxed);
  return total;
}

}  // namespace hvdtune
