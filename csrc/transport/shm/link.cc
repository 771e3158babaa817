#include "transport/shm/link.h"

#include <poll.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <new>
#include <optional>
#include <string>
#include <utility>

#include "base/copy.h"
#include "base/failpoint.h"
#include "base/status.h"

namespace hvdtune {
namespace {

constexpr uint64_t kRingBytes = 256 * 1024;
static_assert((kRingBytes & (kRingBytes - 1)) == 0);

// One direction. Positions count bytes since the start and never wrap, their difference is what
// the ring holds. Each line is written by one side, apart from the flags: the sleeper sets its
// flag, the other side clears it when it rings.
//
// No wake-up is lost: one side moves its position and then reads the other's flag, the other sets
// its flag and then reads the position, all four sequentially consistent.
struct Ring {
  alignas(64) std::atomic<uint64_t> written{0};
  alignas(64) std::atomic<uint64_t> read{0};
  alignas(64) std::atomic<uint32_t> reader_sleeps{0};
  alignas(64) std::atomic<uint32_t> writer_sleeps{0};
  alignas(64) std::array<uint8_t, kRingBytes> bytes;
};
static_assert(std::atomic<uint64_t>::is_always_lock_free);

class ShmLink final : public Link {
 public:
  ShmLink(Segment segment, Socket doorbell, bool lower)
      : segment_(std::move(segment)),
        doorbell_(std::move(doorbell)),
        out_(ring(lower ? 0 : 1)),
        in_(ring(lower ? 1 : 0)) {}

  size_t try_send(const void* data, size_t bytes) override;
  size_t try_recv(void* data, size_t bytes) override;
  int fd() const override { return doorbell_.fd(); }
  short sleep_events(bool want_send, bool want_recv) override;
  void wake_up() override;
  int peer() const override { return doorbell_.peer(); }

 private:
  // A fresh segment is zero, which is what the ring's members start from.
  Ring& ring(size_t index) const {
    return *std::launder(reinterpret_cast<Ring*>(segment_.data() + Segment::kReserved) + index);
  }
  uint64_t held(const Ring& ring) const;
  void ring_doorbell();

  Segment segment_;
  Socket doorbell_;
  Ring& out_;
  Ring& in_;
  std::optional<Error> lost_;
};

uint64_t ShmLink::held(const Ring& ring) const {
  const uint64_t bytes =
      ring.written.load(std::memory_order_seq_cst) - ring.read.load(std::memory_order_seq_cst);
  if (bytes > kRingBytes) {
    throw Error(ErrorCode::kInternal,
                "the shared memory of rank " + std::to_string(peer()) + " is corrupt", peer());
  }
  return bytes;
}

size_t ShmLink::try_send(const void* data, size_t bytes) {
  if (lost_) throw *lost_;
  const uint64_t take = std::min<uint64_t>(bytes, kRingBytes - held(out_));
  if (take == 0) return 0;
  const uint64_t position = out_.written.load(std::memory_order_relaxed);
  const uint64_t offset = position % kRingBytes;
  const uint64_t first = std::min(take, kRingBytes - offset);
  const auto* from = static_cast<const uint8_t*>(data);
  std::memcpy(out_.bytes.data() + offset, from, first);
  std::memcpy(out_.bytes.data(), from + first, take - first);
  FAILPOINT_ON("shm/write", doorbell_.fd());
  out_.written.store(position + take, std::memory_order_seq_cst);
  if (out_.reader_sleeps.load(std::memory_order_seq_cst) != 0 &&
      out_.reader_sleeps.exchange(0, std::memory_order_seq_cst) != 0) {
    ring_doorbell();
  }
  return take;
}

size_t ShmLink::try_recv(void* data, size_t bytes) {
  const uint64_t take = std::min<uint64_t>(bytes, held(in_));
  if (take == 0) {
    if (lost_ && bytes > 0) throw *lost_;
    return 0;
  }
  const uint64_t position = in_.read.load(std::memory_order_relaxed);
  const uint64_t offset = position % kRingBytes;
  const uint64_t first = std::min(take, kRingBytes - offset);
  auto* to = static_cast<uint8_t*>(data);
  copy_part(to, in_.bytes.data() + offset, first, bytes);
  copy_part(to + first, in_.bytes.data(), take - first, bytes);
  FAILPOINT_ON("shm/read", doorbell_.fd());
  in_.read.store(position + take, std::memory_order_seq_cst);
  if (in_.writer_sleeps.load(std::memory_order_seq_cst) != 0 &&
      in_.writer_sleeps.exchange(0, std::memory_order_seq_cst) != 0) {
    ring_doorbell();
  }
  return take;
}

void ShmLink::ring_doorbell() {
  if (lost_) return;
  const uint8_t byte = 1;
  try {
    FAILPOINT_ON("shm/ring", doorbell_.fd());
    // A full doorbell has unread bytes in it: the peer wakes anyway.
    doorbell_.try_send(&byte, 1);
  } catch (const Error& error) {
    lost_ = error;
  }
}

short ShmLink::sleep_events(bool want_send, bool want_recv) {
  if (want_send) out_.writer_sleeps.store(1, std::memory_order_seq_cst);
  if (want_recv) in_.reader_sleeps.store(1, std::memory_order_seq_cst);
  const bool possible =
      lost_ || (want_send && held(out_) < kRingBytes) || (want_recv && held(in_) > 0);
  return possible ? short{0} : short{POLLIN};
}

void ShmLink::wake_up() {
  out_.writer_sleeps.store(0, std::memory_order_relaxed);
  in_.reader_sleeps.store(0, std::memory_order_relaxed);
  if (lost_) return;
  std::array<uint8_t, 64> bytes;
  try {
    while (doorbell_.try_recv(bytes.data(), bytes.size()) == bytes.size()) continue;
  } catch (const Error& error) {
    // Thrown by the next call that cannot go on: the ring may still hold what the peer sent.
    lost_ = error;
  }
}

}  // namespace

size_t shm_link_bytes() { return Segment::kReserved + 2 * sizeof(Ring); }

std::unique_ptr<Link> make_shm_link(Segment segment, Socket doorbell, bool lower) {
  return std::make_unique<ShmLink>(std::move(segment), std::move(doorbell), lower);
}

}  // namespace hvdtune
