// Memory for tensors that the other ranks of the host can map, so that a collective reads and
// writes them where they are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "transport/shm/segment.h"

namespace hvdtune {

// Thread rule: every member may be called from any thread.
class Pool : public std::enable_shared_from_this<Pool> {
 public:
  // Returns its memory when it goes, whether or not the rank still takes part in a job.
  class Allocation {
   public:
    ~Allocation() { pool_->release(*this); }
    Allocation(const Allocation&) = delete;
    Allocation& operator=(const Allocation&) = delete;
    uint8_t* data() const { return data_; }
    size_t bytes() const { return bytes_; }

   private:
    friend class Pool;
    Allocation(std::shared_ptr<Pool> pool, size_t segment, uint8_t* data, size_t bytes)
        : pool_(std::move(pool)), segment_(segment), data_(data), bytes_(bytes) {}
    std::shared_ptr<Pool> pool_;
    size_t segment_;
    uint8_t* data_;
    size_t bytes_;
  };

  // What a peer needs to find an address of the pool in its own mapping.
  struct SegmentRange {
    const uint8_t* base;
    SegmentOffer offer;
    bool holds(const uint8_t* address, size_t bytes) const {
      return address >= base && address + bytes <= base + offer.bytes;
    }
  };

  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  static std::shared_ptr<Pool> create() { return std::shared_ptr<Pool>(new Pool()); }

  // Page aligned; every page of it has been touched. The content of memory that was used before is
  // what it was. Throws Error(kInternal) when there is no memory.
  std::unique_ptr<Allocation> allocate(size_t bytes);

  // All segments so far; there are never fewer.
  std::vector<SegmentRange> ranges() const;

 private:
  struct PoolSegment {
    Segment segment;
    std::map<size_t, size_t> free;  // bytes by offset
  };
  class Forks;
  Pool();
  PoolSegment& add_segment(size_t bytes);
  void release(const Allocation& block);

  mutable std::mutex mutex_;
  std::vector<PoolSegment> segments_;
};

}  // namespace hvdtune
