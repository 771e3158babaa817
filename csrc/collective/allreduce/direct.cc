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
        flow_(group),
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
    flow_.finish();
  }

 private:
  Share share(Chunk chunk, int rank) const {
    return share_of(chunk.bytes / element_, group_.size(), rank, element_);
  }
  uint8_t* received(Chunk chunk, int rank) const {
    return received_.at(chunk.index) + received_bytes_ * static_cast<size_t>(rank);
  }

  void send_shares(Chunk chunk) {
    Flow::Batch& moving = packed_.moving(chunk.index);
    flow_.await_sent(moving);
    uint8_t* packed = packed_.at(chunk.index);
    group_.observe(Phase::kPack, chunk.bytes,
                   [&] { payload_.pack(chunk.begin, chunk.bytes, packed); });
    const size_t mine_bytes = share(chunk, group_.rank()).count * element_;
    for (int rank = 0; rank < group_.size(); ++rank) {
      if (rank == group_.rank()) continue;
      const Share theirs = share(chunk, rank);
      flow_.send(rank, packed + theirs.begin * element_, theirs.count * element_, moving);
      flow_.recv(rank, received(chunk, rank), mine_bytes, moving);
    }
  }

  void reduce(Chunk chunk) {
    const Share mine = share(chunk, group_.rank());
    inputs_.clear();
    for (const int rank : group_.canonical_ranks()) {
      inputs_.push_back(rank == group_.rank() ? packed_.at(chunk.index) + mine.begin * element_
                                              : received(chunk, rank));
    }
    flow_.await_received(packed_.moving(chunk.index));
    Flow::Batch& moving = result_.moving(chunk.index);
    flow_.await_sent(moving);
    uint8_t* result = result_.at(chunk.index);
    group_.observe(Phase::kReduce, mine.count * element_, [&] {
      reduce_all(reduction_, inputs_, group_.host_sizes(), result + mine.begin * element_,
                 mine.count);
    });
    for (int rank = 0; rank < group_.size(); ++rank) {
      if (rank == group_.rank()) continue;
      const Share theirs = share(chunk, rank);
      flow_.send(rank, result + mine.begin * element_, mine.count * element_, moving);
      flow_.recv(rank, result + theirs.begin * element_, theirs.count * element_, moving);
    }
  }

  void unpack(Chunk chunk) {
    flow_.await_received(result_.moving(chunk.index));
    group_.observe(Phase::kUnpack, chunk.bytes,
                   [&] { payload_.unpack(chunk.begin, chunk.bytes, result_.at(chunk.index)); });
  }

  Group& group_;
  const Reduction& reduction_;
  const Payload& payload_;
  Chunks chunks_;
  Flow flow_;
  size_t element_;
  size_t depth_;
  size_t received_bytes_;
  Ring packed_;
  Ring received_;
  Ring result_;
  std::vector<const uint8_t*> inputs_;
};

}  // namespace

void allreduce_direct(Group& group, const Reduction& reduction, const Payload& payload,
                      size_t chunk_bytes) {
  DirectAllreduce(group, reduction, payload, chunk_bytes).run();
}

}  // namespace hvdtune
