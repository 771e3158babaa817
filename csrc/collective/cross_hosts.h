// The part of an allreduce between the ranks that have the same place on every host: each holds its
// host's partial result of a share of the chunk.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "collective/part_exchange.h"
#include "collective/pipeline.h"
#include "collective/reduce/reduce.h"
#include "collective/transfer_queue.h"

namespace hvdtune {

// Each sends every other its part of the share as accumulators, combines what it gets in host order
// and sends the result to all: (h-1)/h of the share each way, first in wide bytes. Chunks are known
// by their index; up to `places` may be under way. Uses scratch areas `area` and `area` + 1.
//
// REQUIRES: every host has the same number of ranks.
class CrossHosts {
 public:
  // `largest` is the size of the largest share, in elements.
  CrossHosts(Group& group, TransferQueue& queue, const Reduction& reduction, size_t largest,
             size_t places, size_t area);

  // Where the partial result of a share goes; waits until the memory is free.
  uint8_t* partial(size_t chunk);
  void send_partials(size_t chunk, size_t count) {
    exchange_.send_parts(chunk, partials_.at(chunk), count);
  }
  // Awaits the partials of a share of `count` elements; its result goes to `out`: this rank's part
  // at once, the others as they come.
  void combine(size_t chunk, size_t count, uint8_t* out);
  void await_result(size_t chunk) { queue_.await_received(results_[chunk % results_.size()]); }

 private:
  Group& group_;
  TransferQueue& queue_;
  const Reduction& reduction_;
  PartExchange exchange_;
  ChunkBuffers partials_;
  std::vector<TransferQueue::Pending> results_;
};

}  // namespace hvdtune
