#include <vector>

#include "collective/allreduce/allreduce.h"
#include "collective/allreduce/pipelined.h"
#include "collective/cross_hosts.h"
#include "collective/part_exchange.h"

namespace hvdtune {
namespace {

enum Area : size_t { kPacked, kReceived, kResult, kCross };

class TorusAllreduce : Pipelined {
 public:
  TorusAllreduce(Group& group, const Reduction& reduction, const Payload& payload,
                 size_t chunk_bytes)
      : Pipelined(group, reduction, payload, chunk_bytes),
        row_(group, queue_,
             group.topology().hosts[static_cast<size_t>(group.topology().cross_rank)], element_,
             element_, largest_count(), depth_ + 1, kReceived),
        packed_(group, kPacked, depth_ + 1, chunks_.largest()),
        result_(group, kResult, 2 * depth_ + 1, chunks_.largest()),
        column_(group, queue_, reduction,
                part_of(largest_count(), group.topology().local_size, 0, element_).count,
                depth_ + 1, kCross) {}

  void run() {
    run_stages(
        chunks_, depth_, [&](Chunk chunk) { send_parts(chunk); },
        [&](Chunk chunk) { reduce_row(chunk); }, [&](Chunk chunk) { reduce_column(chunk); },
        [&](Chunk chunk) { send_result(chunk); },
        [&](Chunk chunk) {
          queue_.await_received(result_.pending(chunk.index));
          unpack(chunk, result_.at(chunk.index));
        });
    queue_.finish();
  }

 private:
  void send_parts(Chunk chunk) {
    uint8_t* packed = packed_.at(chunk.index);
    row_.await_sent(chunk.index);
    pack(chunk, packed);
    row_.send_parts(chunk.index, packed, count_of(chunk));
  }

  void reduce_row(Chunk chunk) {
    const ElementRange mine = row_.own(count_of(chunk));
    const std::vector<uint8_t*>& parts =
        row_.await_parts(chunk.index, packed_.at(chunk.index), count_of(chunk));
    uint8_t* partial = column_.partial(chunk.index);
    group_.observe(Phase::kReduce, mine.count * element_,
                   [&] { reduce_host(reduction_, parts, partial, mine.count); });
    column_.send_partials(chunk.index, mine.count);
  }

  void reduce_column(Chunk chunk) {
    const ElementRange mine = row_.own(count_of(chunk));
    queue_.await_sent(result_.pending(chunk.index));
    column_.combine(chunk.index, mine.count, result_.at(chunk.index) + mine.begin * element_);
  }

  void send_result(Chunk chunk) {
    column_.await_result(chunk.index);
    row_.send_result(result_.at(chunk.index), count_of(chunk), result_.pending(chunk.index));
  }

  PartExchange row_;
  ChunkBuffers packed_;
  ChunkBuffers result_;
  CrossHosts column_;
};

}  // namespace

void allreduce_torus(Group& group, const Reduction& reduction, const Payload& payload,
                     size_t chunk_bytes) {
  TorusAllreduce(group, reduction, payload, chunk_bytes).run();
}

}  // namespace hvdtune
