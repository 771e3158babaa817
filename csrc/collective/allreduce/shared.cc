#include "collective/allreduce/shared.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/clock.h"
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
                  size_t chunk_bytes, const SharedLimits& limits)
      : group_(group),
        arena_(*group.arena()),
        reduction_(reduction),
        payload_(payload),
        limits_(limits),
        chunk_bytes_(chunk_of(chunk_bytes)),
        way_(arena_.ways()
                 .way(payload.bytes())
                 .value_or(payload.bytes() <= limits.arena_bytes ? SharedWay::kArena
                                                                 : SharedWay::kPeerCopies)),
        element_(size_of(reduction.dtype)),
        own_(payload),
        inputs_(static_cast<size_t>(arena_.local_size())) {}

  void run() {
    const int buffer_index = group_.next_buffer_index();
    if (payload_.bytes() <= std::min(limits_.whole_bytes, arena_.slot_bytes())) {
      whole(buffer_index);
    } else if (arena_.has_one_pid_namespace()) {
      shown(buffer_index);
    } else {
      chunks();
    }
  }

 private:
  void whole(int buffer_index) {
    const size_t bytes = payload_.bytes();
    uint8_t* scratch = group_.scratch().take(kFetched, bytes);
    for (size_t rank = 0; rank < inputs_.size(); ++rank) {
      inputs_[rank] = arena_.passing_slot(static_cast<int>(rank), buffer_index);
    }
    uint8_t* slot = arena_.passing_slot(arena_.local_rank(), buffer_index);
    group_.observe(Phase::kPack, bytes, [&] {
      inputs_[self()] = own_.input(0, bytes, scratch);
      std::memcpy(slot, inputs_[self()], bytes);
    });
    group_.host_barrier();
    also_.clear();
    group_.observe(Phase::kReduce, bytes, [&] { reduce_to_own(0, bytes); });
  }

  // After a meeting at which all ranks show where their payloads lie.
  void shown(int buffer_index) {
    const uint64_t begin_ns = now_ns();
    show_own(buffer_index);
    const uint64_t shown_ns = now_ns();
    group_.host_barrier();
    const uint64_t met_ns = now_ns();
    arena_.ways().agree(header(0, buffer_index).ways);
    const Reach reach = reach_of(buffer_index);
    if (reach.can_be_reduced_there) {
      in_place(buffer_index);
    } else {
      chunks();
    }
    const bool is_timed = arena_.local_rank() == 0 && !group_.only_costs_decide();
    if (reach.took_its_way && is_timed) {
      const uint64_t end_ns = now_ns();
      // Without the time for which this rank waited for the others to begin.
      const uint64_t took_ns = shown_ns - begin_ns + end_ns - met_ns;
      arena_.ways().note(payload_.bytes(), way_, reach.all_reach, took_ns);
    }
  }

  void in_place(int buffer_index) {
    const ByteRange mine = own_share(payload_.bytes());
    group_.observe(Phase::kReduce, mine.bytes, [&] { reduce_share(mine, buffer_index); });
    group_.host_barrier();
    const PeerBufferHeader& own = header(arena_.local_rank(), buffer_index);
    if (own.where == BufferLocation::kPacked) unpack_others(0, payload_.bytes());
  }

  // One after the other, all at the same place.
  void chunks() {
    const size_t total = payload_.bytes();
    for (size_t at = 0; at < total; at += chunk_bytes_) {
      const size_t bytes = std::min(chunk_bytes_, total - at);
      group_.observe(Phase::kPack, bytes, [&] { pack_others(at, bytes); });
      group_.host_barrier();
      reduce_chunk(at, bytes);
      group_.host_barrier();
      unpack_others(at, bytes);
    }
  }

  // Bytes of the payload, or of a chunk of it.
  struct ByteRange {
    size_t begin;
    size_t bytes;
  };
  // Results are written over the contributions they were computed from. What a processor writes
  // after another one has written it, and it has read that, is written at once; what it writes once
  // more, after another one has read it, may take ten times as long.
  uint8_t* own_exchange() const { return arena_.exchange(arena_.local_rank()); }

  // Of which a rank packs `bytes`.
  size_t chunk_of(size_t bytes) const {
    const auto ranks = static_cast<size_t>(arena_.local_size());
    const size_t most = arena_.slot_bytes();
    return bytes >= most ? most : std::min(most, bytes / (ranks - 1) * ranks / 64 * 64);
  }

  ByteRange own_share(size_t bytes) const {
    const ElementRange mine =
        part_of(bytes / element_, arena_.local_size(), arena_.local_rank(), element_);
    return {mine.begin * element_, mine.count * element_};
  }

  const PeerBufferHeader& header(int local_rank, int buffer_index) const {
    return *reinterpret_cast<const PeerBufferHeader*>(
        arena_.passing_slot(local_rank, buffer_index));
  }

  void show_own(int buffer_index) {
    const size_t bytes = payload_.bytes();
    const bool may_pack = way_ != SharedWay::kPeerCopies && bytes <= chunk_bytes_;
    uint8_t* slot = arena_.passing_slot(arena_.local_rank(), buffer_index);
    group_.observe(Phase::kPack, bytes, [&] {
      const bool fits =
          publish_buffers(payload_, group_.pool(), may_pack, slot, arena_.slot_bytes());
      auto& header = *reinterpret_cast<PeerBufferHeader*>(slot);
      if (!fits) header.bytes = kTooMany;
      header.has_peer_access = arena_.has_peer_access() ? 1 : 0;
      header.ways = arena_.ways().proposal();
      if (header.where != BufferLocation::kPacked) return;
      pack_others(0, bytes);
    });
  }

  struct Reach {
    bool can_be_reduced_there;  // where the payloads, or what was packed of them, were shown
    bool all_reach;             // the memory of each other's processes
    bool took_its_way;          // and not another one because of what some rank has
  };

  // All ranks see the same.
  Reach reach_of(int buffer_index) const {
    bool all_reach = true;
    bool all_shown = true;
    bool any_mapped = false;
    bool any_private = false;
    bool all_private = true;
    for (int rank = 0; rank < arena_.local_size(); ++rank) {
      const PeerBufferHeader& shown = header(rank, buffer_index);
      const bool is_private = shown.where == BufferLocation::kPrivate;
      all_reach = all_reach && shown.has_peer_access != 0;
      all_shown = all_shown && shown.bytes != kTooMany;
      any_mapped = any_mapped || shown.where == BufferLocation::kMapped;
      any_private = any_private || is_private;
      all_private = all_private && is_private;
    }
    const bool through_arena = all_private && way_ != SharedWay::kPeerCopies;
    const bool had_its_way = all_reach || way_ != SharedWay::kPeerCopies;
    return {.can_be_reduced_there = all_shown && !through_arena && (all_reach || !any_private),
            .all_reach = all_reach,
            .took_its_way = all_shown && !any_mapped && had_its_way};
  }

  std::vector<PeerBuffers> payloads(int buffer_index) {
    std::vector<PeerBuffers> list;
    list.reserve(inputs_.size());
    for (int rank = 0; rank < arena_.local_size(); ++rank) {
      if (rank == arena_.local_rank()) {
        list.push_back(own_);
      } else {
        list.emplace_back(arena_.passing_slot(rank, buffer_index), arena_.exchange(rank),
                          payload_.bytes(), arena_.memory(rank));
      }
    }
    return list;
  }

  // The peers' memory may be written from here until this rank leaves; a rank that was given up is
  // told so at the next piece.
  void reduce_share(ByteRange share, int buffer_index) {
    const Arena::WritePhase writes = arena_.begin_writes();
    const std::vector<PeerBuffers> all = payloads(buffer_index);
    const size_t end = share.begin + share.bytes;
    for (size_t at = share.begin; at < end; at += limits_.piece_bytes) {
      arena_.check_not_abandoned();
      reduce_piece(all, at, std::min(limits_.piece_bytes, end - at));
    }
  }

  void reduce_piece(const std::vector<PeerBuffers>& all, size_t begin, size_t bytes) {
    uint8_t* fetched = group_.scratch().take(kFetched, limits_.piece_bytes * all.size());
    also_.clear();
    for (size_t rank = 0; rank < all.size(); ++rank) {
      inputs_[rank] = all[rank].input(begin, bytes, fetched + rank * limits_.piece_bytes);
      uint8_t* output = rank == self() ? nullptr : all[rank].output(begin, bytes);
      if (output != nullptr) also_.push_back(output);
    }
    FAILPOINT("shared/piece");
    const uint8_t* out = reduce_to_own(begin, bytes);
    for (size_t rank = 0; rank < all.size(); ++rank) {
      if (rank == self() || all[rank].output(begin, bytes) != nullptr) continue;
      all[rank].deliver(begin, bytes, out);
    }
  }

  // This rank's share of the chunk at `begin`.
  void reduce_chunk(size_t begin, size_t chunk_bytes) {
    const ByteRange mine = own_share(chunk_bytes);
    group_.observe(Phase::kReduce, mine.bytes, [&] {
      const size_t end = mine.begin + mine.bytes;
      for (size_t at = mine.begin; at < end; at += limits_.piece_bytes) {
        const size_t bytes = std::min(limits_.piece_bytes, end - at);
        also_.clear();
        for (size_t rank = 0; rank < inputs_.size(); ++rank) {
          if (rank == self()) continue;
          also_.push_back(arena_.exchange(static_cast<int>(rank)) + at);
          inputs_[rank] = also_.back();
        }
        inputs_[self()] = own_.input(begin + at, bytes, group_.scratch().take(kFetched, bytes));
        reduce_to_own(begin + at, bytes);
      }
    });
  }

  // Reduces the inputs as set to where this rank wants the result and to also_, in the same pass: a
  // copy afterwards would read the result again. Returns where these bytes of the result are.
  const uint8_t* reduce_to_own(size_t begin, size_t bytes) {
    uint8_t* own = own_.output(begin, bytes);
    uint8_t* out = own != nullptr ? own : group_.scratch().take(kResult, bytes);
    reduce_all(reduction_, inputs_, group_.host_sizes(), out, bytes / element_, also_);
    if (own == nullptr) own_.deliver(begin, bytes, out);
    return out;
  }

  size_t self() const { return static_cast<size_t>(arena_.local_rank()); }

  // Calls copy(place in the payload, bytes) for what the other ranks reduce of the chunk at
  // `begin`.
  template <typename Copy>
  void copy_others(size_t begin, size_t chunk_bytes, Copy copy) const {
    const ByteRange mine = own_share(chunk_bytes);
    const size_t end = mine.begin + mine.bytes;
    if (mine.begin > 0) copy(begin, mine.begin);
    if (end < chunk_bytes) copy(begin + end, chunk_bytes - end);
  }

  void pack_others(size_t begin, size_t chunk_bytes) const {
    copy_others(begin, chunk_bytes, [&](size_t at, size_t bytes) {
      payload_.pack(at, bytes, own_exchange() + (at - begin));
    });
  }

  void unpack_others(size_t begin, size_t chunk_bytes) {
    group_.observe(Phase::kUnpack, chunk_bytes, [&] {
      copy_others(begin, chunk_bytes, [&](size_t at, size_t bytes) {
        payload_.unpack(at, bytes, own_exchange() + (at - begin));
      });
    });
  }

  static constexpr uint64_t kTooMany = ~uint64_t{0};

  Group& group_;
  GroupArena& arena_;
  const Reduction& reduction_;
  const Payload& payload_;
  const SharedLimits& limits_;
  size_t chunk_bytes_;
  SharedWay way_;
  size_t element_;
  PeerBuffers own_;
  std::vector<const uint8_t*> inputs_;
  std::vector<uint8_t*> also_;  // where in the arena or the peers' memory a result goes, too
};

}  // namespace

void allreduce_shared(Group& group, const Reduction& reduction, const Payload& payload,
                      size_t chunk_bytes, const SharedLimits& limits) {
  if (payload.bytes() == 0) return;
  SharedAllreduce(group, reduction, payload, chunk_bytes, limits).run();
  group.leave();
}

}  // namespace hvdtune
