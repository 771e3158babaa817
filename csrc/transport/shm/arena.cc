#include "transport/shm/arena.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <climits>
#include <ctime>
#include <new>
#include <string>
#include <utility>

#include "base/status.h"
#include "transport/pause.h"

namespace hvdtune {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kLine = 64;
constexpr int kYields = 8;
constexpr uint64_t kSliceNs = 20'000'000;

// After the segment's own bytes, followed by the counters; the areas start at the next huge page:
// slots by local rank and parity, then the two results.
struct Header {
  uint64_t slot_bytes;
};

size_t area_bytes(size_t slot_bytes) { return (slot_bytes + 4095) / 4096 * 4096; }

size_t first_area(size_t local_size) {
  const size_t used = Segment::kReserved + kLine * (1 + local_size);
  return (used + kHugePage - 1) / kHugePage * kHugePage;
}

size_t total_bytes(size_t slot_bytes, size_t local_size) {
  return first_area(local_size) + area_bytes(slot_bytes) * (2 * local_size + 2);
}

}  // namespace

// One cache line each, written by one rank but for the sleepers.
struct alignas(kLine) Arena::Counter {
  std::atomic<uint64_t> value;
  std::atomic<uint32_t> sleepers;

  // The half of the value that changes with every step: what a futex can watch.
  void* futex() {
    auto* low = reinterpret_cast<uint32_t*>(&value);
    return std::endian::native == std::endian::little ? low : low + 1;
  }
};

Arena::Arena(Segment segment, size_t slot_bytes, int local_rank, std::vector<int> ranks)
    : segment_(std::move(segment)),
      slot_bytes_(slot_bytes),
      local_rank_(local_rank),
      ranks_(std::move(ranks)) {
  const size_t start = first_area(ranks_.size());
  // Only advice: without huge pages the arena works, with more page faults.
  madvise(segment_.data() + start, segment_.bytes() - start, MADV_HUGEPAGE);
}

Arena Arena::create(size_t slot_bytes, std::vector<int> ranks) {
  Segment segment = Segment::create(total_bytes(slot_bytes, ranks.size()));
  reinterpret_cast<Header*>(segment.data() + Segment::kReserved)->slot_bytes = slot_bytes;
  return Arena(std::move(segment), slot_bytes, 0, std::move(ranks));
}

Arena Arena::open(const SegmentOffer& offer, int local_rank, std::vector<int> ranks) {
  Segment segment = Segment::open(offer, ranks.front());
  if (segment.bytes() < first_area(ranks.size())) {
    throw Error(ErrorCode::kInternal, "the arena of this host is too small", ranks.front());
  }
  const size_t slot_bytes =
      reinterpret_cast<const Header*>(segment.data() + Segment::kReserved)->slot_bytes;
  if (slot_bytes > segment.bytes() || segment.bytes() != total_bytes(slot_bytes, ranks.size())) {
    throw Error(ErrorCode::kInternal, "the arena of this host has another layout", ranks.front());
  }
  return Arena(std::move(segment), slot_bytes, local_rank, std::move(ranks));
}

uint8_t* Arena::area(size_t index) const {
  return segment_.data() + first_area(ranks_.size()) + index * area_bytes(slot_bytes_);
}

uint8_t* Arena::slot(int local_rank, int parity) const {
  return area(2 * static_cast<size_t>(local_rank) + static_cast<size_t>(parity));
}

uint8_t* Arena::result(int parity) const {
  return area(2 * ranks_.size() + static_cast<size_t>(parity));
}

Arena::Counter& Arena::counter(int local_rank) const {
  auto* counters = reinterpret_cast<Counter*>(segment_.data() + Segment::kReserved + kLine);
  return *std::launder(counters + local_rank);
}

// The poster moves the value and then looks for sleepers, a sleeper counts itself and then looks
// at the value (in the kernel, too): one of them sees the other.
void Arena::post(uint64_t value) {
  Counter& mine = counter(local_rank_);
  mine.value.store(value, std::memory_order_seq_cst);
  if (mine.sleepers.load(std::memory_order_seq_cst) != 0) {
    syscall(SYS_futex, mine.futex(), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
  }
}

void Arena::await(int local_rank, uint64_t value, Deadline deadline, const StopSignal& stop,
                  int spins) {
  Counter& theirs = counter(local_rank);
  const auto reached = [&] { return theirs.value.load(std::memory_order_acquire) >= value; };
  for (int i = 0; i < spins; ++i) {
    if (reached()) return;
    spin_politely(i);
  }
  for (int i = 0; i < kYields; ++i) {
    if (reached()) return;
    sched_yield();
  }
  for (;;) {
    if (reached()) return;
    if (stop.raised()) throw Error(ErrorCode::kShutdown, "stopped while waiting for a local rank");
    const uint64_t now = now_ns();
    if (now >= deadline.at_ns()) {
      const int rank = ranks_[static_cast<size_t>(local_rank)];
      throw Error(ErrorCode::kTimeout, "timed out waiting for rank " + std::to_string(rank), rank);
    }
    const uint64_t slice_ns = std::min(deadline.at_ns() - now, kSliceNs);
    const timespec slice = {0, static_cast<long>(slice_ns)};
    theirs.sleepers.fetch_add(1, std::memory_order_seq_cst);
    const uint64_t seen = theirs.value.load(std::memory_order_seq_cst);
    if (seen < value) {
      syscall(SYS_futex, theirs.futex(), FUTEX_WAIT, static_cast<uint32_t>(seen), &slice, nullptr,
              0);
    }
    theirs.sleepers.fetch_sub(1, std::memory_order_seq_cst);
  }
}

void Arena::await_all(uint64_t value, Deadline deadline, const StopSignal& stop, int spins) {
  for (int i = 0; i < local_size(); ++i) {
    if (i != local_rank_) await(i, value, deadline, stop, spins);
  }
}

}  // namespace hvdtune
