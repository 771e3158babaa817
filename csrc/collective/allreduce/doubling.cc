#include <algorithm>
#include <vector>

#include "collective/allgather.h"
#include "collective/allreduce/allreduce.h"

namespace hvdtune {
namespace {

enum Area : size_t { kGathered, kResult };

}  // namespace

void allreduce_doubling(Group& group, const Reduction& reduction, const Payload& payload,
                        size_t chunk_bytes) {
  const size_t element = size_of(reduction.dtype);
  for (size_t at = 0; at < payload.bytes(); at += chunk_bytes) {
    const size_t bytes = std::min(chunk_bytes, payload.bytes() - at);
    const std::vector<size_t> blocks(static_cast<size_t>(group.size()), bytes);
    uint8_t* gathered = group.scratch().take(kGathered, bytes * blocks.size());
    uint8_t* result = group.scratch().take(kResult, bytes);
    group.observe(Phase::kPack, bytes, [&] {
      payload.pack(at, bytes, gathered + bytes * static_cast<size_t>(group.rank()));
    });
    allgather_doubling(group, gathered, blocks);
    std::vector<const uint8_t*> inputs;
    for (const int rank : group.canonical_ranks()) {
      inputs.push_back(gathered + bytes * static_cast<size_t>(rank));
    }
    group.observe(Phase::kReduce, bytes, [&] {
      reduce_all(reduction, inputs, group.host_sizes(), result, bytes / element);
    });
    group.observe(Phase::kUnpack, bytes, [&] { payload.unpack(at, bytes, result); });
  }
}

}  // namespace hvdtune
