// What allreduces have in common that cut a payload in chunks.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "collective/payload.h"
#include "collective/pipeline.h"
#include "collective/reduce/reduce.h"

namespace hvdtune {

// One chunk after the other: packs it, calls reduce(data, count) for its elements, and unpacks what
// that leaves in `data`. Uses scratch area 0.
template <typename Reduce>
void reduce_in_turn(Group& group, const Reduction& reduction, const Payload& payload,
                    size_t chunk_bytes, Reduce reduce) {
  const Chunks chunks(payload.bytes(), chunk_bytes);
  uint8_t* data = group.scratch().take(0, chunks.largest());
  for (size_t i = 0; i < chunks.count(); ++i) {
    const Chunk chunk = chunks[i];
    group.observe(Phase::kPack, chunk.bytes, [&] { payload.pack(chunk.begin, chunk.bytes, data); });
    reduce(data, chunk.bytes / size_of(reduction.dtype));
    group.observe(Phase::kUnpack, chunk.bytes,
                  [&] { payload.unpack(chunk.begin, chunk.bytes, data); });
  }
}

// Chunks of which several are under way.
class Pipelined {
 protected:
  Pipelined(Group& group, const Reduction& reduction, const Payload& payload, size_t chunk_bytes)
      : group_(group),
        reduction_(reduction),
        payload_(payload),
        chunks_(payload.bytes(), chunk_bytes),
        queue_(group),
        element_(size_of(reduction.dtype)),
        depth_(chunks_.count() > 1 ? kStageDepth : 0) {}

  size_t largest_count() const { return chunks_.largest() / element_; }
  size_t count_of(Chunk chunk) const { return chunk.bytes / element_; }
  void pack(Chunk chunk, uint8_t* to) {
    group_.observe(Phase::kPack, chunk.bytes, [&] { payload_.pack(chunk.begin, chunk.bytes, to); });
  }
  void unpack(Chunk chunk, const uint8_t* from) {
    group_.observe(Phase::kUnpack, chunk.bytes,
                   [&] { payload_.unpack(chunk.begin, chunk.bytes, from); });
  }

  Group& group_;
  const Reduction& reduction_;
  const Payload& payload_;
  Chunks chunks_;
  TransferQueue queue_;
  size_t element_;
  size_t depth_;  // how many chunks a stage is behind the one before it
};

}  // namespace hvdtune
