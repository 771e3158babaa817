#include <vector>

#include "collective/allreduce/allreduce.h"
#include "collective/allreduce/pipelined.h"
#include "collective/part_exchange.h"

namespace hvdtune {
namespace {

enum Area : size_t { kPacked, kReceived, kResult };

class DirectAllreduce : Pipelined {
 public:
  DirectAllreduce(Group& group, const Reduction& reduction, const Payload& payload,
                  size_t chunk_bytes)
      : Pipelined(group, reduction, payload, chunk_bytes),
        exchange_(group, queue_, {group.canonical_ranks().begin(), group.canonical_ranks().end()},
                  element_, element_, largest_count(), depth_ + 1, kReceived),
        packed_(group, kPacked, depth_ + 1, chunks_.largest()),
        result_(group, kResult, depth_ + 1, chunks_.largest()) {}

  void run() {
    run_stages(
        chunks_, depth_, [&](Chunk chunk) { send_parts(chunk); },
        [&](Chunk chunk) { reduce(chunk); },
        [&](Chunk chunk) {
          queue_.await_received(result_.pending(chunk.index));
          unpack(chunk, result_.at(chunk.index));
        });
    queue_.finish();
  }

 private:
  void send_parts(Chunk chunk) {
    uint8_t* packed = packed_.at(chunk.index);
    exchange_.await_sent(chunk.index);
    pack(chunk, packed);
    exchange_.send_parts(chunk.index, packed, count_of(chunk));
  }

  void reduce(Chunk chunk) {
    const ElementRange mine = exchange_.own(count_of(chunk));
    const std::vector<uint8_t*>& parts =
        exchange_.await_parts(chunk.index, packed_.at(chunk.index), count_of(chunk));
    TransferQueue::Pending& pending = result_.pending(chunk.index);
    queue_.await_sent(pending);
    uint8_t* result = result_.at(chunk.index);
    group_.observe(Phase::kReduce, mine.count * element_, [&] {
      reduce_all(reduction_, parts, group_.host_sizes(), result + mine.begin * element_,
                 mine.count);
    });
    exchange_.send_result(result, count_of(chunk), pending);
  }

  PartExchange exchange_;
  ChunkBuffers packed_;
  ChunkBuffers result_;
};

}  // namespace

void allreduce_direct(Group& group, const Reduction& reduction, const Payload& payload,
                      size_t chunk_bytes) {
  DirectAllreduce(group, reduction, payload, chunk_bytes).run();
}

}  // namespace hvdtune
