// Where producers leave their records: a ring in memory for each thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "timeline/event.h"
#include "timeline/names.h"
#include "timeline/sampling.h"

namespace hvdtune {

// A ring with one producer, the thread that calls record() and keep(), and one consumer.
class EventBuffer {
 public:
  explicit EventBuffer(const Sampling& sampling) : sampling_(sampling) {}

  // Wait-free. Does nothing when nobody records or the step is not sampled; drops and counts when
  // the ring is full. An instant has end_ns == begin_ns.
  void record(EventKind kind, uint64_t begin_ns, uint64_t end_ns, uint32_t name, uint32_t seq,
              uint32_t bucket, uint32_t arg) {
    if (!sampling_.sampled()) return;
    put({begin_ns, pack_duration(kind, begin_ns, end_ns), name, seq, bucket, arg});
  }

  // Records also in steps that are not sampled: events without which the others make no sense.
  void keep(const Record& record) {
    if (sampling_.recording()) put(record);
  }

 private:
  friend class EventBuffers;

  void put(const Record& record) {
    const uint64_t head = head_.load(std::memory_order_relaxed);
    if (head - known_tail_ == size_) {
      known_tail_ = tail_.load(std::memory_order_acquire);
      if (head - known_tail_ >= size_) {
        dropped_.store(dropped_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
        return;
      }
    }
    ring_[head & (size_ - 1)] = record;
    head_.store(head + 1, std::memory_order_release);
  }
  void allocate(size_t records);

  // Written by allocate() before the gates open, constant after.
  std::unique_ptr<Record[]> ring_;
  uint64_t size_ = 0;
  const Sampling& sampling_;

  // Producer's cache line, then the consumer's.
  alignas(64) std::atomic<uint64_t> head_{0};
  uint64_t known_tail_ = 0;
  std::atomic<uint64_t> dropped_{0};
  alignas(64) std::atomic<uint64_t> tail_{0};
};

// All buffers of a recorder and what they share. It outlives the recorder for as long as a
// recording is stuck in its file.
//
// Thread rule: every member may be called from any thread. Consumers are told apart by address;
// only the one that claimed the buffers last gets anything.
class EventBuffers {
 public:
  EventBuffer& add();

  // Gives every buffer a ring, also those that are added later, and forgets what is in the rings.
  void claim(const void* consumer, size_t records);
  // The gates open, and close, for the consumer that has the buffers; nothing for any other.
  void open(const void* consumer, const StepWindow& window);
  void close(const void* consumer);
  // Moves up to `most` records of a buffer to `block`, which it empties first; false when there are
  // none, or the buffers are another's.
  bool take(const void* consumer, size_t buffer, size_t most, std::vector<Record>& block);
  size_t count() const;
  // Records that all buffers have dropped since they were made.
  uint64_t dropped() const;

  Sampling sampling;
  Names names;

 private:
  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<EventBuffer>> buffers_;
  size_t buffer_records_ = 0;  // 0 until the first claim: buffers have no ring yet
  const void* consumer_ = nullptr;
};

}  // namespace hvdtune
