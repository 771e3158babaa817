#include "collective/allgather.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "base/copy.h"
#include "collective/group_shape.h"
#include "collective/pipeline.h"
#include "collective/rank_blocks.h"

namespace hvdtune {

void allgather_direct(Group& group, uint8_t* output, std::span<const size_t> block_bytes) {
  const RankBlocks<uint8_t> blocks(output, block_bytes);
  std::vector<Transfer> transfers;
  for (int rank = 0; rank < group.size(); ++rank) {
    if (rank == group.rank()) continue;
    transfers.push_back({&group.link(rank), blocks.at(group.rank()), blocks.bytes(group.rank()),
                         blocks.at(rank), blocks.bytes(rank)});
  }
  group.exchange(transfers);
}

void allgather_doubling(Group& group, uint8_t* output, std::span<const size_t> block_bytes) {
  const RankBlocks<uint8_t> blocks(output, block_bytes);
  const int size = group.size();
  TransferQueue queue(group);
  TransferQueue::Pending pending;
  for (int have = 1; have < size; have *= 2) {
    const int count = std::min(have, size - have);
    for (int i = 0; i < count; ++i) {
      const int out = (group.rank() + i) % size;
      const int in = (group.rank() + have + i) % size;
      queue.send((group.rank() + size - have) % size, blocks.at(out), blocks.bytes(out), pending);
      queue.recv((group.rank() + have) % size, blocks.at(in), blocks.bytes(in), pending);
    }
    queue.await_received(pending);
  }
  queue.finish();
}

void allgather_ring(Group& group, uint8_t* output, std::span<const size_t> block_bytes,
                    size_t chunk_bytes) {
  const RankBlocks<uint8_t> blocks(output, block_bytes);
  const auto order = group.canonical_ranks();
  const size_t size = order.size();
  const auto place = static_cast<size_t>(std::ranges::find(order, group.rank()) - order.begin());
  const int next = order[(place + 1) % size];
  const int last = order[(place + size - 1) % size];
  // What arrives, in order; all but the last block is handed on.
  struct Piece {
    uint8_t* data;
    size_t bytes;
    TransferQueue::Pending pending;
  };
  std::vector<Piece> pieces;
  size_t handed_on = 0;
  for (size_t step = 1; step < size; ++step) {
    const int rank = order[(place + size - step) % size];
    const Chunks chunks(blocks.bytes(rank), chunk_bytes);
    for (size_t i = 0; i < chunks.count(); ++i) {
      pieces.push_back({blocks.at(rank) + chunks[i].begin, chunks[i].bytes, {}});
    }
    if (step + 1 < size) handed_on = pieces.size();
  }
  TransferQueue queue(group);
  TransferQueue::Pending sent;
  queue.send(next, blocks.at(group.rank()), blocks.bytes(group.rank()), sent);
  for (Piece& piece : pieces) queue.recv(last, piece.data, piece.bytes, piece.pending);
  for (const Piece& piece : std::span(pieces).first(handed_on)) {
    queue.await_received(piece.pending);
    queue.send(next, piece.data, piece.bytes, sent);
  }
  queue.finish();
}

void allgather_shared(Group& group, uint8_t* output, std::span<const size_t> block_bytes,
                      size_t chunk_bytes) {
  const RankBlocks<uint8_t> blocks(output, block_bytes);
  GroupArena& arena = *group.arena();
  const size_t step = std::min(chunk_bytes, arena.slot_bytes());
  for (size_t begin = 0; begin < blocks.longest(); begin += step) {
    const int buffer_index = group.next_buffer_index();
    const size_t mine = blocks.part(group.rank(), begin, step);
    group.observe(Phase::kPack, mine, [&] {
      copy_bytes(arena.slot(arena.local_rank(), buffer_index), blocks.at(group.rank()) + begin,
                 mine);
    });
    // A slot is filled again two rounds on: all have then met after they read it.
    group.host_barrier();
    size_t copied = 0;
    for (int rank = 0; rank < group.size(); ++rank) copied += blocks.part(rank, begin, step);
    group.observe(Phase::kUnpack, copied - mine, [&] {
      for (int rank = 0; rank < group.size(); ++rank) {
        if (rank == group.rank()) continue;
        copy_part(blocks.at(rank) + begin, arena.slot(rank, buffer_index),
                  blocks.part(rank, begin, step),
                  blocks.longest() * static_cast<size_t>(group.size()));
      }
    });
  }
  group.leave();
}

void allgather_by(Algorithm algorithm, Group& group, const uint8_t* input, uint8_t* output,
                  std::span<const size_t> block_bytes, size_t chunk_bytes) {
  const RankBlocks<uint8_t> blocks(output, block_bytes);
  const size_t mine = blocks.bytes(group.rank());
  if (mine > 0 && blocks.at(group.rank()) != input) {
    group.observe(Phase::kPack, mine, [&] { copy_bytes(blocks.at(group.rank()), input, mine); });
  }
  if (blocks.longest() == 0) return;
  switch (algorithm) {
    case Algorithm::kAlone:
      return;
    case Algorithm::kShared:
      return allgather_shared(group, output, block_bytes, chunk_bytes);
    case Algorithm::kDoubling:
      return allgather_doubling(group, output, block_bytes);
    case Algorithm::kRing:
      return allgather_ring(group, output, block_bytes, chunk_bytes);
    case Algorithm::kHierarchical:
      return allgather_hierarchical(group, output, block_bytes, chunk_bytes);
    default:
      return allgather_direct(group, output, block_bytes);
  }
}

void allgather(Group& group, const uint8_t* input, uint8_t* output,
               std::span<const size_t> block_bytes, const Setting& setting) {
  const size_t total = std::accumulate(block_bytes.begin(), block_bytes.end(), size_t{0});
  allgather_by(choose(OpType::kAllgather, total, shape_of(group), setting), group, input, output,
               block_bytes, static_cast<size_t>(setting.chunk_bytes) / 64 * 64);
}

}  // namespace hvdtune
