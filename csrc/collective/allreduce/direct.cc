#include <vector>

#include "collective/allreduce/allreduce.h"
#include "collective/partition.h"
#include "collective/pipeline.h"

namespace hvdtune {
namespace {

enum Area : size_t { kPacked, kReceived, kResult };

class DirectAllreduce {
 public:
  DirectAllreduce(Group& group, const Reduction& reduction, const Payload& payload,
                  size_t chunk_bytes)
      : group_(group),
        reduction_(reduction),
        payload_(payload),
        chunks_(payload.bytes(), chunk_bytes),
        queue_(group),
        element_(size_of(reduction.dtype)),
        depth_(chunks_.count() > 1 ? kStageDepth : 0),
        received_bytes_(whole_lines(share(chunks_[0], 0).count * element_)),
        packed_(group, kPacked, depth_ + 1, chunks_.largest()),
        received_(group, kReceived, depth_ + 1,
                  received_bytes_ * static_cast<size_t>(group.size())),
        result_(group, kResult, depth_ + 1, chunks_.largest()) {}

  void run() {
    run_stages(
        chunks_, depth_, [&](Chunk chunk) { send_shares(chunk); },
        [&](Chunk chunk) { reduce(chunk); }, [&](Chunk chunk) { unpack(chunk); });
    queue_.finish();
  }

 private:
  ElementRange share(Chunk chunk, int rank) const {
    return part_of(chunk.bytes / element_, group_.size(), rank, element_);
  }
  uint8_t* received(Chunk chunk, int rank) const {
    return received_.at(chunk.index) + received_bytes_ * static_cast<size_t>(rank);
  }

  void send_shares(Chunk chunk) {
    TransferQueue::Pending& pending = packed_.pending(chunk.index);
    queue_.await_sent(pending);
    uint8_t* packed = packed_.at(chunk.index);
    group_.observe(Phase::kPack, chunk.bytes,
                   [&] { payload_.pack(chunk.begin, chunk.bytes, packed); });
    const size_t mine_bytes = share(chunk, group_.rank()).count * element_;
    for (int rank = 0; rank < group_.size(); ++rank) {
      if (rank == group_.rank()) continue;
      const ElementRange theirs = share(chunk, rank);
      queue_.send(rank, packed + theirs.begin * element_, theirs.count * element_, pending);
      queue_.recv(rank, received(chunk, rank), mine_bytes, pending);
    }
  }

  void reduce(Chunk chunk) {
    const ElementRange mine = share(chunk, group_.rank());
    inputs_.clear();
    for (const int rank : group_.canonical_ranks()) {
      inputs_.push_back(rank == group_.rank() ? packed_.at(chunk.index) + mine.begin * element_
                                              : received(chunk, rank));
    }
    queue_.await_received(packed_.pending(chunk.index));
    TransferQueue::Pending& pending = result_.pending(chunk.index);
    queue_.await_sent(pending);
    uint8_t* result = result_.at(chunk.index);
    group_.observe(Phase::kReduce, mine.count * element_, [&] {
      reduce_all(reduction_, inputs_, group_.host_sizes(), result + mine.begin * element_,
                 mine.count);
    });
    for (int rank = 0; rank < group_.size(); ++rank) {
      if (rank == group_.rank()) continue;
      const ElementRange theirs = share(chunk, rank);
      queue_.send(rank, result + mine.begin * element_, mine.count * element_, pending);
      queue_.recv(rank, result + theirs.begin * element_, theirs.count * element_, pending);
    }
  }

  void unpack(Chunk chunk) {
    queue_.await_received(result_.pending(chunk.index));
    group_.observe(Phase::kUnpack, chunk.bytes,
                   [&] { payload_.unpack(chunk.begin, chunk.bytes, result_.at(chunk.index)); });
  }

  Group& group_;
  const Reduction& reduction_;
  const Payload& payload_;
  Chunks chunks_;
  TransferQueue queue_;
  size_t element_;
  size_t depth_;
  size_t received_bytes_;
  ChunkBuffers packed_;
  ChunkBuffers received_;
  ChunkBuffers result_;
  std::vector<const uint8_t*> inputs_;
};

}  // namespace

void allreduce_direct(Group& group, const Reduction& reduction, const Payload& payload,
                      size_t chunk_bytes) {
  DirectAllreduce(group, reduction, payload, chunk_bytes).run();
}

}  // namespace hvdtune
