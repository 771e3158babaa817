#include "collective/allreduce/shared.h"

#include <algorithm>
#include <vector>

#include "base/failpoint.h"
#include "collective/allreduce/allreduce.h"
#include "collective/partition.h"
#include "collective/peer_buffers.h"

namespace hvdtune {
namespace {

enum Area : size_t { kResult, kFetched };

class SharedAllreduce {
 public:
  SharedAllreduce(Group& group, const Reduction& reduction, const Payload& payload,
                  const SharedLimits& limits)
      : group_(group),
        arena_(*group.arena()),
        reduction_(reduction),
        payload_(payload),
        limits_(limits),
        element_(size_of(reduction.dtype)),
        inputs_(static_cast<size_t>(arena_.local_size())) {}

  void whole() {
    const size_t bytes = payload_.bytes();
    const int buffer_index = group_.next_buffer_index();
    pack(0, bytes, buffer_index);
    group_.host_barrier();
    uint8_t* out = group_.scratch().take(kResult, bytes);
    reduce({0, bytes / element_}, buffer_index, out);
    unpack(0, bytes, out);
  }

  // False, with nothing done, when some rank's payload is out of reach, or some rank's process, or
  // when the arena is the better way.
  bool in_place() {
    if (!arena_.has_one_pid_namespace()) return false;
    const int buffer_index = group_.next_buffer_index();
    show_own(buffer_index);
    group_.host_barrier();
    if (!is_worth_copying(buffer_index)) return false;
    const ElementRange mine =
        part_of(payload_.bytes() / element_, arena_.local_size(), arena_.local_rank(), element_);
    group_.observe(Phase::kReduce, mine.count * element_,
                   [&] { reduce_share(mine, buffer_index); });
    group_.host_barrier();
    if (header(arena_.local_rank(), buffer_index).where == BufferLocation::kPacked) {
      unpack(0, payload_.bytes(), arena_.result(buffer_index));
    }
    return true;
  }

  void chunks(size_t chunk_bytes) {
    const size_t total = payload_.bytes();
    size_t bytes = std::min(chunk_bytes, total);
    int buffer_index = group_.next_buffer_index();
    pack(0, bytes, buffer_index);
    for (size_t at = 0; at < total;) {
      const size_t next = at + bytes;
      const size_t next_bytes = std::min(chunk_bytes, total - next);
      const int next_buffer_index = next_bytes > 0 ? group_.next_buffer_index() : buffer_index;
      group_.post();
      // Between chunks the other slots were read before the last meeting, so packing into them need
      // not wait. At the start they may still be read: whole() ends without a meeting.
      const bool ahead = at > 0;
      if (ahead && next_bytes > 0) pack(next, next_bytes, next_buffer_index);
      group_.await_local();
      if (!ahead && next_bytes > 0) pack(next, next_bytes, next_buffer_index);
      const ElementRange mine =
          part_of(bytes / element_, arena_.local_size(), arena_.local_rank(), element_);
      reduce(mine, buffer_index, arena_.result(buffer_index) + mine.begin * element_);
      group_.host_barrier();
      unpack(at, bytes, arena_.result(buffer_index));
      at = next;
      bytes = next_bytes;
      buffer_index = next_buffer_index;
    }
  }

 private:
  const PeerBufferHeader& header(int local_rank, int buffer_index) const {
    return *reinterpret_cast<const PeerBufferHeader*>(arena_.slot(local_rank, buffer_index));
  }

  void show_own(int buffer_index) {
    const size_t pack_bytes =
        std::min(limits_.pack_bytes, arena_.slot_bytes() - kPeerBufferHeaderBytes);
    uint8_t* slot = arena_.slot(arena_.local_rank(), buffer_index);
    group_.observe(Phase::kPack, payload_.bytes(), [&] {
      const bool shown =
          publish_buffers(payload_, group_.pool(), pack_bytes, slot, arena_.slot_bytes());
      auto& header = *reinterpret_cast<PeerBufferHeader*>(slot);
      if (!shown) header.bytes = kTooMany;
      if (payload_.bytes() > pack_bytes) header.has_peer_access = has_peer_access() ? 1 : 0;
    });
  }

  // Finding out writes, too.
  bool has_peer_access() {
    const Arena::WritePhase writes = arena_.begin_writes();
    for (int rank = 0; rank < arena_.local_size(); ++rank) {
      if (rank != arena_.local_rank() && !arena_.memory(rank).reachable()) return false;
    }
    return true;
  }

