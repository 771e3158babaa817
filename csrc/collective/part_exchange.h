// Ranks that share out the work on a chunk, a part for each, and bring the results together.
#pragma once

#include <cstdint>
#include <vector>

#include "collective/partition.h"
#include "collective/pipeline.h"
#include "collective/transfer_queue.h"

namespace hvdtune {

// Each rank sends every other one its part of what it has, combines what it gets of its own part,
// and sends the result to all. Chunks are known by their index; up to `places` may be under way.
class PartExchange {
 public:
  using Pending = TransferQueue::Pending;

  // What is combined has elements of `width` bytes, results have some of `element` bytes. `ranks`
  // are equal on all of them, `rank` is this one's; `largest` is how many elements the largest
  // chunk has. Uses scratch area `area`.
  PartExchange(Group& group, TransferQueue& queue, std::vector<int> ranks, size_t width,
               size_t element, size_t largest, size_t places, size_t area);

  // This rank's part of `count` elements.
  ElementRange own(size_t count) const { return part(count, self_); }

  // `data` belongs to the exchange until await_sent().
  void send_parts(size_t chunk, const uint8_t* data, size_t count);
  void await_sent(size_t chunk) { queue_.await_sent(received_.pending(chunk)); }
  // Awaits the others' parts of what send_parts() was called with; where all ranks' are, in order.
  const std::vector<uint8_t*>& await_parts(size_t chunk, uint8_t* data, size_t count);
  // Sends this rank's part of the results in `data`; the others' come as `pending` says.
  void send_result(uint8_t* data, size_t count, Pending& pending);

 private:
  ElementRange part(size_t count, size_t place) const {
    return part_of(count, static_cast<int>(ranks_.size()), static_cast<int>(place), element_);
  }
  uint8_t* received(size_t chunk, size_t place) const {
    return received_.at(chunk) + place * part_bytes_;
  }

  TransferQueue& queue_;
  std::vector<int> ranks_;
  size_t self_;
  size_t width_;
  size_t element_;
  size_t part_bytes_;
  ChunkBuffers received_;
  std::vector<uint8_t*> parts_;
};

}  // namespace hvdtune
