#include <vector>

#include "collective/allreduce/allreduce.h"
#include "collective/cross_hosts.h"
#include "collective/partition.h"
#include "collective/pipeline.h"

namespace hvdtune {
namespace {

enum Area : size_t { kPacked, kReceived, kResult, kCross };

class TorusAllreduce {
 public:
  TorusAllreduce(Group& group, const Reduction& reduction, const Payload& payload,
                 size_t chunk_bytes)
      : group_(group),
        reduction_(reduction),
        payload_(payload),
        chunks_(payload.bytes(), chunk_bytes),
        queue_(group),
        element_(size_of(reduction.dtype)),
        depth_(chunks_.count() > 1 ? kStageDepth : 0),
        place_(static_cast<size_t>(group.topology().local_rank)),
        row_(group.topology().hosts[static_cast<size_t>(group.topology().cross_rank)]),
        received_bytes_(whole_lines(share(chunks_[0], 0).count * element_)),
        packed_(group, kPacked, depth_ + 1, chunks_.largest()),
        received_(group, kReceived, depth_ + 1, received_bytes_ * row_.size()),
        result_(group, kResult, 2 * depth_ + 1, chunks_.largest()),
        cross_(group, queue_, reduction, share(chunks_[0], 0).count, depth_ + 1, kCross) {}

  void run() {
    run_stages(
        chunks_, depth_, [&](Chunk chunk) { send_shares(chunk); },
        [&](Chunk chunk) { reduce_row(chunk); }, [&](Chunk chunk) { reduce_column(chunk); },
        [&](Chunk chunk) { send_result(chunk); }, [&](Chunk chunk) { unpack(chunk); });
    queue_.finish();
  }

 private:
  ElementRange share(Chunk chunk, size_t place) const {
    return part_of(chunk.bytes / element_, group_.topology().local_size, static_cast<int>(place),
                   element_);
  }
  uint8_t* received(Chunk chunk, size_t place) const {
    return received_.at(chunk.index) + received_bytes_ * place;
  }

  void send_shares(Chunk chunk) {
    TransferQueue::Pending& pending = packed_.pending(chunk.index);
    queue_.await_sent(pending);
    uint8_t* packed = packed_.at(chunk.index);
    group_.observe(Phase::kPack, chunk.bytes,
                   [&] { payload_.pack(chunk.begin, chunk.bytes, packed); });
    const size_t mine_bytes = share(chunk, place_).count * element_;
    for (size_t place = 0; place < row_.size(); ++place) {
      if (place == place_) continue;
      const ElementRange theirs = share(chunk, place);
      queue_.send(row_[place], packed + theirs.begin * element_, theirs.count * element_, pending);
      queue_.recv(row_[place], received(chunk, place), mine_bytes, pending);
    }
  }

  void reduce_row(Chunk chunk) {
    const ElementRange mine = share(chunk, place_);
    inputs_.clear();
    for (size_t place = 0; place < row_.size(); ++place) {
      inputs_.push_back(place == place_ ? packed_.at(chunk.index) + mine.begin * element_
                                        : received(chunk, place));
    }
    queue_.await_received(packed_.pending(chunk.index));
    uint8_t* partial = cross_.partial(chunk.index);
    group_.observe(Phase::kReduce, mine.count * element_,
                   [&] { reduce_host(reduction_, inputs_, partial, mine.count); });
    cross_.send_partials(chunk.index, mine.count);
  }

  void reduce_column(Chunk chunk) {
    const ElementRange mine = share(chunk, place_);
    queue_.await_sent(result_.pending(chunk.index));
    cross_.combine(chunk.index, mine.count, result_.at(chunk.index) + mine.begin * element_);
  }

  void send_result(Chunk chunk) {
    cross_.await_result(chunk.index);
    const ElementRange mine = share(chunk, place_);
    uint8_t* result = result_.at(chunk.index);
    TransferQueue::Pending& pending = result_.pending(chunk.index);
    for (size_t place = 0; place < row_.size(); ++place) {
      if (place == place_) continue;
      const ElementRange theirs = share(chunk, place);
      queue_.send(row_[place], result + mine.begin * element_, mine.count * element_, pending);
      queue_.recv(row_[place], result + theirs.begin * element_, theirs.count * element_, pending);
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
  size_t place_;
  const std::vector<int>& row_;
  size_t received_bytes_;
  ChunkBuffers packed_;
  ChunkBuffers received_;
  ChunkBuffers result_;
  CrossHosts cross_;
  std::vector<const uint8_t*> inputs_;
};

}  // namespace

void allreduce_torus(Group& group, const Reduction& reduction, const Payload& payload,
                     size_t chunk_bytes) {
  TorusAllreduce(group, reduction, payload, chunk_bytes).run();
}

}  // namespace hvdtune
