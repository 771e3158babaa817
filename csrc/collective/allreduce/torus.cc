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
        flow_(group),
        element_(size_of(reduction.dtype)),
        depth_(chunks_.count() > 1 ? kStageDepth : 0),
        place_(static_cast<size_t>(group.topology().local_rank)),
        row_(group.topology().hosts[static_cast<size_t>(group.topology().cross_rank)]),
        received_bytes_(whole_lines(share(chunks_[0], 0).count * element_)),
        packed_(group, kPacked, depth_ + 1, chunks_.largest()),
        received_(group, kReceived, depth_ + 1, received_bytes_ * row_.size()),
        result_(group, kResult, 2 * depth_ + 1, chunks_.largest()),
        cross_(group, flow_, reduction, share(chunks_[0], 0).count, depth_ + 1, kCross) {}

  void run() {
    run_stages(
        chunks_, depth_, [&](Chunk chunk) { send_shares(chunk); },
        [&](Chunk chunk) { reduce_row(chunk); }, [&](Chunk chunk) { reduce_column(chunk); },
        [&](Chunk chunk) { send_result(chunk); }, [&](Chunk chunk) { unpack(chunk); });
    flow_.finish();
  }

 private:
  Share share(Chunk chunk, size_t place) const {
    return share_of(chunk.bytes / element_, group_.topology().local_size, static_cast<int>(place),
                    element_);
  }
  uint8_t* received(Chunk chunk, size_t place) const {
    return received_.at(chunk.index) + received_bytes_ * place;
  }

  void send_shares(Chunk chunk) {
    Flow::Batch& moving = packed_.moving(chunk.index);
    flow_.await_sent(moving);
    uint8_t* packed = packed_.at(chunk.index);
    group_.observe(Phase::kPack, chunk.bytes,
                   [&] { payload_.pack(chunk.begin, chunk.bytes, packed); });
    const size_t mine_bytes = share(chunk, place_).count * element_;
    for (size_t place = 0; place < row_.size(); ++place) {
      if (place == place_) continue;
      const Share theirs = share(chunk, place);
      flow_.send(row_[place], packed + theirs.begin * element_, theirs.count * element_, moving);
      flow_.recv(row_[place], received(chunk, place), mine_bytes, moving);
    }
  }

  void reduce_row(Chunk chunk) {
    const Share mine = share(chunk, place_);
    inputs_.clear();
    for (size_t place = 0; place < row_.size(); ++place) {
      inputs_.push_back(place == place_ ? packed_.at(chunk.index) + mine.begin * element_
                                        : received(chunk, place));
    }
    flow_.await_received(packed_.moving(chunk.index));
    uint8_t* partial = cross_.partial(chunk.index);
    group_.observe(Phase::kReduce, mine.count * element_,
                   [&] { reduce_host(reduction_, inputs_, partial, mine.count); });
    cross_.send_partials(chunk.index, mine.count);
  }

  void reduce_column(Chunk chunk) {
    const Share mine = share(chunk, place_);
    flow_.await_sent(result_.moving(chunk.index));
    cross_.combine(chunk.index, mine.count, result_.at(chunk.index) + mine.begin * element_);
  }

  void send_result(Chunk chunk) {
    cross_.await_result(chunk.index);
    const Share mine = share(chunk, place_);
    uint8_t* result = result_.at(chunk.index);
    Flow::Batch& moving = result_.moving(chunk.index);
    for (size_t place = 0; place < row_.size(); ++place) {
      if (place == place_) continue;
      const Share theirs = share(chunk, place);
      flow_.send(row_[place], result + mine.begin * element_, mine.count * element_, moving);
      flow_.recv(row_[place], result + theirs.begin * element_, theirs.count * element_, moving);
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
  size_t place_;
  const std::vector<int>& row_;
  size_t received_bytes_;
  Ring packed_;
  Ring received_;
  Ring result_;
  CrossHosts cross_;
  std::vector<const uint8_t*> inputs_;
};

}  // namespace

void allreduce_torus(Group& group, const Reduction& reduction, const Payload& payload,
                     size_t chunk_bytes) {
  TorusAllreduce(group, reduction, payload, chunk_bytes).run();
}

}  // namespace hvdtune
