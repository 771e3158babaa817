#include <algorithm>
#include <vector>

#include "base/copy.h"
#include "collective/allgather.h"
#include "collective/pipeline.h"
#include "collective/rank_blocks.h"

namespace hvdtune {
namespace {

// Round r begins to fill the slots in step r; they are read in step r + depth and filled again
// kRing rounds later, one step after all have met who read them.
constexpr size_t kRing = kStageDepth + 2;

class HierarchicalAllgather {
 public:
  HierarchicalAllgather(Group& group, uint8_t* output, std::span<const size_t> block_bytes,
                        size_t chunk_bytes)
      : group_(group),
        arena_(*group.arena()),
        hosts_(group.topology().hosts),
        here_(static_cast<size_t>(group.topology().cross_rank)),
        blocks_(output, block_bytes),
        queue_(group) {
    const size_t room = arena_.slot_bytes() / (kRing / 2) / hosts_.size() / 64 * 64;
    step_ = std::min({chunk_bytes, room, whole_lines(blocks_.longest())});
  }

  void run() {
    group_.next_buffer_index();
    group_.host_barrier();  // the set's last operation may still be reading the slots
    const size_t rounds = (blocks_.longest() + step_ - 1) / step_;
    for (size_t step = 0; step < rounds + kStageDepth; ++step) {
      if (step < rounds) start(step);
      if (step < kStageDepth) continue;
      queue_.await_received(pending_[(step - kStageDepth) % kRing]);
      group_.host_barrier();
      copy_out(step - kStageDepth);
    }
    queue_.finish();
    group_.leave();
  }

 private:
  // Where a local rank has the piece of the rank with its place on `host`.
  uint8_t* slot(int local_rank, size_t round, size_t host) const {
    const size_t entry = round % kRing / 2 * hosts_.size() + host;
    return arena_.slot(local_rank, static_cast<int>(round % 2)) + entry * step_;
  }

  void start(size_t round) {
    const size_t begin = round * step_;
    const uint8_t* own = blocks_.at(group_.rank()) + begin;
    const size_t own_bytes = blocks_.part(group_.rank(), begin, step_);
    TransferQueue::Pending& pending = pending_[round % kRing];
    queue_.await_sent(pending);
    for (size_t host = 0; host < hosts_.size(); ++host) {
      if (host == here_) continue;
      const int rank = hosts_[host][static_cast<size_t>(arena_.local_rank())];
      queue_.send(rank, own, own_bytes, pending);
      queue_.recv(rank, slot(arena_.local_rank(), round, host), blocks_.part(rank, begin, step_),
                  pending);
    }
    group_.observe(Phase::kPack, own_bytes,
                   [&] { copy_bytes(slot(arena_.local_rank(), round, here_), own, own_bytes); });
  }

  void copy_out(size_t round) {
    const size_t begin = round * step_;
    group_.observe(Phase::kUnpack, step_ * static_cast<size_t>(group_.size() - 1), [&] {
      for (int local_rank = 0; local_rank < arena_.local_size(); ++local_rank) {
        for (size_t host = 0; host < hosts_.size(); ++host) {
          const int rank = hosts_[host][static_cast<size_t>(local_rank)];
          if (rank == group_.rank()) continue;
          copy_bytes(blocks_.at(rank) + begin, slot(local_rank, round, host),
                     blocks_.part(rank, begin, step_));
        }
      }
    });
  }

  Group& group_;
  GroupArena& arena_;
  const std::vector<std::vector<int>>& hosts_;
  size_t here_;
  RankBlocks<uint8_t> blocks_;
  TransferQueue queue_;
  size_t step_ = 0;
  TransferQueue::Pending pending_[kRing];
};

}  // namespace

void allgather_hierarchical(Group& group, uint8_t* output, std::span<const size_t> block_bytes,
                            size_t chunk_bytes) {
  HierarchicalAllgather(group, output, block_bytes, chunk_bytes).run();
}

}  // namespace hvdtune
