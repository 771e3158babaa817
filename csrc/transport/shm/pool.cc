#include "transport/shm/pool.h"

#include <pthread.h>
#include <sys/mman.h>

#include <algorithm>
#include <set>

namespace hvdtune {
namespace {

constexpr size_t kPage = 4096;
// A segment costs a descriptor, and its pages only once they are touched. The kernel maps segments
// one behind the other, and ranks reduce what lies at the same place in each of them. AMD's
// processors take two addresses for one where they look up their first cache by a hash of the bits
// below 2^28, so no distance between segments may be a multiple of that: storing a sum to two such
// places runs at 6 GB/s instead of 43. A multiple of 2 MiB leaves huge pages possible.
constexpr size_t kSegmentBytes = size_t{258} << 20;

size_t whole_pages(size_t bytes) {
  return std::max<size_t>(1, (bytes + kPage - 1) / kPage) * kPage;
}

}  // namespace

// A child of this process, a DataLoader's worker say, gets all memory as a copy of its own; shared
// memory it would share. Never destroyed: fork may come at any time.
class Pool::Forks {
 public:
  static Forks& instance() {
    static Forks* const forks = new Forks();
    return *forks;
  }
  void add(Pool* pool) {
    const std::lock_guard lock(mutex_);
    pools_.insert(pool);
  }
  void remove(Pool* pool) {
    const std::lock_guard lock(mutex_);
    pools_.erase(pool);
  }

 private:
  Forks() { pthread_atfork(&before, &after_in_parent, &after_in_child); }

  static void before() {
    instance().mutex_.lock();
    for (Pool* pool : instance().pools_) pool->mutex_.lock();
  }
  static void after_in_parent() {
    for (Pool* pool : instance().pools_) pool->mutex_.unlock();
    instance().mutex_.unlock();
  }
  static void after_in_child() {
    for (Pool* pool : instance().pools_) {
      for (PoolSegment& area : pool->segments_) area.segment.make_private();
    }
    after_in_parent();
  }

  std::mutex mutex_;  // guards pools_; taken before any pool's
  std::set<Pool*> pools_;
};

Pool::Pool() { Forks::instance().add(this); }

Pool::~Pool() { Forks::instance().remove(this); }

std::unique_ptr<Pool::Allocation> Pool::allocate(size_t bytes) {
  const size_t needed = whole_pages(bytes);
  uint8_t* data = nullptr;
  size_t index = 0;
  {
    const std::lock_guard lock(mutex_);
    const auto fits = [&](const auto& hole) { return hole.second >= needed; };
    for (index = 0; index < segments_.size(); ++index) {
      if (std::ranges::any_of(segments_[index].free, fits)) break;
    }
    PoolSegment& area = index < segments_.size() ? segments_[index] : add_segment(needed);
    const auto hole = std::ranges::find_if(area.free, fits);
    data = area.segment.data() + hole->first;
    if (hole->second > needed) area.free.emplace(hole->first + needed, hole->second - needed);
    area.free.erase(hole);
  }
  // A page fault within an operation would cost more than the operation.
  for (size_t at = 0; at < needed; at += kPage) {
    auto* byte = static_cast<volatile uint8_t*>(data + at);
    *byte = *byte;
  }
  return std::unique_ptr<Allocation>(new Allocation(shared_from_this(), index, data, bytes));
}

Pool::PoolSegment& Pool::add_segment(size_t bytes) {
  Segment segment = Segment::create(std::max(kSegmentBytes, kPage + bytes));
  madvise(segment.data(), segment.bytes(), MADV_HUGEPAGE);
  const size_t usable = (segment.bytes() - kPage) / kPage * kPage;
  segments_.push_back({std::move(segment), {{kPage, usable}}});
  return segments_.back();
}

void Pool::release(const Allocation& block) {
  const std::lock_guard lock(mutex_);
  PoolSegment& area = segments_[block.segment_];
  const auto offset = static_cast<size_t>(block.data() - area.segment.data());
  auto hole = area.free.emplace(offset, whole_pages(block.bytes())).first;
  const auto next = std::next(hole);
  if (next != area.free.end() && hole->first + hole->second == next->first) {
    hole->second += next->second;
    area.free.erase(next);
  }
  if (hole == area.free.begin()) return;
  const auto previous = std::prev(hole);
  if (previous->first + previous->second != hole->first) return;
  previous->second += hole->second;
  area.free.erase(hole);
}

std::vector<Pool::SegmentRange> Pool::ranges() const {
  const std::lock_guard lock(mutex_);
  std::vector<SegmentRange> ranges;
  for (const PoolSegment& area : segments_)
    ranges.push_back({area.segment.data(), area.segment.offer()});
  return ranges;
}

}  // namespace hvdtune
