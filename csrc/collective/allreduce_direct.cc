#include <algorithm>
#include <cstring>
#include <vector>

#include "collective/allreduce.h"
#include "collective/share.h"

namespace hvdtune {
namespace {

enum Area : size_t { kPacked, kReceived, kResult };

void reduce_chunk(Group& group, const Reduction& reduction, uint8_t* packed, uint8_t* result,
                  size_t count) {
  const size_t element = size_of(reduction.dtype);
  const Share mine = share_of(count, group.size(), group.rank(), element);
  const size_t mine_bytes = mine.count * element;
  uint8_t* received =
      group.scratch().take(kReceived, mine_bytes * static_cast<size_t>(group.size()));

  std::vector<Transfer> transfers;
  std::vector<const uint8_t*> inputs;
  for (const int rank : group.canonical_ranks()) {
    if (rank == group.rank()) {
      inputs.push_back(packed + mine.begin * element);
      continue;
    }
    const Share theirs = share_of(count, group.size(), rank, element);
    uint8_t* into = received + mine_bytes * static_cast<size_t>(rank);
    inputs.push_back(into);
    transfers.push_back({&group.link(rank), packed + theirs.begin * element, theirs.count * element,
                         into, mine_bytes});
  }
  group.exchange(transfers);
  group.observe(Phase::kReduce, mine_bytes, [&] {
    reduce_all(reduction, inputs, group.host_sizes(), result + mine.begin * element, mine.count);
  });

  transfers.clear();
  for (int rank = 0; rank < group.size(); ++rank) {
    if (rank == group.rank()) continue;
    const Share theirs = share_of(count, group.size(), rank, element);
    transfers.push_back({&group.link(rank), result + mine.begin * element, mine_bytes,
                         result + theirs.begin * element, theirs.count * element});
  }
  group.exchange(transfers);
}

}  // namespace

void allreduce_direct(Group& group, const Reduction& reduction, const Payload& payload,
                      size_t chunk_bytes) {
  for (size_t at = 0; at < payload.bytes(); at += chunk_bytes) {
    const size_t bytes = std::min(chunk_bytes, payload.bytes() - at);
    uint8_t* packed = group.scratch().take(kPacked, chunk_bytes);
    uint8_t* result = group.scratch().take(kResult, chunk_bytes);
    group.observe(Phase::kPack, bytes, [&] { payload.pack(at, bytes, packed); });
    reduce_chunk(group, reduction, packed, result, bytes / size_of(reduction.dtype));
    group.observe(Phase::kUnpack, bytes, [&] { payload.unpack(at, bytes, result); });
  }
}

}  // namespace hvdtune
