#include <algorithm>
#include <vector>

#include "collective/allreduce/allreduce.h"
#include "collective/allreduce/pipelined.h"
#include "collective/cross_hosts.h"
#include "collective/partition.h"

namespace hvdtune {
namespace {

enum Area : size_t { kPacked, kResult, kCross };

// Chunk c is packed and partially reduced in step c, its partials are combined in step c + depth,
// its result is unpacked in step c + 2 depth. Its memory is used again kRing chunks later: one step
// after every local rank has met all those that unpacked it.
constexpr size_t kRing = kStageDepth + 2;

// The chunks' places in memory: in the arena, or for a rank alone on its host in scratch memory.
class Places {
 public:
  Places(Group& group, size_t chunk_bytes)
      : arena_(group.arena()), each_(whole_lines(chunk_bytes)) {
    if (arena_ != nullptr) return;
    packed_ = group.scratch().take(kPacked, each_);
    result_ = group.scratch().take(kResult, each_ * kRing);
  }
  // The largest chunk there is room for.
  static size_t limit(Group& group, size_t chunk_bytes) {
    if (group.arena() == nullptr) return chunk_bytes;
    const size_t room = group.arena()->slot_bytes() / (kRing / 2) / 64 * 64;
    return std::min(chunk_bytes, room);
  }
  uint8_t* slot(int local_rank, size_t chunk) const {
    return arena_ == nullptr ? packed_
                             : arena_->slot(local_rank, buffer_index(chunk)) + offset(chunk);
  }
  uint8_t* result(size_t chunk) const {
    return arena_ == nullptr ? result_ + chunk % kRing * each_
                             : arena_->result(buffer_index(chunk)) + offset(chunk);
  }

 private:
  static int buffer_index(size_t chunk) { return static_cast<int>(chunk % 2); }
  size_t offset(size_t chunk) const { return chunk % kRing / 2 * each_; }

  GroupArena* arena_;
  size_t each_;
  uint8_t* packed_ = nullptr;
  uint8_t* result_ = nullptr;
};

class HierarchicalAllreduce : Pipelined {
 public:
  HierarchicalAllreduce(Group& group, const Reduction& reduction, const Payload& payload,
                        size_t chunk_bytes)
      : Pipelined(group, reduction, payload, chunk_bytes),
        places_(group, chunks_.largest()),
        local_size_(group.topology().local_size),
        local_rank_(group.topology().local_rank),
        cross_(group, queue_, reduction, part_of(largest_count(), local_size_, 0, element_).count,
               kRing, kCross),
        inputs_(static_cast<size_t>(local_size_)) {}

  void run() {
    const bool crowded = group_.arena() != nullptr;
    if (crowded) {
      group_.next_buffer_index();
      group_.host_barrier();  // the set's last operation may still be reading the slots
    }
    for (size_t step = 0; step < chunks_.count() + 2 * kStageDepth; ++step) {
      const bool starts = step < chunks_.count();
      const bool combines = step >= kStageDepth && step - kStageDepth < chunks_.count();
      const bool ends = step >= 2 * kStageDepth;
      // With few chunks there are steps in between that concern no other rank of this host.
      const bool meets = crowded && (starts || ends);
      if (starts) pack(chunks_[step], places_.slot(local_rank_, step));
      if (ends) cross_.await_result(step - 2 * kStageDepth);
      // Says that this rank has packed one chunk and has its share of another one's result.
      if (meets) group_.post();
      if (combines) combine(chunks_[step - kStageDepth]);
      if (meets) group_.await_local();
      if (starts) reduce(chunks_[step]);
      if (ends) {
        const Chunk chunk = chunks_[step - 2 * kStageDepth];
        unpack(chunk, places_.result(chunk.index));
      }
    }
    queue_.finish();
    if (crowded) group_.leave();
  }

 private:
  ElementRange share(Chunk chunk) const {
    return part_of(count_of(chunk), local_size_, local_rank_, element_);
  }

  void reduce(Chunk chunk) {
    const ElementRange mine = share(chunk);
    for (int rank = 0; rank < local_size_; ++rank) {
      inputs_[static_cast<size_t>(rank)] = places_.slot(rank, chunk.index) + mine.begin * element_;
    }
    uint8_t* partial = cross_.partial(chunk.index);
    group_.observe(Phase::kReduce, mine.count * element_,
                   [&] { reduce_host(reduction_, inputs_, partial, mine.count); });
    cross_.send_partials(chunk.index, mine.count);
  }

  void combine(Chunk chunk) {
    const ElementRange mine = share(chunk);
    cross_.combine(chunk.index, mine.count, places_.result(chunk.index) + mine.begin * element_);
  }

  Places places_;
  int local_size_;
  int local_rank_;
  CrossHosts cross_;
  std::vector<const uint8_t*> inputs_;
};

}  // namespace

void allreduce_hierarchical(Group& group, const Reduction& reduction, const Payload& payload,
                            size_t chunk_bytes) {
  HierarchicalAllreduce(group, reduction, payload, Places::limit(group, chunk_bytes)).run();
}

}  // namespace hvdtune
