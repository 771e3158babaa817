// Chunks of a payload, some of which are on the network while others are packed and reduced.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "collective/transfer_queue.h"

namespace hvdtune {

// How many chunks a stage is behind the one before it. With two, what a rank waits for was sent a
// whole step earlier, so neither the network nor a slower peer holds it up at once.
inline constexpr size_t kStageDepth = 2;

struct Chunk {
  size_t index = 0;
  size_t begin = 0;  // bytes
  size_t bytes = 0;
};

class Chunks {
 public:
  Chunks(size_t total, size_t chunk_bytes)
      : total_(total), each_(chunk_bytes), count_((total + chunk_bytes - 1) / chunk_bytes) {}
  size_t count() const { return count_; }
  Chunk operator[](size_t index) const {
    return {index, index * each_, std::min(each_, total_ - index * each_)};
  }
  size_t largest() const { return std::min(each_, total_); }

 private:
  size_t total_;
  size_t each_;
  size_t count_;
};

inline size_t whole_lines(size_t bytes) { return (bytes + 63) / 64 * 64; }

// Scratch memory for the chunks that are under way: chunk i has place i modulo `places`, and with
// it a count of its transfers that are not done.
class ChunkBuffers {
 public:
  ChunkBuffers(Group& group, size_t area, size_t places, size_t bytes)
      : bytes_(whole_lines(bytes)),
        memory_(group.scratch().take(area, bytes_ * places)),
        pending_(places) {}
  uint8_t* at(size_t chunk) const { return memory_ + chunk % pending_.size() * bytes_; }
  TransferQueue::Pending& pending(size_t chunk) { return pending_[chunk % pending_.size()]; }

 private:
  size_t bytes_;
  uint8_t* memory_;
  std::vector<TransferQueue::Pending> pending_;
};

// Runs stage i on chunk step - i * depth in each step, so that it follows the one before it by
// `depth` steps.
template <typename... Stages>
void run_stages(const Chunks& chunks, size_t depth, Stages... stages) {
  const size_t steps = chunks.count() + (sizeof...(stages) - 1) * depth;
  for (size_t step = 0; step < steps; ++step) {
    size_t behind = 0;
    const auto turn = [&](auto& stage) {
      if (step >= behind && step - behind < chunks.count()) stage(chunks[step - behind]);
      behind += depth;
    };
    (turn(stages), ...);
  }
}

}  // namespace hvdtune
