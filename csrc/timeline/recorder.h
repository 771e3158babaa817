// Records what a rank does into a file, at a cost that allows it to be always on.
//
// Each producing thread owns a Lane: a ring in memory that it alone fills. One writer thread
// empties all lanes every 50 ms. Memory is bounded; a full lane drops its newest records, counts
// them, and the count is in the file. Nothing here ever blocks a producer.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <vector>

#include "timeline/event.h"

namespace hvdtune {

class StopSignal;
class TraceFile;

struct RecorderOptions {
  std::string path = {};        // replaced if it exists; so is path + ".1" (see file.h)
  uint64_t max_bytes = 0;       // of both files together; the oldest records go; 0 = no cap
  std::string metadata = {};    // JSON object, copied into the file as it is
  size_t lane_records = 65536;  // ring of each lane made from here on, a power of two; 2 MiB
};

// Thread rule: every member may be called from any thread. A Lane's record() belongs to one.
class Recorder {
 public:
  class Lane;

  // Idle, without thread or buffers, until start().
  Recorder();
  ~Recorder();  // stops
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  // Call once per producing thread. The lane lives as long as the recorder, over start and stop.
  Lane& add_lane();

  // Id of a name, the same for equal names for the recorder's life; 0 for "". Takes a lock:
  // intern once, keep the id.
  uint32_t intern(std::string_view name);

  bool enabled() const { return enabled_.load(std::memory_order_relaxed); }

  // Throws Error(kUsage) naming the path when it cannot be written, or when already started.
  void start(const RecorderOptions& options);

  // Writes what the lanes hold and the footer. Nothing when not started.
  void stop();

  // Records lost since start(): lanes were full, or the file could not be written.
  uint64_t dropped() const;

  // Why the file could not be written, "" when all went well since start().
  std::string write_error() const;

 private:
  void write_until(const StopSignal& stop);
  void drain();
  void note_error();
  std::string name_of(uint32_t id) const;
  uint64_t dropped_by_lanes() const;

  std::atomic<bool> enabled_{false};
  std::mutex lifecycle_mutex_;  // start and stop, one at a time
  mutable std::mutex lanes_mutex_;
  std::vector<std::unique_ptr<Lane>> lanes_;
  size_t lane_records_ = 0;  // 0 until the first start(): lanes have no ring yet
  mutable std::mutex names_mutex_;
  std::deque<std::string> names_;
  std::unordered_map<std::string_view, uint32_t> ids_;
  std::unique_ptr<TraceFile> file_;  // the writer's while it runs; null when idle
  std::unique_ptr<StopSignal> stop_;
  std::thread writer_;
  std::atomic<uint64_t> dropped_before_{0};  // lanes' total at start()
  std::atomic<uint64_t> unwritten_{0};       // records that reached no file since start()
  mutable std::mutex error_mutex_;
  std::string write_error_;
};

// A ring with one producer, the thread that calls record(), and one consumer, the writer.
class Recorder::Lane {
 public:
  explicit Lane(const std::atomic<bool>& enabled) : enabled_(enabled) {}

  // Wait-free. Does nothing when the recorder is idle; drops and counts when the ring is full.
  // An instant has end_ns == begin_ns.
  void record(EventKind kind, uint64_t begin_ns, uint64_t end_ns, uint32_t name, uint32_t seq,
              uint32_t bucket, uint32_t arg) {
    record({begin_ns, pack_duration(kind, begin_ns, end_ns), name, seq, bucket, arg});
  }

  void record(const Record& record) {
    // Pairs with the release in start(): whoever sees true sees the ring.
    if (!enabled_.load(std::memory_order_acquire)) return;
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

 private:
  friend class Recorder;

  void allocate(size_t records);

  // Written by allocate() before enabled_ becomes true, constant after.
  std::unique_ptr<Record[]> ring_;
  uint64_t size_ = 0;
  const std::atomic<bool>& enabled_;

  // Producer's cache line, then the consumer's.
  alignas(64) std::atomic<uint64_t> head_{0};
  uint64_t known_tail_ = 0;
  std::atomic<uint64_t> dropped_{0};
  alignas(64) std::atomic<uint64_t> tail_{0};
};

}  // namespace hvdtune
