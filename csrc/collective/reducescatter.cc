#include "collective/reducescatter.h"

#include <algorithm>
#include <vector>

#include "base/copy.h"
#include "collective/group_shape.h"
#include "collective/pipeline.h"
#include "collective/rank_blocks.h"

namespace hvdtune {
namespace {

std::vector<size_t> to_bytes(std::span<const size_t> counts, size_t element) {
  std::vector<size_t> bytes;
  for (const size_t count : counts) bytes.push_back(count * element);
  return bytes;
}

// Bytes of each block that a round takes, so that all of them together are about a chunk.
size_t round_step(size_t chunk_bytes, int ranks) {
  return std::max<size_t>(chunk_bytes / static_cast<size_t>(ranks) / 64 * 64, 64);
}

}  // namespace

void reducescatter_direct(Group& group, const Reduction& reduction, const uint8_t* input,
                          uint8_t* output, std::span<const size_t> counts, size_t chunk_bytes) {
  const size_t element = size_of(reduction.dtype);
  const std::vector<size_t> sizes = to_bytes(counts, element);
  const RankBlocks<const uint8_t> blocks(input, sizes);
  const size_t step =
      std::min(round_step(chunk_bytes, group.size()), whole_lines(blocks.longest()));
  const Chunks rounds(blocks.longest(), step);
  TransferQueue queue(group);
  ChunkBuffers received(group, 0, kStageDepth + 1, step * static_cast<size_t>(group.size()));
  const auto into = [&](Chunk round, int rank) {
    return received.at(round.index) + step * static_cast<size_t>(rank);
  };
  const auto send = [&](Chunk round) {
    const size_t mine = blocks.part(group.rank(), round.begin, step);
    TransferQueue::Pending& pending = received.pending(round.index);
    for (int rank = 0; rank < group.size(); ++rank) {
      if (rank == group.rank()) continue;
      queue.send(rank, blocks.at(rank) + round.begin, blocks.part(rank, round.begin, step),
                 pending);
      queue.recv(rank, into(round, rank), mine, pending);
    }
  };
  std::vector<const uint8_t*> inputs;
  const auto reduce = [&](Chunk round) {
    const size_t mine = blocks.part(group.rank(), round.begin, step);
    inputs.clear();
    for (const int rank : group.canonical_ranks()) {
      inputs.push_back(rank == group.rank() ? blocks.at(rank) + round.begin : into(round, rank));
    }
    queue.await_received(received.pending(round.index));
    if (mine == 0) return;
    group.observe(Phase::kReduce, mine, [&] {
      reduce_all(reduction, inputs, group.host_sizes(), output + round.begin, mine / element);
    });
  };
  run_stages(rounds, kStageDepth, send, reduce);
  queue.finish();
}

void reducescatter_shared(Group& group, const Reduction& reduction, const uint8_t* input,
                          uint8_t* output, std::span<const size_t> counts, size_t chunk_bytes) {
  const size_t element = size_of(reduction.dtype);
  const std::vector<size_t> sizes = to_bytes(counts, element);
  const RankBlocks<const uint8_t> blocks(input, sizes);
  GroupArena& arena = *group.arena();
  const auto ranks = static_cast<size_t>(group.size());
  const size_t step = round_step(std::min(chunk_bytes, arena.slot_bytes()), group.size());
  std::vector<const uint8_t*> inputs(ranks);
  for (size_t begin = 0; begin < blocks.longest(); begin += step) {
    const int buffer_index = group.next_buffer_index();
    uint8_t* slot = arena.slot(arena.local_rank(), buffer_index);
    group.observe(Phase::kPack, step * (ranks - 1), [&] {
      for (int rank = 0; rank < group.size(); ++rank) {
        copy_bytes(slot + step * static_cast<size_t>(rank), blocks.at(rank) + begin,
                   blocks.part(rank, begin, step));
      }
    });
    // A slot is filled again two rounds on: all have then met after they read it.
    group.host_barrier();
    const size_t mine = blocks.part(group.rank(), begin, step);
    if (mine == 0) continue;
    group.observe(Phase::kReduce, mine, [&] {
      for (size_t i = 0; i < ranks; ++i) {
        inputs[i] = arena.slot(static_cast<int>(i), buffer_index) +
                    step * static_cast<size_t>(group.rank());
      }
      reduce_all(reduction, inputs, group.host_sizes(), output + begin, mine / element);
    });
  }
  group.leave();
}

void reducescatter_by(Algorithm algorithm, Group& group, const Reduction& reduction,
                      const uint8_t* input, uint8_t* output, std::span<const size_t> counts,
                      size_t chunk_bytes) {
  if (*std::ranges::max_element(counts) == 0) return;
  if (algorithm == Algorithm::kShared) {
    return reducescatter_shared(group, reduction, input, output, counts, chunk_bytes);
  }
  reducescatter_direct(group, reduction, input, output, counts, chunk_bytes);
}

void reducescatter(Group& group, const Reduction& reduction, const uint8_t* input, uint8_t* output,
                   std::span<const size_t> counts, const Setting& setting) {
  size_t total = 0;
  for (const size_t count : counts) total += count * size_of(reduction.dtype);
  reducescatter_by(choose(OpType::kReducescatter, total, shape_of(group), setting), group,
                   reduction, input, output, counts,
                   static_cast<size_t>(setting.chunk_bytes) / 64 * 64);
}

}  // namespace hvdtune