  // All ranks see the same.
  bool is_worth_copying(int buffer_index) const {
    bool all_reach = true;
    bool any_private = false;
    bool all_private = true;
    for (int rank = 0; rank < arena_.local_size(); ++rank) {
      const PeerBufferHeader& shown = header(rank, buffer_index);
      if (shown.bytes == kTooMany) return false;
      const bool is_private = shown.where == BufferLocation::kPrivate;
      all_reach = all_reach && shown.has_peer_access != 0;
      any_private = any_private || is_private;
      all_private = all_private && is_private;
    }
    if (all_private && payload_.bytes() <= limits_.chunks_bytes) return false;
    return all_reach || !any_private;
  }

  std::vector<PeerBuffers> payloads(int buffer_index) {
    std::vector<PeerBuffers> list;
    list.reserve(inputs_.size());
    for (int rank = 0; rank < arena_.local_size(); ++rank) {
      const uint8_t* slot = arena_.slot(rank, buffer_index);
      if (rank == arena_.local_rank() &&
          header(rank, buffer_index).where != BufferLocation::kPacked) {
        list.emplace_back(payload_);
      } else {
        list.emplace_back(slot, payload_.bytes(), arena_.memory(rank));
      }
    }
    return list;
  }

  // The peers' memory may be written from here until this rank leaves; a rank that was given up is
  // told so at the next piece.
  void reduce_share(ElementRange share, int buffer_index) {
    const Arena::WritePhase writes = arena_.begin_writes();
    const std::vector<PeerBuffers> all = payloads(buffer_index);
    const bool any_packed = std::ranges::any_of(
        all, [](const PeerBuffers& shown) { return shown.where() == BufferLocation::kPacked; });
    const size_t step = limits_.piece_bytes / element_;
    for (size_t at = 0; at < share.count; at += step) {
      const size_t begin = (share.begin + at) * element_;
      const size_t count = std::min(step, share.count - at);
      arena_.check_not_abandoned();
      reduce_piece(all, begin, count, any_packed ? arena_.result(buffer_index) + begin : nullptr);
    }
  }

  // `common` is where the piece of the packed ranks' result lies, null if none is packed.
  void reduce_piece(const std::vector<PeerBuffers>& all, size_t begin, size_t count,
                    uint8_t* common) {
    const size_t bytes = count * element_;
    uint8_t* fetched = group_.scratch().take(kFetched, limits_.piece_bytes * all.size());
    for (size_t rank = 0; rank < all.size(); ++rank) {
      inputs_[rank] = all[rank].input(begin, bytes, fetched + rank * limits_.piece_bytes);
    }
    const auto self = static_cast<size_t>(arena_.local_rank());
    uint8_t* out = common != nullptr ? common : all[self].output(begin, bytes);
    if (out == nullptr) out = group_.scratch().take(kResult, limits_.piece_bytes);
    reduce_all(reduction_, inputs_, group_.host_sizes(), out, count);
    FAILPOINT("shared/piece");
    for (const PeerBuffers& payload : all) {
      if (payload.where() == BufferLocation::kPacked) continue;
      if (payload.output(begin, bytes) != out) payload.deliver(begin, bytes, out);
    }
  }

  void pack(size_t at, size_t bytes, int buffer_index) {
    group_.observe(Phase::kPack, bytes, [&] {
      payload_.pack(at, bytes, arena_.slot(arena_.local_rank(), buffer_index));
    });
  }

  void reduce(ElementRange share, int buffer_index, uint8_t* out) {
    group_.observe(Phase::kReduce, share.count * element_, [&] {
      for (int rank = 0; rank < arena_.local_size(); ++rank) {
        inputs_[static_cast<size_t>(rank)] =
            arena_.slot(rank, buffer_index) + share.begin * element_;
      }
      reduce_all(reduction_, inputs_, group_.host_sizes(), out, share.count);
    });
  }

  void unpack(size_t at, size_t bytes, const uint8_t* from) {
    group_.observe(Phase::kUnpack, bytes, [&] { payload_.unpack(at, bytes, from); });
  }

  static constexpr uint64_t kTooMany = ~uint64_t{0};

  Group& group_;
  GroupArena& arena_;
  const Reduction& reduction_;
  const Payload& payload_;
  const SharedLimits& limits_;
  size_t element_;
  std::vector<const uint8_t*> inputs_;
};

}  // namespace

void allreduce_shared(Group& group, const Reduction& reduction, const Payload& payload,
                      size_t chunk_bytes, const SharedLimits& limits) {
  if (payload.bytes() == 0) return;
  SharedAllreduce run(group, reduction, payload, limits);
  const size_t slot_bytes = group.arena()->slot_bytes();
  if (payload.bytes() <= std::min(limits.whole_bytes, slot_bytes)) {
    run.whole();
  } else if (!run.in_place()) {
    run.chunks(std::min(chunk_bytes, slot_bytes));
  }
  group.leave();
}

}  // namespace hvdtune
